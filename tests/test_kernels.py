"""Every instruction set gives the bits of `reference`, for every shape and number of threads."""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from octavo.core import kernels
from octavo.core.linear import Linear, linear_together
from tests.core.layers import packed, random_layer, random_rows
from tests.core.statement import assert_same_bits
from tests.core.tables import assert_all_same, on_reference

ROOT = Path(__file__).parents[1]
SMALL = range(1, 11)
EDGES = [15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257]


class Kind(NamedTuple):
    """What a layer may differ in besides its shape."""

    group: int = 0
    affine: bool = False
    activation: str = "none"
    residual: bool = False
    dtype: str = "float32"


KINDS = {
    "rows": Kind(),
    "rows-residual": Kind(residual=True),
    "rows-affine": Kind(affine=True, activation="gelu"),
    "float16": Kind(activation="tanh", residual=True, dtype="float16"),
    "groups": Kind(group=128, activation="silu"),
    "groups-residual": Kind(group=128, residual=True),
    "groups-affine": Kind(group=128, affine=True, residual=True),
    "bfloat16-groups": Kind(group=128, activation="gelu_tanh", dtype="bfloat16"),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
Shape = tuple[int, int, int]


@functools.cache
def layer_of(kind: Kind, k: int, n: int) -> Linear:
    return packed(
        random_layer(n, k, group=kind.group, affine=kind.affine, activation=kind.activation)
    )


def inputs_of(kind: Kind, shape: Shape) -> tuple[np.ndarray, np.ndarray | None]:
    m, k, n = shape
    dtype = ml_dtypes.bfloat16 if kind.dtype == "bfloat16" else np.dtype(kind.dtype)
    residual = random_rows(m, n).astype(dtype) if kind.residual else None
    return random_rows(m, k).astype(dtype), residual


def output(kind: Kind, shape: Shape, threads: int = 1) -> np.ndarray:
    x, residual = inputs_of(kind, shape)
    return layer_of(kind, *shape[1:])(x, residual, threads=threads)  # type: ignore[no-any-return]


@functools.cache
def reference(kind: Kind, shape: Shape) -> np.ndarray:
    return on_reference(lambda: output(kind, shape))  # type: ignore[no-any-return]


def check(kind: Kind, shapes: list[Shape], threads: int = 1) -> None:
    for shape in shapes:
        try:
            assert_same_bits(output(kind, shape, threads), reference(kind, shape))
        except AssertionError as error:
            raise AssertionError(f"{kernels.isa()}, M, K, N = {shape}: {error}") from error


# Enough work for more than one thread. Two threads share the first four out by columns, and in the
# first two each quantizes all rows for itself; the others they share by rows.
SHARED = [
    (1, 1500, 1000),
    (2, 1500, 517),
    (17, 700, 333),
    (63, 300, 200),
    (64, 300, 200),
    (131, 257, 129),
]
SHAPES: dict[str, list[Shape]] = {
    "small": list(itertools.product(SMALL, SMALL, SMALL)),
    "every K and N, with an M that runs through all": [
        (EDGES[i * 4 % len(EDGES)], k, n)
        for i, (k, n) in enumerate(itertools.product(EDGES, EDGES))
    ],
    "rows": [(m, 200, 100) for m in [*range(1, 36), 47, 48, 49, 64, 96, 97]],
    # Tiles take some groups at a time; a last one may be short, and of one tile.
    "groups": [(49, k, 40) for last in range(128, 1025, 128) for k in (last - 70, last)],
    # More than a megabyte, with fewer products than it takes to ask for it, and with more.
    "no cache holds the outputs": [(133, k, 2070) for k in (10, 60, 95, 97, 150)],
}
ALL_KINDS: list[Shape] = [
    *((2, k, 17) for k in (32_639, 32_641, 65_280, 65_281)),
    *[(50, 1, 1000), (100, 4, 100), (1, 3, 5000), (2000, 20, 5), (3000, 1, 1), (1, 2000, 1)],
]
EVERY = 1 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 4
"""Of SHAPES each kind takes every 4th from another first one; `make test-all` takes all."""


@every_kind
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_shapes(isa: str, kind: Kind, shapes: list[Shape]) -> None:
    check(kind, shapes[list(KINDS.values()).index(kind) % EVERY :: EVERY])


@every_kind
def test_deep_shallow_wide_and_tall(isa: str, kind: Kind) -> None:
    check(kind, ALL_KINDS)


@every_kind
def test_every_number_of_threads(isa: str, kind: Kind) -> None:
    check(kind, SHARED, threads=2)
    check(kind, SHARED[::2], threads=3)
    check(kind, SHARED[1::2], threads=7)
    check(Kind(affine=True), [(3, 70_000, 33), (65, 33_000, 5)], threads=3)


@pytest.mark.parametrize("kind", [KINDS["rows"], KINDS["groups-affine"]], ids=["rows", "groups"])
def test_threads_of_other_calls(isa: str, kind: Kind) -> None:
    """Layers over one input, and over integers."""
    kind = kind._replace(residual=False)
    for m, k, n in SHARED:
        layers, x = [layer_of(kind, k, n), layer_of(kind, k, 40)], inputs_of(kind, (m, k, n))[0]
        wanted = [reference(kind, (m, k, n)), on_reference(lambda: layers[1](x, threads=1))]  # noqa: B023
        assert_all_same(linear_together(layers, x, threads=2), wanted)
        given = kernels.quantize_rows(x, kind.group)
        assert_same_bits(layers[0].quantized(*given, threads=2), wanted[0])


@pytest.mark.parametrize(
    "activation", ["none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]
)
def test_activations(isa: str, activation: str) -> None:
    check(Kind(activation=activation), [(30, 100, 50), (1, 40_000, 3)])
    x = np.concatenate([s * np.geomspace(1e-45, 3e38, 9001) for s in (1, -1)]).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    bias = np.concatenate([x, special, np.linspace(-30, 30, 9001, dtype=np.float32)])
    # Without inputs a layer is the activation of its bias.
    layer = Linear.from_packed(packed(random_layer(bias.size, 0)).weight, bias, activation)
    nothing = np.empty((1, 0), np.float32)
    assert_same_bits(layer(nothing), on_reference(lambda: layer(nothing)))


@pytest.mark.parametrize("kind", [Kind(), Kind(group=128, affine=True)], ids=["rows", "groups"])
def test_rows_that_are_not_finite(isa: str, kind: Kind) -> None:
    for m, k, n in [(1, 64, 16), (7, 300, 40), (40, 129, 70), *SHARED]:
        layer, x = layer_of(kind, k, n), random_rows(m, k)
        x[m // 2, k // 3], x[0, k - 1] = np.inf, np.nan
        expected = on_reference(lambda: layer(x, threads=1))  # noqa: B023
        for threads in (1, 2):
            assert_same_bits(layer(x, threads=threads), expected)


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0xFFFFFFFF])
def test_one_value_that_is_not_finite_is_seen_wherever_it_lies(isa: str, bits: int) -> None:
    """Infinities and NaN of either sign, alone in each place of a row beside large numbers."""
    layer, k = layer_of(Kind(), 150, 16), 150
    x = np.tile(np.array([3e38, -3e38], np.float32), (k + 1, k // 2))
    x[np.arange(k), np.arange(k)] = np.uint32(bits).view(np.float32)
    y = layer(x / np.float32(1e6))
    assert np.isnan(y[:k]).all()
    assert np.isfinite(y[k]).all()


def test_threads_of_a_layer_that_does_not_say() -> None:
    before = kernels.num_threads()
    try:
        kernels.set_num_threads(3)
        assert kernels.num_threads() == 3
        check(Kind(), SHARED[:3], 0)
    finally:
        kernels.set_num_threads(before)
    with pytest.raises(ValueError, match="threads: 0"):
        kernels.set_num_threads(0)


def test_python_threads_call_at_once() -> None:
    shapes = [*SHARED, (5, 5, 5), (1, 64, 64), (2, 40_000, 5)]
    expected = {shape: reference(Kind(affine=True), shape) for shape in shapes}

    def work(i: int) -> None:
        for j in range(12):
            shape = shapes[(i + j) % len(shapes)]
            assert_same_bits(output(Kind(affine=True), shape, 1 + (i + j) % 3), expected[shape])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    libm = ctypes.CDLL("libm.so.6")
    before = libm.fegetround()
    assert libm.fesetround(mode) == 0
    try:
        yield
    finally:
        libm.fesetround(before)


@contextmanager
def flushing() -> Iterator[None]:
    if not X86:
        with flushing_by_libm():
            yield
        return
    import torch

    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def flushing_by_libm() -> Iterator[None]:
    """On aarch64: bit 24 of the control register, which is the first word of its fenv_t."""
    libm = ctypes.CDLL("libm.so.6")
    modes = (ctypes.c_uint32 * 2)()
    assert libm.fegetenv(modes) == 0
    before = modes[0]
    modes[0] |= 1 << 24
    assert libm.fesetenv(modes) == 0
    try:
        yield
    finally:
        modes[0] = before
        libm.fesetenv(modes)


X86 = platform.machine() in ("x86_64", "AMD64")
KNOWS_MODES = X86 or platform.machine() == "aarch64"
DOWN, UP, TO_ZERO = (0x400, 0x800, 0xC00) if X86 else (0x800000, 0x400000, 0xC00000)
MODES: dict[str, Callable[[], Any]] = {
    "down": lambda: rounding(DOWN),
    "up": lambda: rounding(UP),
    "to zero": lambda: rounding(TO_ZERO),
    "flush subnormals": flushing,
}


knows_modes = pytest.mark.skipif(
    not KNOWS_MODES, reason="the modes' numbers are x86-64's and aarch64's"
)


@knows_modes
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_the_hosts_modes_change_nothing(mode: Callable[[], Any]) -> None:
    for kind in KINDS.values():
        for m, k, n in [(5, 300, 40), (64, 150, 150), *([] if kind.group else [(2, 33_000, 5)])]:
            layer, (x, residual) = layer_of(kind, k, n), inputs_of(kind, (m, k, n))
            x = x * x.dtype.type(1e-3) if kind.dtype == "float32" else x
            plain, rows = layer(x, residual, threads=1), kernels.quantize_rows(x, kind.group)
            outs = [np.empty_like(plain) for _ in range(2)]
            with mode():
                for threads, out in enumerate(outs, 1):
                    layer(x, residual, out=out, threads=threads)
                again = kernels.quantize_rows(x, kind.group)
            assert_all_same([*outs, *again], [plain, plain, *rows])


@knows_modes
def test_subnormal_outputs_survive_flushing() -> None:
    weight = random_layer(40, 30, bias=False)
    tiny = type(weight)(weight.q, weight.scale * np.float32(1e-38))
    layer, x = packed(tiny), random_rows(9, 30)
    plain = layer(x)
    assert ((plain != 0) & (np.abs(plain) < np.finfo(np.float32).tiny)).any()
    out = np.empty_like(plain)
    with flushing():
        layer(x, out=out)
    assert_same_bits(out, plain)


PRELUDE = """
import json, os, sys
import numpy as np
from octavo.core import kernels
from octavo.core.linear import Linear
from tests.core.layers import packed, random_layer, random_rows
"""


def python(code: str, **environment: str) -> str:
    """Of a cold interpreter: the core without PyTorch, or with what OpenMP reads as it loads."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_environment_chooses_the_instruction_set() -> None:
    """Each child of one process makes its first call with another OCTAVO_ISA."""
    code = """
large = np.ones((2048, 2048), np.int8)  # for several threads
layer = lambda: packed(random_layer(17, 100))
x = random_rows(5, 100)

def first(name):
    os.environ["OCTAVO_ISA"] = name
    y = layer()(x)
    print(json.dumps([kernels.isa(), y.view(np.int32).tolist()]), flush=True)

def refused(name):
    os.environ["OCTAVO_ISA"] = name
    calls = kernels.isa, lambda: kernels.pack(large), layer, lambda: kernels.quantize_rows(x)
    for call in calls:
        try:
            call()
        except ValueError as error:
            print(json.dumps(str(error)), flush=True)
    kernels.use_isa("reference")
    layer()(x)

for name in (*sys.argv[1:], ""):
    child = os.fork()
    if not child:
        (refused if name == "sse9" else first)(name)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
assert "torch" not in sys.modules
"""
    names = kernels.isas()
    said = python(code.replace("sys.argv[1:]", repr((*names, "sse9"))))
    found = [json.loads(line) for line in said.splitlines()]
    refusals, (fastest, _) = found[len(names) : -1], found[-1]
    for name, (used, bits) in zip(names, found[: len(names)], strict=True):
        assert used == name
        assert bits == reference(Kind(), (5, 100, 17)).view(np.int32).tolist()
    assert refusals == [refusals[0]] * 4
    assert refusals[0].startswith("OCTAVO_ISA is 'sse9': this processor runs ")
    assert all(name in refusals[0] for name in names)
    assert fastest == names[0]
    for call in (kernels.use_isa, lambda name: kernels.peak_gops(name, 0.001)):
        with pytest.raises(ValueError, match=r"'neon9'.*reference"):
            call("neon9")


def test_our_pool_gives_the_same_bits_and_lives_through_forks() -> None:
    """Without PyTorch the threads are ours; a forked child makes its own."""
    code = """
import multiprocessing, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forking beside threads, which is the point
layer = packed(random_layer(600, 700, affine=True))
x = random_rows(64, 700)
one = layer(x, threads=1)
kernels.set_num_threads(2)
assert kernels.thread_backend() == "pool", kernels.thread_backend()
def same(_=None):
    return all(np.array_equal(layer(x[:m]), one[:m]) for m in (64, 63, 4, 64))
for name in kernels.isas():
    kernels.use_isa(name)
    assert same()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os._exit(0 if same() and same() else 1)
        assert same()
        assert os.waitpid(child, 0)[1] == 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(same, range(4)) == [True] * 4
assert "torch" not in sys.modules
print("ok")
"""
    assert python(code).strip() == "ok"


@pytest.mark.parametrize("most", ["2", pytest.param("1", marks=pytest.mark.slow)])
def test_beside_pytorch_the_threads_are_its_own(most: str) -> None:
    """However few of those that are asked for come."""
    pytest.importorskip("torch")
    code = """
import torch
torch.set_num_threads(2)
kernels.set_num_threads(2)
assert kernels.thread_backend() == "openmp", kernels.thread_backend()
layer = packed(random_layer(600, 700, affine=True))
x = random_rows(64, 700)
for m in (64, 63, 4):
    one = layer(x[:m], threads=1)
    for threads in (2, 3, 8):
        torch.randn(300, 300) @ torch.randn(300, 300)
        assert np.array_equal(layer(x[:m], threads=threads), one)
print("ok")
"""
    assert python(code, OMP_THREAD_LIMIT=most).strip() == "ok"


FIRST_CALLS = {
    "linear": """
from octavo.core.linear import Linear
Linear.from_float(ones(64, 64), ones(64))(ones(4, 64))
""",
    "half linear": """
from octavo.core.half_linear import HalfLinear
HalfLinear.from_float(ones(64, 64), ones(64))(ones(4, 64))
""",
    "LSTM": """
from octavo.core.recurrent import Lstm
weights = [ones(256, 64), ones(256, 64), ones(256), ones(256)]
Lstm.from_float(weights, hidden_size=64)(ones(9, 1, 64))
""",
    "embedding": """
from octavo.core.embedding import Embedding
Embedding.from_float(ones(64, 64))(np.arange(9))
""",
    "convolution": """
from octavo.core.convolution import Conv2d
Conv2d.from_float(ones(16, 16, 3, 3), ones(16))(ones(1, 16, 9, 9))
""",
}


@pytest.mark.real_time
@pytest.mark.parametrize("first_call", FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_import_and_first_call_take_less_than_50_ms(
    compiled: dict[str, str], first_call: str
) -> None:
    """Of processor time, beyond numpy's own: other programs may be busy."""
    code = f"""
import time
import numpy as np
def ones(*shape):
    return np.ones(shape, np.float32)
start = time.process_time()
from octavo.core import kernels
{first_call}
print(time.process_time() - start)
"""
    times: list[float] = []
    while min(times, default=1.0) >= 0.05 and len(times) < 6:
        run = [sys.executable, "-c", code]
        times.append(float(subprocess.check_output(run, text=True, cwd=ROOT, env=compiled)))
    assert min(times) < 0.05, times


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose modules stay compiled, as those of an installed package are."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("compiled"))}


ONE_TEST = """
import pytest

def test_kernel(isa):
    if isa in {skipped!r}:
        pytest.skip("left out")
"""


def run_of(folder: Path, test: str, *workers: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest beside this suite's conftest, of one test file."""
    (folder / "tests").mkdir()
    for name, to in {"conftest.py": "conftest.py", "seconds.py": "tests/seconds.py"}.items():
        (folder / to).write_bytes((ROOT / "tests" / name).read_bytes())
    (folder / "test_one.py").write_text(test)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | environment,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forgotten", "workers"),
    [([], []), (["reference"], []), (["reference"], ["-p", "xdist", "-n", "1"])],
    ids=["all ran", "one forgotten", "one forgotten by a worker"],
)
def test_a_run_that_leaves_an_instruction_set_out_fails(
    tmp_path: Path, forgotten: list[str], workers: list[str]
) -> None:
    done = run_of(tmp_path, ONE_TEST.format(skipped=forgotten), *workers)
    ran = ", ".join(name for name in kernels.isas() if name not in forgotten) or "none"
    assert f"kernel instruction sets run: {ran}; absent on this CPU: " in done.stdout
    message = "FAILED: this CPU has reference, and no kernel test ran on it"
    assert (done.returncode, message in done.stdout) == (len(forgotten), bool(forgotten))


def test_a_run_fails_where_octavo_does_not_find_what_the_processor_has(tmp_path: Path) -> None:
    lost = kernels.isas()[0]
    if lost == "reference":
        pytest.skip("NOT TESTED: this processor has no instruction set that could be lost")
    blind = f"from octavo.core import kernels\nkernels.isas = lambda: {kernels.isas()[1:]!r}\n"
    done = run_of(tmp_path, blind + ONE_TEST.format(skipped=[]))
    assert f"FAILED: this CPU has {lost}, and no kernel test ran on it" in done.stdout
    assert done.returncode == 1
