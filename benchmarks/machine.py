"""The machine under a benchmark: what other programs use of it, and a process without AMX."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import time
from collections.abc import Callable


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
