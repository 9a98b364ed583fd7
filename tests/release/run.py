"""`make wheel`: a wheel and an sdist in dist/, each tried in a fresh environment of its own.

    python -m tests.release.run

The sdist is made first, and the wheel from it, in an environment that has only the declared build
requirements. The wheel gets the oldest manylinux tag that its binaries allow. Both are checked for
what they hold. Then the wheel, and after it the sdist, which pip compiles again, is installed into
an environment under build/release, and the demo runs there, with the installed package. Stops at
the first thing that is wrong, and leaves that folder then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.release.contents import ROOT, sdist_faults, wheel_faults

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


def run(*command: str | Path, scripts: Path = Path(sys.executable).parent) -> str:
    """What `command` prints, with the programs in `scripts` first; ends ours where it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment(scripts), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        shown = " ".join(map(str, command))
        sys.exit(f"`{shown}` failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(scripts: Path) -> dict[str, str]:
    """Ours without what points into another environment or changes what Octavo does."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OCTAVO_", "PYTHON", "VIRTUAL_ENV")) or name == "OCTAVO_CACHE"
    }
    return kept | {"PATH": f"{scripts}{os.pathsep}{kept['PATH']}"}


def build() -> tuple[Path, Path]:
    """The wheel and the sdist, in dist/, which loses those of other versions."""
    say("building the sdist, and from it the wheel")
    raw = HOME / "raw"
    for folder in (raw, DIST):
        shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", raw, ".")
    (plain,), (sdist,) = raw.glob("*.whl"), raw.glob("*.tar.gz")
    DIST.mkdir()
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-w", DIST, plain)
    (wheel,) = DIST.glob("*.whl")
    return wheel, sdist.rename(DIST / sdist.name)


def check(wheel: Path, sdist: Path) -> str:
    """The version in both names; ends the program with what is wrong in either."""
    version = sdist.name.removeprefix("octavo-").removesuffix(".tar.gz")
    places = [ROOT, Path.home(), Path(sys.prefix), Path(tempfile.gettempdir())]
    faults = [
        *(f"{wheel.name}: {fault}" for fault in wheel_faults(wheel, version, places)),
        *(f"{sdist.name}: {fault}" for fault in sdist_faults(sdist, version)),
    ]
    if "manylinux" not in wheel.name:
        faults.append(f"{wheel.name}: it has no manylinux tag")
    if faults:
        sys.exit("\n".join(faults))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return version


def fresh(name: str, what: Path) -> Path:
    """The Python of a new environment that holds `what` and all that the demo needs."""
    say(f"installing {what.name}")
    home = HOME / name
    shutil.rmtree(home, ignore_errors=True)
    run(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, f"{what}[demo]", scripts=python.parent)
    return python


def try_out(python: Path, version: str) -> None:
    """The command's version, then the demo, whose output is passed on."""
    said = run(python.with_name("octavo"), "--version", scripts=python.parent).strip()
    if said != f"octavo {version}":
        sys.exit(f"`octavo --version` says {said!r}, not 'octavo {version}'")
    say("running the demo with it")
    command = [python, "-c", DEMO]
    done = subprocess.run(command, cwd=ROOT, env=environment(python.parent), check=False)
    if done.returncode != 0:
        sys.exit(f"the demo failed ({done.returncode})")


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
    wheel, sdist = build()
    version = check(wheel, sdist)
    python = fresh("wheel", wheel)
    check_types(python)
    try_out(python, version)
    try_out(fresh("sdist", sdist), version)
    shutil.rmtree(HOME)  # the two environments take gigabytes
    for path in (wheel, sdist):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB, installed and tried")
    print(f"{time.monotonic() - start:.0f} s in all")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
