"""Timing that holds on a noisy machine: A B B A A B ..., compared round by round.

A machine's speed drifts by more than the differences that matter. Two calls made within the same
tenth of a second drift together, so the median of their ratios holds where a ratio of medians does
not.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds a call took on the wall, one figure for each round, and cores busy meanwhile."""

    seconds: tuple[float, ...]
    cores: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of the middle round."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Distance of the quartiles, as a share of the median."""
        low, high = _quartiles(self.seconds)
        return (high - low) / self.median

    @property
    def busy(self) -> float:
        """Cores in use: about the number of threads at work; less if others held the machine."""
        return statistics.median(self.cores)


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of a ratio taken in each round."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Comparison:
    """The timings of calls that were made in turn."""

    timings: Mapping[str, Timing]

    def __getitem__(self, name: str) -> Timing:
        return self.timings[name]

    def time(self, of: str, over: str) -> Ratio:
        """Time of one call as a share of the other's: 0.5 is half the time."""
        pairs = zip(self[of].seconds, self[over].seconds, strict=True)
        ratios = [mine / theirs for mine, theirs in pairs]
        return Ratio(statistics.median(ratios), *_quartiles(ratios))

    def speed(self, of: str, over: str) -> Ratio:
        """How many times as fast one call is as the other: 2 is half the time."""
        return self.time(of=over, over=of)

    def check_threads(self, threads: int) -> None:
        """Raises RuntimeError if a call kept more than `threads` cores busy."""
        for name, timing in self.timings.items():
            if timing.busy > threads + 0.1:
                raise RuntimeError(
                    f"{name} kept {timing.busy:.1f} cores busy and was to use {threads} thread(s)"
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: {"seconds": t.seconds, "cores": t.cores} for name, t in self.timings.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The inverse of `to_dict`."""
        return cls(
            {name: Timing(tuple(t["seconds"]), tuple(t["cores"])) for name, t in data.items()}
        )


def pooled(parts: Sequence[Comparison]) -> Comparison:
    """One comparison with the rounds of all `parts`, which timed the same calls.

    How fast a model runs depends on where its weights happen to lie in memory, by a tenth and more,
    and that changes from process to process, not from round to round.
    """
    return Comparison(
        {
            name: Timing(
                tuple(second for part in parts for second in part[name].seconds),
                tuple(busy for part in parts for busy in part[name].cores),
            )
            for name in parts[0].timings
        }
    )


def interleave(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 21,
    warmup: int = 2,
    least: float = 0.02,
    settle: Callable[[str], object] | None = None,
    wall: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
) -> Comparison:
    """Times `calls` in turn, each for at least `least` seconds a round.

    After `warmup` calls each, one more says how often a call must be repeated to fill `least`.
    Every second round runs backwards, so that none always follows the same neighbour. With
    `settle`, that function is given a call's name before the call is timed, and the call is then
    made once untimed, which wakes its threads and warms its weights. `wall` and `cpu` are clocks
    in seconds.
    """
    if rounds < 2:
        raise ValueError(f"rounds is {rounds}; quartiles need at least 2")
    names = list(calls)
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        if settle is not None:
            settle(name)
        for _ in range(warmup):
            call()
        once, _ = _timed(call, 1, wall, cpu)
        repeats[name] = max(1, math.ceil(least / max(once, 1e-7)))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    cores: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in names if i % 2 == 0 else reversed(names):
            if settle is not None:
                settle(name)
                calls[name]()
            elapsed, busy = _timed(calls[name], repeats[name], wall, cpu)
            seconds[name].append(elapsed)
            cores[name].append(busy)
    return Comparison({n: Timing(tuple(seconds[n]), tuple(cores[n])) for n in calls})


def idle(limit: float = 10.0, step: float = 0.012) -> None:
    """Waits until no thread of this process works, for `limit` seconds at most.

    Pools spin on after a call, and would take a core from the next one's: on this project's
    machines TBB's for 1 ms, OpenMP's for 10 ms, ONNX Runtime's for 50 ms. Raises RuntimeError if
    one is still at it after `limit`. A `step` is longer than a tick of the kernel (10 ms at most):
    the process's clock counts threads on other cores only at ticks.
    """
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(step)
        if time.process_time() - before < step / 4:
            return
    raise RuntimeError(f"a thread of this process is still busy after {limit} s")


def other_programs() -> Callable[[], float]:
    """Starts a watch; what it returns says how many cores other programs have used since.

    Nobody else's work shows in a process's own clocks, and it spoils what runs on all cores most: a
    thread that lost its core keeps all others waiting.
    """
    start, system, own = time.perf_counter(), _system_seconds(), time.process_time()

    def read() -> float:
        others = _system_seconds() - system - (time.process_time() - own)
        return max(0.0, others / (time.perf_counter() - start))

    return read


def _system_seconds() -> float:
    """Seconds that all cores have worked since the machine started, from proc(5)."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _timed(
    call: Callable[[], object],
    repeats: int,
    wall: Callable[[], float],
    cpu: Callable[[], float],
) -> tuple[float, float]:
    """Seconds a call, and cores busy."""
    cpu_start, start = cpu(), wall()
    for _ in range(repeats):
        call()
    elapsed = wall() - start
    return elapsed / repeats, (cpu() - cpu_start) / max(elapsed, 1e-9)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


# From linux/filter.h, seccomp.h, prctl.h, audit.h and asm/prctl.h.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # offsets in struct seccomp_data
_X86_64 = 0xC000003E  # AUDIT_ARCH_X86_64
_ARCH_PRCTL, _SECCOMP = 158, 317  # system calls on x86-64
_REQ_XCOMP_PERM, _XTILEDATA = 0x1023, 18  # ARCH_REQ_XCOMP_PERM; the state that AMX needs
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO (| errno)
_NO_NEW_PRIVS, _SET_FILTER, _ALL_THREADS = 38, 1, 1


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def without_amx() -> None:
    """From here on the kernel refuses this process AMX, as if the processor had none.

    A program must ask for AMX's tiles with `arch_prctl(ARCH_REQ_XCOMP_PERM)`; a seccomp filter
    answers EPERM, and ONNX Runtime falls back to its AVX512-VNNI kernels. There is no way back, and
    it must come before ONNX Runtime, OpenVINO and PyTorch are loaded: use it in a child process.

    Raises RuntimeError if it is too late, OSError if the kernel does not have seccomp.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise OSError(errno.ENOTSUP, "without_amx is for Linux on x86-64")
    if late := {"onnxruntime", "openvino", "torch"} & set(sys.modules):
        raise RuntimeError(f"{', '.join(sorted(late))} may have asked for AMX already")
    steps = (
        _Instruction(_LOAD, 0, 0, _ARCHITECTURE_AT),
        _Instruction(_JUMP_IF_EQUAL, 0, 5, _X86_64),
        _Instruction(_LOAD, 0, 0, _NUMBER_AT),
        _Instruction(_JUMP_IF_EQUAL, 0, 3, _ARCH_PRCTL),
        _Instruction(_LOAD, 0, 0, _ARGUMENT_AT),
        _Instruction(_JUMP_IF_EQUAL, 0, 1, _REQ_XCOMP_PERM),
        _Instruction(_RETURN, 0, 0, _FAIL | errno.EPERM),
        _Instruction(_RETURN, 0, 0, _ALLOW),
    )
    program = _Program(len(steps), (_Instruction * len(steps))(*steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    if libc.syscall(_SECCOMP, _SET_FILTER, _ALL_THREADS, ctypes.byref(program)) != 0:
        raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_SET_MODE_FILTER)")


def amx_granted() -> bool:
    """Whether the kernel lets this process use AMX (asking for it is what grants it)."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_ARCH_PRCTL, _REQ_XCOMP_PERM, _XTILEDATA) == 0)
