"""The operators on Windows: cross-compiled, and run in ONNX Runtime's library for it under wine.

    python -m tests.windows.run [pytest's arguments]

Tests of operators run here first, and `recorder.py` keeps their models, inputs and outputs, errors
too. Then ONNX Runtime's DLL, of the installed release, runs the same models with `octavo_ort.dll`,
by each instruction set of this machine: all bits have to be the same. Needs Debian's MinGW and
wine, which it installs itself where it may; the rest is kept in build/windows.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from octavo.core.kernels import isas
from tests.native.building import (
    BUILD,
    ROOT,
    environment_with_tools,
    have_tools,
    kept,
    run,
    status_without_tools,
)
from tests.native.table_objects import table_faults
from tests.windows.cases import Case, Outcome, read_results, write_cases

HERE = Path(__file__).parent
HOME = BUILD / "windows"
STAGE = HOME / "stage"
"""Where the host and both libraries are."""

COMPILER = "x86_64-w64-mingw32-g++-posix"
TOOLS = {COMPILER: "g++-mingw-w64-x86-64-posix", "wine": "wine"}
OPERATORS = {
    *("Attention", "CachedAttention", "Conv", "Embedding", "GRU", "GatedLinear", "GroupedLinear"),
    *("LSTM", "Linear", "MatMul", "Norm", "RNN", "Rotary"),
}
TESTS = (
    *(str(path) for path in sorted((ROOT / "tests/native_target").glob("test_*_op.py"))),
    "tests/native_target/test_rotary_fusion.py",
    "tests/onnx/rules/test_group_query.py",
)
SYSTEM = {"KERNEL32.dll", "msvcrt.dll"}
"""What every Windows has."""


def say(message: str) -> None:
    print(f"windows: {message}", flush=True)


def build() -> Path:
    """octavo_ort.dll."""
    tools = environment_with_tools()
    folder = HOME / "library"
    run(
        *("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        *("-DOCTAVO_PYTHON=OFF", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"),
        f"-DCMAKE_TOOLCHAIN_FILE={HERE / 'toolchain.cmake'}",
        env=tools,
    )
    run("cmake", "--build", folder, env=tools)
    return folder / "octavo_ort.dll"


def fetch_onnxruntime(folder: Path) -> None:
    """The DLLs of ONNX Runtime's wheel for Windows."""
    wheels = HOME / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels),
        *("--platform=win_amd64", "--python-version=3.12", "--only-binary=:all:"),
        f"onnxruntime=={version('onnxruntime')}",
    )
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("onnxruntime/capi/") and name.endswith(".dll"):
                (folder / Path(name).name).write_bytes(archive.read(name))


def stage(library: Path) -> None:
    onnxruntime = HOME / "onnxruntime"
    kept(onnxruntime, version("onnxruntime").encode(), fetch_onnxruntime)
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(onnxruntime, STAGE)
    shutil.copy(library, STAGE)
    options = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-I", ROOT / "native")
    run(COMPILER, *options, HERE / "host.cpp", "-o", STAGE / "host.exe")


def faults(library: Path) -> list[str]:
    """What is wrong with the library as it lies there."""

    def shown(*options: str) -> str:
        command = ["x86_64-w64-mingw32-objdump", *options, str(library)]
        return subprocess.check_output(command, text=True)

    found = []
    headers = shown("-p")
    if strangers := set(re.findall(r"DLL Name: (\S+)", headers)) - SYSTEM:
        found.append(f"it needs {', '.join(sorted(strangers))}")
    names = headers.partition("[Ordinal/Name Pointer]")[2].partition("\n\n")[0]
    exports = re.findall(r"\[\s*\d+\] (\w+)", names)
    if exports != ["RegisterCustomOps"]:
        found.append(f"it exports {', '.join(exports)}")
    # docs/notes/processors.md: "Windows aligns a stack to 16 bytes"
    moves = re.findall(r"\tvmov(?:aps|apd|dqa|dqa32|dqa64)\s.*\(.*", shown("-d"))
    if moves:
        found.append(f"{len(moves)} moves of vectors want aligned memory, as{moves[0]}")
    return found


def record(arguments: Iterable[str]) -> list[Case]:
    folder = HOME / "cases"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(
        *(sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not slow"),
        *("-p", "tests.windows.recorder", *arguments),
        env=os.environ | {"OCTAVO_RECORD": str(folder)},
    )
    return [case for file in folder.glob("*.pickle") for case in pickle.loads(file.read_bytes())]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Any NaN is as good as any other."""
    if a.shape != b.shape:
        return False
    differ = a.view(np.uint32) != b.view(np.uint32)
    return not (differ & ~(np.isnan(a) & np.isnan(b))).any()


def difference(wanted: Outcome, found: Outcome) -> str:
    """How the two differ; empty if they do not."""
    if wanted.error or found.error:
        # The Python interface writes a code before the message.
        same = bool(found.error) and wanted.error.endswith(found.error)
        return "" if same else f"{found.error!r} in place of {wanted.error!r}"
    pairs = zip(wanted.outputs, found.outputs, strict=True)
    return "" if all(same_bits(a, b) for a, b in pairs) else "other bits"


def run_on_windows(cases: Sequence[Case], isa: str, prefix: str) -> list[str]:
    """What differs there; `prefix` is wine's folder."""
    write_cases(STAGE / "cases", cases)
    files = ("onnxruntime.dll", "octavo_ort.dll", "cases", "results")
    (STAGE / "results").unlink(missing_ok=True)
    own = {"WINEPREFIX": prefix, "WINEDEBUG": "-all", "OCTAVO_ISA": isa}
    own["WINEDLLOVERRIDES"] = "mscoree=;mshtml="  # else wine asks whether to fetch Mono and Gecko
    done = subprocess.run(
        ["wine", "host.exe", *files],
        cwd=STAGE,
        env=os.environ | own,
        text=True,
        capture_output=True,
        check=False,
        timeout=1200,
    )
    results = list(read_results(STAGE / "results")) if (STAGE / "results").exists() else []
    if done.returncode != 0 or len(results) != len(cases):
        last = f"; the first without is of {cases[len(results)].test}" if results else ""
        said = f"{done.stdout}{done.stderr}".strip()[-2000:]
        return [f"{len(results)} results, ended with {done.returncode}{last}\n{said}"]
    pairs = zip(cases, results, strict=True)
    return [f"{c.test}: {d}" for c, r in pairs if (d := difference(c.outcome, r))]


def main(arguments: Sequence[str]) -> int:
    if not have_tools("windows", "the operators are NOT TESTED on Windows", TOOLS):
        return status_without_tools()
    start = time.monotonic()
    library = build()
    stage(library)
    failures = faults(library) + table_faults(library.parent, "x86_64-w64-mingw32-nm")
    cases = record(arguments or TESTS)
    met = {operator for case in cases for operator in case.operators}
    if not arguments and met != OPERATORS:
        failures.append(f"no case of {', '.join(sorted(OPERATORS - met))}")
    refused = sum(bool(case.outcome.error) for case in cases)
    say(f"{len(cases)} models of {len(met)} operators, {refused} of them refused")
    # Not in build/: one of its drives is the whole disk, and who makes an sdist follows links.
    shutil.rmtree(HOME / "prefix", ignore_errors=True)  # where it was
    with tempfile.TemporaryDirectory(prefix="octavo-wine-", ignore_cleanup_errors=True) as prefix:
        for isa in (name for name in isas() if name != "amx"):
            failures += [f"{isa}: {line}" for line in run_on_windows(cases, isa, prefix)]
            say(f"ran with {isa}")
    for line in failures[:20]:
        say(line)
    outcome = f"FAILED ({len(failures)})" if failures else "passed"
    say(f"{outcome}, {time.monotonic() - start:.0f} s in all")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
