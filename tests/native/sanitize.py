"""The kernel tests under sanitizers: `make sanitize` runs this.

    python -m tests.native.sanitize [pytest's arguments]

Three runs: the kernels and the operators for ONNX Runtime under AddressSanitizer and
UndefinedBehaviorSanitizer, the thread pool's stress program under ThreadSanitizer, and the tests of
threads under it. A sanitizer ends the
process that it finds something in, which fails the test that ran. It does not see into inline
assembly, nor where masked loads end: `tests/core/test_bounds.py` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.native.building import BUILD, HERE, ROOT, environment_with_tools, run

TESTS = ("tests/test_kernels.py", "tests/core", "tests/native_target")
# Not the operators: ONNX Runtime hands work to its threads through atomic variables in code that is
# not instrumented, so that every hand-over would look like a race. What runs on those threads is
# what runs on ours here, and tests/native_target/test_threads.py compares bits. Not beside PyTorch
# either, whose OpenMP's barriers it cannot see, and not where Python forks beside
# threads, which it does not support: pool_stress.cpp forks from C++.
THREADS = ("tests/test_kernels.py", "tests/core", "-k", "thread and not pytorch")
# Python itself leaks on purpose, and forks beside threads.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:abort_on_error=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": f"halt_on_error=1:die_after_fork=0:suppressions={HERE / 'tsan.supp'}",
}
# They measure time and memory, which a sanitizer multiplies.
LEFT_OUT = (
    "tests/test_kernels.py::test_import_and_first_call_take_less_than_50_ms",
    "tests/native_target/test_threads.py::test_memory_does_not_grow",
    "tests/native_target/test_threads.py::test_a_weight_is_mapped_not_copied",
)


def build(sanitizers: str, *targets: str) -> Path:
    """The folder with the module (and other targets), built for `sanitizers`."""
    folder = BUILD / f"sanitize-{sanitizers.partition(',')[0]}"
    tools = environment_with_tools()
    start = time.monotonic()
    run(
        *("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"),
        *(f"-DPython_EXECUTABLE={sys.executable}", f"-DOCTAVO_SANITIZE={sanitizers}"),
        env=tools,
    )
    run("cmake", "--build", folder, "--target", "_native", "octavo_ort", *targets, env=tools)
    print(f"built for {sanitizers} in {time.monotonic() - start:.0f} s", flush=True)
    return folder


def library(name: str) -> str:
    """The compiler's own copy of a runtime library, which has to be loaded first."""
    return subprocess.check_output(
        [os.environ.get("CXX", "c++"), f"-print-file-name={name}"], text=True
    ).strip()


def environment(folder: Path, libraries: Sequence[str]) -> dict[str, str]:
    """For a Python whose core is the one in `folder`."""
    (module,) = folder.glob("_native.*.so")
    return (
        os.environ
        | OPTIONS
        | {
            "LD_PRELOAD": ":".join(library(name) for name in (*libraries, "libstdc++.so")),
            "PYTHONPATH": str(HERE / "preload"),
            "OCTAVO_NATIVE": str(module),
            "OPENBLAS_NUM_THREADS": "1",  # its threads are no concern of ours
            "CI": "true",  # hypothesis then sets no deadlines
        }
    )


def pytest(folder: Path, libraries: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether the tests pass with the build in `folder`."""
    left_out = (f"--deselect={test}" for test in LEFT_OUT)
    # Uncaptured, so that a report outlives the process that it ends.
    command = ["-m", "pytest", "-n", "2", "--capture=no", *left_out, *arguments]
    done = subprocess.run(
        [*unrandomized(), sys.executable, *command],
        cwd=ROOT,
        env=environment(folder, libraries),
        check=False,
    )
    return done.returncode == 0


def unrandomized() -> list[str]:
    """ThreadSanitizer of GCC 12 wants fixed addresses where the kernel spreads them widely."""
    command = ["setarch", os.uname().machine, "-R"]
    if not shutil.which(command[0]):
        return []
    return command if subprocess.run([*command, "true"], check=False).returncode == 0 else []


def stress(folder: Path) -> bool:
    options = {"TSAN_OPTIONS": OPTIONS["TSAN_OPTIONS"]}
    command = [*unrandomized(), str(folder / "pool_stress")]
    return subprocess.run(command, env=os.environ | options, check=False).returncode == 0


def main(arguments: Sequence[str]) -> int:
    address = build("address,undefined")
    good = pytest(address, ("libasan.so", "libubsan.so"), arguments or TESTS)
    thread = build("thread", "pool_stress")
    good = stress(thread) and good
    good = pytest(thread, ("libtsan.so",), arguments or THREADS) and good
    print(f"sanitizers: {'clean' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
