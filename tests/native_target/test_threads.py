"""Sessions of many kinds, many threads: always the bits of one thread, and no memory kept."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from tests import fresh
from tests.core.layers import random_layer
from tests.core.statement import Layer
from tests.graphs import FLOAT, normal, save
from tests.native_target.nodes import grouped_model, linear_model, opened, options_with

# Wide enough that two threads share the work, by rows and by columns.
LAYER = random_layer(768, 512, activation="gelu")
SHAPES = [(1, 1), (1, 7), (3, 32), (2, 65)]


def two_layers() -> onnx.ModelProto:
    """x -> Linear -> a and x -> GroupedLinear -> b, c, which may run side by side."""
    model = linear_model(LAYER, ["b", "s", 512], out=["b", "s", 768])
    grouped = grouped_model([random_layer(n, 512, seed=n) for n in (640, 33)], ["b", "s", 512])
    for name in ("y0", "y1"):
        output = helper.make_tensor_value_info(name, FLOAT, ["b", "s", None])
        model.graph.output.append(output)
    grouped.graph.node[0].name = "grouped"
    model.graph.node.extend(grouped.graph.node)
    model.graph.initializer.extend(grouped.graph.initializer)
    return model


def feeds() -> list[dict[str, np.ndarray]]:
    return [{"x": normal(*shape, 512)} for shape in SHAPES]


@pytest.fixture(scope="module")
def expected() -> list[list[np.ndarray]]:
    session = opened(two_layers(), threads=1)
    return [session.run(None, feed) for feed in feeds()]


def same(found: list[Any], expected: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


PARALLEL, PLAIN = ort.ExecutionMode.ORT_PARALLEL, ort.GraphOptimizationLevel.ORT_DISABLE_ALL
KINDS: dict[str, dict[str, Any]] = {
    "one": {"intra_op_num_threads": 1},
    "two": {},
    "four": {"intra_op_num_threads": 4},
    "as-many-as-there-are": {"intra_op_num_threads": 0},
    "no-spinning": {"session.intra_op.allow_spinning": "0"},
    "side-by-side": {"execution_mode": PARALLEL, "inter_op_num_threads": 2},
    "no-arena": {"enable_cpu_mem_arena": False},
    "no-memory-pattern": {"enable_mem_pattern": False},
    "no-optimization": {"graph_optimization_level": PLAIN},
}
"""Options of a session; with a dot in it, an entry of its configuration."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_session_gives_the_same_bits(
    kind: str, expected: list[list[np.ndarray]]
) -> None:
    options = options_with(threads=2)
    for name, value in KINDS[kind].items():
        if "." in name:
            options.add_session_config_entry(name, value)
        else:
            setattr(options, name, value)
    session = opened(two_layers(), options=options)
    for _ in range(5):
        for feed, wanted in zip(feeds(), expected, strict=True):
            assert same(session.run(None, feed), wanted)


def hammer(
    sessions: list[ort.InferenceSession], expected: list[list[np.ndarray]], threads: int, runs: int
) -> bool:
    """Whether `runs` runs of each of `threads` threads, which begin together, give `expected`."""
    given, start = feeds(), threading.Barrier(threads)

    def work(number: int) -> bool:
        start.wait()
        turns = [(sessions[(number + i) % len(sessions)], number * 7 + i) for i in range(runs)]
        return all(
            same(session.run(None, given[i % len(given)]), expected[i % len(given)])
            for session, i in turns
        )

    with ThreadPoolExecutor(threads) as pool:
        return all(pool.map(work, range(threads)))


def of_one_registration() -> list[ort.InferenceSession]:
    """Sessions outlive their options."""
    options = options_with(threads=2)
    return [opened(two_layers(), options=options) for _ in range(2)]


SESSIONS: dict[str, Callable[[], list[ort.InferenceSession]]] = {
    "one of one thread": lambda: [opened(two_layers(), 1)],
    "one of two threads": lambda: [opened(two_layers(), 2)],
    "two of one registration": of_one_registration,
    "of other numbers of threads": lambda: [opened(two_layers(), n) for n in (1, 2, 4)],
}


@pytest.mark.parametrize("sessions", SESSIONS)
def test_eight_threads_over_sessions(sessions: str, expected: list[list[np.ndarray]]) -> None:
    assert hammer(SESSIONS[sessions](), expected, 8, 30)


def test_sessions_open_and_close_beside_others_that_run(expected: list[list[np.ndarray]]) -> None:
    steady, over = opened(two_layers(), 2), threading.Event()

    def open_and_close() -> bool:
        found = []
        while not over.is_set():
            found.append(same(opened(two_layers(), 2).run(None, feeds()[1]), expected[1]))
        return all(found)

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(open_and_close)
        try:
            assert hammer([steady], expected, 4, 50)
        finally:
            over.set()
        assert others.result()


PINNED = """
import os, sys, threading, time
import numpy as np
import onnxruntime as ort
from octavo.onnx.session import session_options

options = session_options()
options.intra_op_num_threads = 2
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of the calling thread alone
me = threading.get_native_id()

def waits(thread):
    lines = open(f"/proc/self/task/{thread}/status").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))

def of_others():
    return sum(waits(t) for t in map(int, os.listdir("/proc/self/task")) if t != me)

x, before, end = np.ones((1, 512, 512), np.float32), of_others(), time.monotonic() + 60
while of_others() - before < 10 and time.monotonic() < end:
    session.run(None, {"x": x})
print(of_others() - before)
"""


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="this process may use one processor alone"
)
def test_a_caller_that_keeps_to_one_processor_has_the_others_work(tmp_path: Path) -> None:
    """The session's own threads may run elsewhere; what the caller may use says nothing of them.

    How much they get to do depends on what else the machine runs; that they are woken does not.
    """
    found = fresh.python(PINNED, save(two_layers(), tmp_path / "m.onnx")).stdout
    assert int(found) >= 10


def test_threads_that_all_sessions_share(tmp_path: Path, expected: list[list[np.ndarray]]) -> None:
    """Python has no call for it but this: sessions without threads of their own."""
    if not hasattr(ort, "set_global_thread_pool_sizes"):
        pytest.skip("this ONNX Runtime offers Python no global thread pools")
    path = save(two_layers(), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", feeds()[2]["x"], *expected[2])
    script = """
import sys
import numpy as np, onnxruntime as ort
from octavo.onnx.session import session_options
ort.set_global_thread_pool_sizes(2, 1)
options = session_options()
options.use_per_session_threads = False
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
with np.load(sys.argv[2]) as stored:
    x, *expected = (stored[f"arr_{i}"] for i in range(len(stored.files)))
for _ in range(50):
    for a, b in zip(session.run(None, {"x": x}), expected, strict=True):
        assert np.array_equal(a, b)
"""
    fresh.python(script, path, tmp_path / "x.npz")


def by_itself(script: str, *arguments: str | Path) -> str:
    """What a Python of its own, which has imported nothing before, prints."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, cwd=fresh.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


RESIDENT = """
import gc, os, sys
from pathlib import Path
import numpy as np
from tests.native_target.nodes import REFUSALS, opened, options_with

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

path, x = Path(sys.argv[1]), np.ones((3, 16, 256), np.float32)

def once(kind, session, options, i):
    if kind == "refused":
        try:
            session.run(None, {"x": np.ones((1, 1, 255), np.float32)})
        except REFUSALS:
            return
        raise SystemExit("it was not refused")
    if kind == "open":
        opened(path, options=options).run(None, {"x": x})
    elif kind == "register":
        opened(path, threads=1)
    else:
        session.run(None, {"x": x[:, : 1 + i % 16]})

def grown(kind, times, most):
    options = options_with(threads=2)
    options.enable_cpu_mem_arena = kind != "no-arena"
    session = opened(path, options=options)
    for i in range(times // 4):
        once(kind, session, options, i)
    # A leak grows in each round; what the allocators do on a busy machine does not.
    least = most
    for _ in range(4):
        before = resident()
        for i in range(times):
            once(kind, session, options, i)
        least = min(least, resident() - before)
        if least < most:
            break
    return least

for case in sys.argv[2:]:
    kind, times, most = case.split(",")
    if grown(kind, int(times), int(most)) >= int(most):
        raise SystemExit(f"{kind} keeps memory")
"""


KEPT_AT_MOST = {
    "run": (1000, 100),
    "refused": (1000, 200),
    # ONNX Runtime does not say when options are gone: a registration is kept, with its domain.
    "register": (60, 24_000),
    "no-arena": (4000, 100),
    "open": (120, 4_000),
}
"""How often each is done, and the bytes that each time may keep."""


@pytest.mark.parametrize(
    "kinds",
    [
        ["run", "refused", "register"],
        pytest.param(["no-arena", "open"], marks=pytest.mark.slow),
    ],
    ids=",".join,
)
def test_memory_does_not_grow(tmp_path: Path, kinds: list[str]) -> None:
    model = linear_model(random_layer(256, 256, activation="gelu"), ["b", "s", "k"])
    cases = []
    for kind in kinds:
        times, each = KEPT_AT_MOST[kind]
        # A page here and there is the allocators'; a session's arena or weight would be megabytes.
        cases.append(f"{kind},{times},{times * each + (1 << 18)}")
    by_itself(RESIDENT, save(model, tmp_path / "m.onnx", external="w"), *cases)


MAPPED = """
import sys
from pathlib import Path
import onnxruntime as ort
from octavo.onnx.session import session_options
def anonymous():
    fields = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(f.split()[1]) for f in fields if f.startswith("Anonymous:"))
before = anonymous()
session = ort.InferenceSession(sys.argv[1], session_options())
print((anonymous() - before) << 10)
"""


def test_a_weight_is_mapped_not_copied(tmp_path: Path) -> None:
    """A session over 64 MiB of external weights takes a fraction of that for itself."""
    layer = Layer(np.ones((8192, 8192), np.int8), np.ones(8192, np.float32))
    path = save(linear_model(layer, ["m", 8192]), tmp_path / "m.onnx", external="w")
    assert int(by_itself(MAPPED, path)) < 16 << 20
