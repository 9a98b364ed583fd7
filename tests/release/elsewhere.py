"""Tries wheels on systems that this one is not: emulated aarch64, and an older glibc.

Debian's Pythons are unpacked into build/systems and kept there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.native import debian
from tests.native.building import BUILD, kept, run
from tests.release import pythons
from tests.release.trying import HERE, PIP, clean_environment, use

HOME = BUILD / "systems"
EMULATOR = "qemu-aarch64"
EMULATED = {"3.11": "bookworm", "3.13": "trixie"}
"""Versions of Python for aarch64, and the release of Debian that has each."""
OLD, OLD_PYTHON, OLD_GLIBC = "bullseye", "3.9", "2.31"
"""The oldest release that Debian's servers still have. Its Python is too old for our module."""
CPUINFO = """processor\t: 0
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
"""Of a Neoverse N1. Where the file tells of x86, as it does under this emulator, the import of ONNX
Runtime for aarch64 ends the process."""
OLD_RUNTIME = ("onnxruntime==1.19.2", "numpy==2.0.2")


def make_system(suite: str, version: str, architecture: str) -> Path:
    """The folder of that release of Debian, with its Python and nothing more."""
    folder = HOME / f"{suite}-{architecture}"
    packages = (f"python{version}-minimal", f"libpython{version}-stdlib", "libstdc++6")

    def fill(folder: Path) -> None:
        debian.unpack(folder, packages, architecture=architecture, suite=suite)
        if architecture == "arm64":
            (folder / "proc").mkdir()
            (folder / "proc" / "cpuinfo").write_text(CPUINFO)

    kept(folder, repr((suite, architecture, packages, CPUINFO, str(folder))).encode(), fill)
    return folder


def install(folder: Path, machine: str, version: str, *what: str | Path) -> None:
    """What pip chooses for another system: wheels that glibc 2.28 can load."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, 29)))
    abis = (f"cp{version.replace('.', '')}", "abi3", "none")
    run(
        *(sys.executable, *PIP, "--target", folder, "--implementation=cp"),
        *(f"--python-version={version}", *(f"--abi={abi}" for abi in abis)),
        *(*(f"--platform={platform}_{machine}" for platform in platforms), *what),
    )


def compile_for(version: str, *folders: Path) -> None:
    """Writes bytecode, for which an emulated Python takes minutes, where that Python is here."""
    if python := pythons.find(version):
        command: list[str | Path] = [python, "-m", "compileall", "-q", *folders]
        subprocess.run(command, capture_output=True, check=False)  # some files are templates


def try_emulated(wheel: Path, version: str, made_here: Path) -> None:
    """Installs it for aarch64, uses it there, and compares bits with those of `made_here`."""
    system = make_system(EMULATED[version], version, "arm64")
    site = HOME / f"site-{version}"
    install(site, "aarch64", version, wheel)
    compile_for(version, site, system / "usr" / "lib" / f"python{version}")
    python = (shutil.which(EMULATOR) or EMULATOR, "-cpu", "max", "-L", system)
    program = system / "usr" / "bin" / f"python{version}"
    environment = clean_environment([system / "usr" / "bin"])
    environment |= {"PYTHONPATH": str(site), "OPENBLAS_NUM_THREADS": "1"}
    there = HOME / "emulated"
    use((*python, program), there, environment)
    same_bits(there / "native.npz", made_here / "native.npz")


def same_bits(one: Path, other: Path) -> None:
    import numpy as np

    with np.load(one) as first, np.load(other) as second:
        if not all(np.array_equal(first[name], second[name]) for name in ("x", "y")):
            sys.exit(f"the results in {one} and {other} differ")


def try_old_glibc(library: Path, made_here: Path) -> None:
    """Runs the file of target native in `made_here` where glibc is older than this system's."""
    system = make_system(OLD, OLD_PYTHON, "amd64")
    site = HOME / f"site-{OLD_PYTHON}"
    install(site, "x86_64", OLD_PYTHON, *OLD_RUNTIME)
    parts = [system / top / "x86_64-linux-gnu" for top in ("lib", "usr/lib")]
    (loader,) = parts[0].glob("ld-2.*.so")
    run(
        *(loader, "--library-path", ":".join(map(str, parts))),
        *(system / "usr" / "bin" / f"python{OLD_PYTHON}", HERE / "native_file.py"),
        *(library, made_here),
        env=clean_environment() | {"PYTHONPATH": str(site)},
    )
