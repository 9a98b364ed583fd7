"""Proves the suite: plants each fault in a copy of the checkout and runs the tests that mirror it.

    python -m tests.planted.check [--only GLOB] [--jobs N] [--record]

`make planted` runs all. A fault is caught where a test fails that passes without it. Faults of C++
are compiled together into one core, and the environment says which is on. The exit status is 1
where a fault was missed. With --record the outcome is written to record.json, under "last"; what
stands there under "first" was found before the suite was shortened.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from tests.native.building import BUILD, HERE, ROOT, environment_with_tools, run
from tests.planted.fault import Fault
from tests.planted.faults import middle, native, onnx, outer, torch

FAULTS: tuple[Fault, ...] = (
    *native.FAULTS,
    *middle.FAULTS,
    *onnx.FAULTS,
    *torch.FAULTS,
    *outer.FAULTS,
)
FOLDER = BUILD / "planted"
RECORD = Path(__file__).with_name("record.json")
SECONDS = 600
"""What the tests of one fault may take; longer, and the fault made them hang."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
"""What pytest says at its end of a test, or of a file that could not be imported."""
HEADER = """
#pragma once
#include <cstdlib>
#include <cstring>
namespace {
inline bool planted_is_on(const char* name) {
    static const char* const chosen = std::getenv("OCTAVO_PLANTED");
    return chosen && std::strcmp(chosen, name) == 0;
}
}  // namespace
#define PLANTED(name) ([]() { static const bool on = planted_is_on(name); return on; }())
"""


def main(arguments: Sequence[str]) -> int:
    """1 where a fault is missed, or where tests fail without any."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted.check")
    parser.add_argument("--only", default="*", help="names of faults, or their files, as a glob")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="write record.json")
    given = parser.parse_args(arguments)
    chosen = [f for f in FAULTS if any(fnmatchcase(word, given.only) for word in (f.name, f.path))]
    core = build_core([f for f in FAULTS if is_native(f)]) if any(map(is_native, chosen)) else None
    copies: queue.Queue[Path] = queue.Queue()
    for number in range(given.jobs):
        copies.put(copy_of_checkout(FOLDER / f"copy-{number}"))
    with ThreadPoolExecutor(given.jobs) as pool:
        found = dict(pool.map(lambda fault: outcome(fault, copies, core), chosen))
    print(", ".join(f"{n} {word}" for word, n in sorted(Counter(found.values()).items())))
    if given.record:
        kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        write_record(kept | {"last": found})
    return int(set(found.values()) != {"caught"})


def is_native(fault: Fault) -> bool:
    """Tell whether the fault is compiled."""
    return fault.path.startswith("native/")


def copy_of_checkout(folder: Path) -> Path:
    """Copy what git knows or would add; environments are links to those of the checkout."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")
    shutil.rmtree(folder, ignore_errors=True)
    for name in names:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for environment in ROOT.glob(".venv*"):
        (folder / environment.name).symlink_to(environment)
    return folder


@contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[None]:
    """Put the fault into the copy of the checkout in `folder`, and take it out again."""
    path = folder / fault.path
    whole = path.read_bytes()
    path.write_text(changed(fault, whole.decode()))
    try:
        yield
    finally:
        shutil.copy2(ROOT / fault.path, path)


def changed(fault: Fault, text: str) -> str:
    """Return the file's text with the fault in it."""
    if text.count(fault.before) != 1:
        sys.exit(f"{fault.name}: {text.count(fault.before)} places in {fault.path}, not one")
    return text.replace(fault.before, compiled(fault) if is_native(fault) else fault.after)


def compiled(fault: Fault) -> str:
    """Return C++ that behaves as `before`, or as `after` while the fault is on."""
    on = f'PLANTED("{fault.name}")'
    if fault.before.rstrip().endswith(";"):
        return f"if ({on}) {{ {fault.after} }} else {{ {fault.before} }}"
    return f"({on} ? ({fault.after}) : ({fault.before}))"


def build_core(faults: Sequence[Fault]) -> Path:
    """Compile one core with all faults of C++ in it, and return the module's path."""
    source, folder = FOLDER / "source", FOLDER / "core"
    texts = {name.relative_to(ROOT): name.read_text() for name in native_sources()}
    for fault in faults:
        texts[Path(fault.path)] = changed(fault, texts[Path(fault.path)])
    texts[Path("native/planted.h")] = HEADER
    for name, text in texts.items():
        path = source / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    tools = environment_with_tools()
    flags = f"-DCMAKE_CXX_FLAGS=-include {source / 'native/planted.h'}"
    python = f"-DPython_EXECUTABLE={sys.executable}"
    kind = "-DCMAKE_BUILD_TYPE=Release"
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", kind, python, flags, env=tools)
    run("cmake", "--build", folder, "--target", "_native", "octavo_ort", env=tools)
    (module,) = folder.glob("_native.*.so")
    return module


def native_sources() -> list[Path]:
    """Return the files that the core is compiled from."""
    texts = [path for path in (ROOT / "native").rglob("*") if path.is_file()]
    return [*texts, ROOT / "CMakeLists.txt", ROOT / "src/octavo/__init__.py"]


def outcome(fault: Fault, copies: queue.Queue[Path], core: Path | None) -> tuple[str, str]:
    """Run the tests of a fault that is planted, and what fails of them once more without it."""
    folder = copies.get()
    try:
        if is_native(fault):
            status, took = run_tests(fault.tests, folder, core, fault.name)
        else:
            with planted(fault, folder):
                status, took = run_tests(fault.tests, folder, core, "")
        word = "missed"
        if status != 0:
            failed = FAILED.findall((folder / "said.txt").read_text(errors="replace"))
            again, more = run_tests(tuple(failed) or fault.tests, folder, core, "")
            word, took = "caught" if again == 0 else "unsound", took + more
    finally:
        copies.put(folder)
    print(f"{word:7} {took:4.0f} s  {fault.name} ({fault.path})", flush=True)
    return fault.name, word


def run_tests(
    tests: tuple[str, ...], folder: Path, core: Path | None, name: str
) -> tuple[int, float]:
    """Return pytest's exit status, 0 where all passed, and the seconds that it took."""
    environment = os.environ | {
        "PYTHONPATH": str(HERE / "preload"),
        "OCTAVO_SOURCE": str(folder / "src"),
        "OCTAVO_PLANTED": name,
        "OCTAVO_NATIVE": str(core or ""),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "not slow", *tests]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, check=False, timeout=SECONDS, capture_output=True
        )
        status = done.returncode
        (folder / "said.txt").write_bytes(done.stdout + done.stderr)
    except subprocess.TimeoutExpired:
        status = -1
        (folder / "said.txt").write_text("")
    return status, time.monotonic() - start


def write_record(record: dict[str, dict[str, str]]) -> None:
    """Write what each fault was, a line each."""
    RECORD.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
