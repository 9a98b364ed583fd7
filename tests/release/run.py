"""`make wheel`: wheels and an sdist in dist/, each tried in a fresh environment of its own.

    python -m tests.release.run

The sdist is made first, and all wheels from it: for x86-64 and aarch64, each for Python 3.10, for
3.11 and one for 3.12 and later, as far as compilers and Pythons are here; what is left out is said
at the end. All are linked with the names of glibc 2.28 and get the oldest manylinux tag that their
binaries allow. They are checked for what they hold. Then each is installed where no compiler is
found, for each Python that it serves, and makes and runs a small model; those for aarch64 do so
under qemu. The library runs with an older glibc. The sdist is compiled by pip, with GCC and with
clang, and has to give the same bits. With one wheel the whole demo runs. Stops at the first thing
that is wrong, and leaves build/release then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.native import debian
from tests.native.building import environment_with_tools, output, run
from tests.release import elsewhere, pythons, wheels
from tests.release.contents import ROOT, sdist_faults, wheel_faults
from tests.release.trying import (
    LONGEST_FIRST_CALL,
    PIP,
    clean_environment,
    first_call,
    fresh,
    use,
)

DIST = ROOT / "dist"
HOME = ROOT / "build" / "release"
PROGRAM = Path(__file__).with_name("typed_program.py")
# Fails in the process that runs the demo, should this tree's package come first there.
DEMO = """
import pathlib, runpy, sys
import octavo
assert pathlib.Path(octavo.__file__).is_relative_to(sys.prefix), octavo.__file__
runpy.run_module("benchmarks.demo", run_name="__main__", alter_sys=True)
"""


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


def build_sdist() -> Path:
    """In dist/, which loses those of other versions, with the declared build requirements alone."""
    say("building the sdist")
    for folder in (HOME, DIST):
        shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, ".", env=clean_environment())
    (sdist,) = DIST.glob("*.tar.gz")
    return sdist


def build_wheels(sdist: Path, systems: Sequence[wheels.System]) -> dict[str, list[Path]]:
    """The wheels by processor, each said as it is made."""
    tools = environment_with_tools()
    tools["CMAKE_BUILD_PARALLEL_LEVEL"] = str(os.cpu_count() or 1)
    with tarfile.open(sdist) as archive:
        archive.extractall(HOME, filter="data")
    source = HOME / sdist.name.removesuffix(".tar.gz")
    made: dict[str, list[Path]] = {}
    for system in systems:
        say(f"building wheels for {system.machine}")
        made[system.machine] = []
        for wheel in wheels.build(system, source, HOME / system.machine, DIST, tools):
            say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
            made[system.machine].append(wheel)
    return made


def check(archives: Sequence[Path], sdist: Path) -> str:
    """The version in all names; ends the program with what is wrong in any."""
    version = sdist.name.removeprefix("octavo-").removesuffix(".tar.gz")
    places = [ROOT, Path.home(), Path(sys.prefix), Path(tempfile.gettempdir())]
    faults = [
        f"{wheel.name}: {fault}"
        for wheel in archives
        for fault in wheel_faults(wheel, version, places)
    ]
    faults += [f"{sdist.name}: {fault}" for fault in sdist_faults(sdist, version)]
    if faults:
        sys.exit("\n".join(faults))
    run(sys.executable, "-m", "twine", "check", "--strict", *archives, sdist)
    stable = [wheel for wheel in archives if "-abi3-" in wheel.name]
    run(sys.executable, "-m", "abi3audit", "--strict", *stable)
    return version


def serves(wheel: Path, version: str) -> bool:
    """Whether the wheel is for that Python."""
    python, abi = wheel.name.split("-")[2:4]
    own = f"cp{version.replace('.', '')}"
    return python == own or (abi == "abi3" and version in pythons.LIMITED)


def try_here(archives: Sequence[Path], missing: list[str]) -> Path:
    """Each wheel in each Python that it serves; the folder of the small model that one has made."""
    models = HOME / "model"
    for version in (*pythons.OLDER, *pythons.LIMITED):
        wheel = next((wheel for wheel in archives if serves(wheel, version)), None)
        python = pythons.find(version)
        if wheel is None or python is None:
            missing.append(f"Python {version} is not here: no wheel was tried with it")
            continue
        say(f"trying {wheel.name} with Python {version}, without a compiler")
        home = HOME / f"python-{version}"
        made = fresh(home, python, wheel)
        use([made], models, clean_environment([made.parent]))
        took = first_call(made, models)
        say(f"the first call took {took:.0f} ms")
        if took > LONGEST_FIRST_CALL:
            sys.exit(f"it may take {LONGEST_FIRST_CALL:.0f} ms")
        shutil.rmtree(home)
    return models


def try_elsewhere(made: dict[str, list[Path]], models: Path, missing: list[str]) -> None:
    """The wheels for aarch64 under qemu, and the library with an older glibc."""
    if not debian.available():
        missing.append("apt-get is not here: nothing was tried on other systems")
        return
    say(f"trying the library with glibc {elsewhere.OLD_GLIBC}")
    with zipfile.ZipFile(made[wheels.X86.machine][0]) as archive:
        library = archive.extract("octavo/liboctavo_ort.so", HOME)
    elsewhere.try_old_glibc(Path(library), models)
    for version in elsewhere.EMULATED:
        for wheel in made.get(wheels.ARM.machine, []):
            if serves(wheel, version):
                say(f"trying {wheel.name} with an emulated Python {version}")
                elsewhere.try_emulated(wheel, version, models)


def try_sdist(sdist: Path, models: Path, missing: list[str]) -> None:
    """Compiled by pip in a fresh environment, with each compiler."""
    for compiler in ("g++", "clang++"):
        if shutil.which(compiler) is None:
            missing.append(f"{compiler} is not here: the sdist was not compiled with it")
            continue
        say(f"installing {sdist.name} with {compiler}")
        home, there = HOME / f"sdist-{compiler}", HOME / "model-of-sdist"
        run(sys.executable, "-m", "venv", home)
        python = home / "bin" / "python"
        run(python, *PIP[:-1], sdist, env=clean_environment() | {"CXX": compiler})
        use([python], there, clean_environment(), compiler=True)
        elsewhere.same_bits(there / "native.npz", models / "native.npz")
        shutil.rmtree(home)


def try_demo(wheel: Path, version: str) -> Path:
    """The Python of a new environment that holds `wheel`, with which the demo ran."""
    say(f"installing {wheel.name} with all that the demo needs")
    home = HOME / "wheel"
    run(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    environment = clean_environment()
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    run(python, *PIP[:-1], f"{wheel}[demo]", env=environment)
    said = output(python.with_name("octavo"), "--version", env=environment).strip()
    if said != f"octavo {version}":
        sys.exit(f"`octavo --version` says {said!r}, not 'octavo {version}'")
    say("running the demo with it")
    done = subprocess.run([python, "-c", DEMO], cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"the demo failed ({done.returncode})")
    return python


def check_types(python: Path) -> None:
    """A user's program, strictly checked against the installed package.

    It holds a mistake that has to be found: where types were not seen, mypy would say that the
    comment that allows it is unused.
    """
    say("checking a typed program against it")
    mypy = (sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull)
    run(*mypy, "--python-executable", python, PROGRAM)


def main(arguments: Sequence[str]) -> int:
    if arguments:
        sys.exit("it takes no arguments")
    start = time.monotonic()
    systems, missing = wheels.systems()
    sdist = build_sdist()
    made = build_wheels(sdist, systems)
    archives = [wheel for group in made.values() for wheel in group]
    version = check(archives, sdist)
    models = try_here(made[wheels.X86.machine], missing)
    try_elsewhere(made, models, missing)
    own = ".".join(map(str, sys.version_info[:2]))
    (wheel,) = (wheel for wheel in made[wheels.X86.machine] if serves(wheel, own))
    try_sdist(sdist, models, missing)
    check_types(try_demo(wheel, version))
    shutil.rmtree(HOME)  # the environments take gigabytes
    for path in (*archives, sdist):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    for what in missing:
        print(f"LEFT OUT: {what}")
    print(f"{time.monotonic() - start:.0f} s in all")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
