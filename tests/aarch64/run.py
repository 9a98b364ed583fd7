"""The kernel tests on aarch64, emulated: cross-compiles the sdist and runs them under qemu.

    python -m tests.aarch64.run [pytest's arguments]

They run on a processor for each kernel table: one that has what the table needs, and as little more
as there is. An instruction that a table may not use ends its tests there. What no table changes is
tested on the first.

Needs Debian's cross-compiler and qemu-user, which it installs itself where it may. The rest is put
into build/aarch64 and kept there: Debian's Python for that processor with what it links to, wheels
of what the tests import, and the module, which is built again when its sources differ.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.native import debian
from tests.native.building import (
    BUILD,
    ROOT,
    environment_with_tools,
    have_tools,
    kept,
    run,
    status_without_tools,
)

HERE = Path(__file__).parent
HOME = BUILD / "aarch64"
SYSROOT = HOME / "sysroot"
SITE = HOME / "site"
MODULE = HOME / "octavo"
PYTHON = SYSROOT / "usr" / "bin" / "emulated-python"
"""A script that starts the real one, and that Python takes for itself: its children run it, too."""

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
TOOLS = {COMPILER: "g++-aarch64-linux-gnu", EMULATOR: "qemu-user"}
TOOLS |= {"apt-get": "apt", "dpkg-deb": "dpkg"}
PACKAGES = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6")
HEADERS = "libpython3.11-dev"
KERNELS = "tests/test_kernels.py"
TESTS = (KERNELS, "tests/core")
PROCESSORS = {
    "cortex-a72": ("neon_mull", "reference"),
    "neoverse-n1": ("neon",),
    "max": ("neon_i8mm",),
}
"""What QEMU calls them, and the tables tested there: all that it runs less those of the ones above.
QEMU 7.2 has no other with matrix products than "max"."""
LEFT_OUT = {
    f"{KERNELS}::test_import_and_first_call_take_less_than_50_ms": "emulators are slow",
    f"{KERNELS}::test_our_pool_gives_the_same_bits_and_lives_through_forks": (
        "qemu-user 7.2 ends a program that forks beside its threads"
    ),
    "tests/core/test_packages.py": "what optional packages are missing is said in the same words",
    "tests/core/test_progress.py": "PyTorch is not installed there",
}


def say(message: str) -> None:
    print(f"aarch64: {message}", flush=True)


# --- what is kept from run to run ---


def make_sysroot(folder: Path) -> None:
    # The headers alone: the compiler has C's.
    debian.unpack(folder, PACKAGES, architecture="arm64", alone=[HEADERS])


def make_site(folder: Path) -> None:
    platforms = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "--no-deps"),
        *(f"--platform={p}_aarch64" for p in platforms),
        *("--implementation=cp", "--python-version=3.11", "--abi=cp311", "--abi=none"),
        *("--only-binary=:all:", "-r", HERE / "wheels.txt"),
    )


def make_sdist(tools: dict[str, str]) -> Path:
    folder = HOME / "sdist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", code, folder, env=tools)
    (made,) = folder.glob("octavo-*.tar.gz")
    return made


def make_module(folder: Path, sdist: Path, tools: dict[str, str]) -> None:
    """The wheel of the sdist, for the other processor, unpacked."""
    wheels, source = HOME / "wheel", HOME / "source"
    for old in (wheels, source):
        shutil.rmtree(old, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (unpacked,) = source.iterdir()
    define = {
        "CMAKE_TOOLCHAIN_FILE": HERE / "toolchain.cmake",
        "Python_INCLUDE_DIR": f"{SYSROOT}/usr/include/python3.11",
        "CMAKE_CXX_FLAGS": f"-isystem {SYSROOT}/usr/include",  # pyconfig.h of the processor
    }
    environment = tools | {
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "SETUPTOOLS_EXT_SUFFIX": ".cpython-311-aarch64-linux-gnu.so",
    }
    if shutil.which("ccache"):
        environment = {
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "CCACHE_NOHASHDIR": "1",
        } | environment
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", wheels)
    settings = (f"--config-settings=cmake.define.{key}={value}" for key, value in define.items())
    run(*pip, *settings, unpacked, env=environment)
    (wheel,) = wheels.glob("octavo-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def sources(sdist: Path) -> bytes:
    """What the module is made of: the archive's own bytes hold times."""
    parts = []
    with tarfile.open(sdist) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            file = archive.extractfile(member)
            if file:
                parts.append(member.name.encode() + file.read())
    return b"\0".join(parts)


# --- the tests ---


def make() -> dict[str, str]:
    """Everything under build/aarch64; the environment of an emulated Python that finds it."""
    kept(SYSROOT, repr((PACKAGES, HEADERS, str(SYSROOT))).encode(), make_sysroot)
    PYTHON.write_text(
        f'#!/bin/sh\nexec {EMULATOR} -L "{SYSROOT}" -0 "$0" "{SYSROOT}/usr/bin/python3.11" "$@"\n'
    )
    PYTHON.chmod(0o755)
    kept(SITE, (HERE / "wheels.txt").read_bytes(), make_site)
    tools = environment_with_tools()
    sdist = make_sdist(tools)
    of = sources(sdist) + (HERE / "toolchain.cmake").read_bytes()
    kept(MODULE, of, lambda folder: make_module(folder, sdist, tools))
    ours = ("LD_", "PYTHON", "OPENBLAS_", "OCTAVO_", "VIRTUAL_ENV")  # for this processor
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)} | {
        "PYTHONPATH": f"{MODULE}{os.pathsep}{SITE}",
        "PYTHONPYCACHEPREFIX": str(HOME / "pycache"),
        "OPENBLAS_NUM_THREADS": "1",
        "CI": "true",  # hypothesis then sets no deadlines
    }


def has_tables(environment: dict[str, str], wanted: set[str]) -> bool:
    """Whether the module runs these tables there, and no others."""
    code = "from octavo.core import kernels; print(*kernels.isas())"
    done = subprocess.run(
        [str(PYTHON), "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if set(done.stdout.split()) == wanted:
        return True
    say(f"{environment['QEMU_CPU']} runs {done.stdout.strip()}{done.stderr}, not {wanted}")
    return False


def cases_of(table: str) -> str:
    """Those of a table by pytest's `-k`, which takes a name for every longer one, too."""
    every = [name for tables in PROCESSORS.values() for name in tables]
    return " and not ".join([table, *(name for name in every if table in name and table != name)])


def main(arguments: Sequence[str]) -> int:
    if not have_tools("aarch64", "the kernels are NOT TESTED on aarch64", TOOLS):
        return status_without_tools()
    start = time.monotonic()
    environment = make()
    say(f"ready after {time.monotonic() - start:.0f} s; left out are {LEFT_OUT}")
    left_out = [f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in LEFT_OUT]
    # Without PyTorch the folder tests/torch would be imported in its place, were tests on the path.
    mode = "--import-mode=importlib"
    command = [str(PYTHON), "-m", "pytest", "-n", "2", mode, *left_out, *(arguments or TESTS)]
    failed, known = [], set[str]()
    for processor, tables in PROCESSORS.items():
        others = [] if not known else ["-k", cases_of(tables[0])]
        known |= set(tables)
        there = environment | {"QEMU_CPU": processor, "OCTAVO_TEST_ISAS": " ".join(tables)}
        say(f"{processor}: {', '.join(tables)}")
        if (
            not has_tables(there, known)
            or subprocess.run([*command, *others], cwd=ROOT, env=there, check=False).returncode
        ):
            failed.append(processor)
    tested = "; ".join(f"{', '.join(tables)} on {name}" for name, tables in PROCESSORS.items())
    result = f"FAILED on {', '.join(failed)}" if failed else "passed"
    say(f"{result}, {time.monotonic() - start:.0f} s in all. Kernel tables: {tested}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
