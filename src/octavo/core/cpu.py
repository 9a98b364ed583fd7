"""What a processor's instruction sets mean for int8 arithmetic. Imports nothing but the core."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

_AVX512 = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"})


def uses_vnni(features: Iterable[str]) -> bool:
    """Tell whether ONNX Runtime multiplies int8 by uint8 with VNNI or AMX here, which is exact."""
    has = set(features)
    # Where there is AVX-512 it takes no kernels of AVX-VNNI, and a virtual machine may hide
    # AVX512-VNNI alone.
    narrow = "avxvnni" in has and not has >= _AVX512
    return narrow or not has.isdisjoint({"avx512vnni", "amxint8"})


def saturates(features: Iterable[str]) -> bool:
    """Tell whether ONNX Runtime's int8 x uint8 products lose bits here: x86-64 without VNNI."""
    has = set(features)
    return "avx2" in has and not uses_vnni(has)


def made_by_amd() -> bool:
    """Tell whether the system says that this processor is one of AMD's."""
    return "AuthenticAMD" in (_cpuinfo() or platform.processor())  # Windows names the maker there


def processor_name() -> str:
    """Return the processor's name, as `AMD EPYC 9R14`.

    Where the system does not say the name, as on ARM, this is the architecture.
    """
    found = re.search(r"^model name\s*:(.+)$", _cpuinfo(), re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.machine()


def usable_processors() -> int:
    """Count the logical processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        return os.cpu_count() or 1


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:  # not Linux
        return ""


def release(version: str) -> tuple[int, ...]:
    """Return `2.13.0+cpu` as (2, 13, 0): enough to compare the releases that requirements name."""
    digits = re.split(r"[^\d.]", version)[0].split(".")
    return tuple(int(part) for part in digits if part)
