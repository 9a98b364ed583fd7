"""Kernel tests run on every instruction set, and a run says which; leaving one out is a failure.

A test that takes the fixture `isa` runs once for each known set, with it in use.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples in each run: what passes on one machine passes on the next. `make test-all`
# draws new ones, to find what no run has seen yet.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False)
settings.load_profile(os.environ.get("OCTAVO_EXAMPLES", "same"))

# A shell starts what it puts in the background deaf to Ctrl-C, which tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Jobs of more threads than this machine may have processors, as if it had enough of them.
os.environ.setdefault("OCTAVO_PROCESSORS", "64")

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = {*AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq"}
VNNI = {*AVX512, "avx512_vnni"}
KNOWN = {
    "amx": {*VNNI, "amx_tile", "amx_int8"},
    "avx512vnni": VNNI,
    "avxvnni": {*AVX2, "avx_vnni"},
    "avx512vnni256": VNNI,
    "avx512": AVX512,
    "avx2": AVX2,
    "reference": set[str](),
}
if platform.machine() in ("aarch64", "arm64"):
    KNOWN = {
        "neon_i8mm": {"asimd", "asimddp", "i8mm"},
        "neon": {"asimd", "asimddp"},
        "neon_mull": {"asimd"},
        "reference": set[str](),
    }
"""Every set that some processor of this architecture has, by the flags that Linux gives it; what
this one lacks is skipped."""

pytest_plugins = ["tests.seconds"]

RAN = pytest.StashKey[set[str]]()
COLLECTED = pytest.StashKey[bool]()


def available() -> tuple[str, ...]:
    """What this processor runs; of that, what OCTAVO_TEST_ISAS names, if it is set."""
    from octavo.core import kernels

    return tuple(filter(_wanted, kernels.isas()))


def _wanted(name: str) -> bool:
    only = os.environ.get("OCTAVO_TEST_ISAS", "").split()
    return not only or name in only


def has() -> list[str]:
    """What this processor has by the system's word: Octavo may fail to find it."""
    cpuinfo = Path("/proc/cpuinfo")
    if sys.platform == "darwin":
        return [name for name, needs in KNOWN.items() if needs <= _of_macos()]
    flags = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    if platform.machine() == "aarch64":  # where an emulator shows its own processor's file
        flags |= _of_auxiliary_vector()
    return [name for name, needs in KNOWN.items() if needs <= flags and _wanted(name)]


def _of_auxiliary_vector() -> set[str]:
    """The flags that Linux gives each process on ARM, by bits of asm/hwcap.h."""
    ask = ctypes.CDLL(None).getauxval
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    first, second = ask(16), ask(26)  # AT_HWCAP, AT_HWCAP2
    bits = {"asimd": first >> 1, "asimddp": first >> 20, "i8mm": second >> 13}
    return {flag for flag, bit in bits.items() if bit & 1}


def _of_macos() -> set[str]:
    """The flags of a Mac of ARM by Linux's names; of another nothing is known."""
    named = {"asimd": "AdvSIMD", "asimddp": "arm.FEAT_DotProd", "i8mm": "arm.FEAT_I8MM"}
    ask = ["sysctl", "-n", *(f"hw.optional.{name}" for name in named.values())]
    told = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
    return {flag for flag, has in zip(named, told, strict=False) if has == "1"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "isa" in metafunc.fixturenames:
        metafunc.parametrize("isa", dict.fromkeys([*available(), *KNOWN]), indirect=True)


@pytest.fixture(autouse=True)
def _idle(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run beside each other; what they time is told, as on a machine of their own."""
    if request.node.get_closest_marker("real_time") is None:
        monkeypatch.setattr("octavo.measure.waiting.waited", float)


@pytest.fixture
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an instruction set, which kernels use during the test."""
    from octavo.core import kernels

    name = str(request.param)
    if name not in available():
        pytest.skip(f"NOT TESTED on {name}: this processor runs {', '.join(kernels.isas())}")
    before, threads = kernels.isa(), kernels.num_threads()
    kernels.use_isa(name)
    yield name
    used = kernels.isa()
    kernels.use_isa(before)
    kernels.set_num_threads(threads)
    assert used == name, f"a test of {name} left {used} in use"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: object) -> Iterator[Any]:
    """Takes down the instruction set of a test whose body came to its end."""
    outcome = yield
    report = outcome.get_result()
    if "isa" in getattr(item, "fixturenames", ()) and report.when == "call" and report.passed:
        item.config.stash[RAN].add(str(item.callspec.params["isa"]))  # type: ignore[attr-defined]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RAN] = set()
    config.stash[COLLECTED] = False


SATURATES = "NOT TESTED: without VNNI ONNX Runtime cannot run this portable file exactly"


def _saturates() -> bool:
    """Whether a portable file needs `session.x64quantprecision` here.

    ONNX Runtime 1.32 leaves bodies of If, Loop and Scan out of that, and refuses a weight that two
    products read. `octavo.onnx.session` opens such a file all the same; sessions that others open
    do not.
    """
    from octavo.core.cpu import saturates
    from octavo.core.kernels import cpu_features

    return saturates(cpu_features())


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is too slow each time is too slow; what is so once was disturbed."""
    seen: Counter[str] = Counter()
    saturating = _saturates()
    for item in items:
        if (vnni := item.get_closest_marker("vnni")) and saturating:
            case = item.nodeid.partition("[")[2]
            if not vnni.args or any(part in case for part in vnni.args):
                item.add_marker(pytest.mark.skip(reason=SATURATES))
        if item.get_closest_marker("real_time"):
            item.add_marker(
                pytest.mark.flaky(reruns=4, reruns_delay=3, only_rerun="AssertionError")
            )
        if sweep := item.get_closest_marker("sweep"):
            function = item.nodeid.partition("[")[0]
            if seen[function] % sweep.args[0]:
                item.add_marker("slow")
            seen[function] += 1


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    config.stash[COLLECTED] = any("isa" in getattr(i, "fixturenames", ()) for i in session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Takes over what a worker of pytest-xdist has run."""
    found = getattr(node, "workeroutput", {})
    node.config.stash[RAN].update(found.get("kernel_isas", ()))
    node.config.stash[COLLECTED] |= found.get("kernel_tests", False)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["kernel_isas"] = sorted(config.stash[RAN])
        output["kernel_tests"] = config.stash[COLLECTED]
    elif missing(config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def missing(config: pytest.Config) -> list[str]:
    """What this processor has and no test ran, in a run that was not narrowed to some tests."""
    narrowed = config.option.keyword or config.option.collectonly or config.option.quick
    if narrowed or any("::" in str(arg) for arg in config.args) or not config.stash[COLLECTED]:
        return []
    expected = dict.fromkeys([*has(), *available()])
    return [name for name in expected if name not in config.stash[RAN]]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.stash[COLLECTED]:
        return
    have = available()
    ran = [name for name in have if name in config.stash[RAN]]
    absent = [name for name in KNOWN if name not in have]
    terminalreporter.write_line(
        f"kernel instruction sets run: {', '.join(ran) or 'none'}; "
        f"absent on this CPU: {', '.join(absent) or 'none'}"
    )
    for name in missing(config):
        terminalreporter.write_line(
            f"FAILED: this CPU has {name}, and no kernel test ran on it", red=True
        )
