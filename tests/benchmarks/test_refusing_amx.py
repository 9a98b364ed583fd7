"""A process that refuses itself AMX runs as if the processor had none."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from benchmarks.results import REPOSITORY
from octavo.core.kernels import cpu_features

pytestmark = pytest.mark.slow


def child(code: str) -> str:
    """What a child process prints, and the last line of what it complains about."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, check=False, capture_output=True, text=True
    )
    return done.stdout + "".join(done.stderr.splitlines(keepends=True)[-1:])


x86_linux = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="needs Linux on x86-64"
)


@x86_linux
def test_without_amx_the_kernel_refuses_it_and_nothing_else_breaks() -> None:
    has_amx = "amxint8" in cpu_features()
    asks = "from benchmarks.machine import amx_granted, without_amx\n"
    assert child(asks + "print(amx_granted())") == f"{has_amx}\n"
    code = "without_amx()\nimport numpy, onnxruntime\nprint(amx_granted())"
    assert child(asks + code) == "False\n"


@x86_linux
def test_without_amx_too_late() -> None:
    code = "import onnxruntime\nfrom benchmarks.machine import without_amx\nwithout_amx()"
    assert child(code) == "RuntimeError: onnxruntime may have asked for AMX already\n"
