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

import numpy as np
import pytest

from octavo.core import kernels
from octavo.core.linear import Linear, linear_together
from tests.core.layers import packed, random_layer, random_rows
from tests.core.statement import assert_same_bits

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
    "groups": Kind(group=128, activation="silu"),
    "groups-residual": Kind(group=128, residual=True),
    "groups-affine": Kind(group=128, affine=True, residual=True),
    "float16": Kind(activation="tanh", residual=True, dtype="float16"),
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
    import ml_dtypes

    m, k, n = shape
    dtype = ml_dtypes.bfloat16 if kind.dtype == "bfloat16" else np.dtype(kind.dtype)
    residual = random_rows(m, n).astype(dtype) if kind.residual else None
    return random_rows(m, k).astype(dtype), residual


def output(kind: Kind, shape: Shape, threads: int = 1) -> np.ndarray:
    x, residual = inputs_of(kind, shape)
    return layer_of(kind, *shape[1:])(x, residual, threads=threads)  # type: ignore[no-any-return]


@functools.cache
def reference(kind: Kind, shape: Shape) -> np.ndarray:
    used = kernels.isa()
    kernels.use_isa("reference")
    y = output(kind, shape)
    kernels.use_isa(used)
    return y


def check(kind: Kind, shapes: list[Shape], threads: int = 1) -> None:
    for shape in shapes:
        try:
            assert_same_bits(output(kind, shape, threads), reference(kind, shape))
        except AssertionError as error:
            raise AssertionError(f"{kernels.isa()}, M, K, N = {shape}: {error}") from error


# --- shapes ---


@every_kind
def test_small_shapes(isa: str, kind: Kind) -> None:
    check(kind, list(itertools.product(SMALL, SMALL, SMALL)))


@every_kind
def test_powers_of_two_and_their_neighbours(isa: str, kind: Kind) -> None:
    """Every K and N, with an M that runs through all."""
    pairs = itertools.product(EDGES, EDGES)
    check(kind, [(EDGES[i * 4 % len(EDGES)], k, n) for i, (k, n) in enumerate(pairs) if i % 2])


@every_kind
def test_every_number_of_rows(isa: str, kind: Kind) -> None:
    check(kind, [(m, 200, 100) for m in [*range(1, 36), 47, 48, 49, 64, 96, 97]])


@every_kind
def test_every_number_of_groups(isa: str, kind: Kind) -> None:
    """Tiles take some groups at a time; a last one may be short, and of one tile."""
    check(kind, [(49, k, 40) for last in range(128, 1025, 128) for k in (last - 70, last)])


@every_kind
@pytest.mark.parametrize("k", [32_639, 32_640, 32_641, 65_280, 65_281, 200_000])
def test_deep(isa: str, kind: Kind, k: int) -> None:
    check(kind, [(3, k, 17)] if k < 200_000 else [(2, k, 5)])


@every_kind
def test_shallow_wide_and_tall(isa: str, kind: Kind) -> None:
    check(
        kind,
        [(50, 1, 1000), (100, 4, 100), (1, 3, 5000), (2000, 20, 5), (3000, 1, 1), (1, 2000, 1)],
    )


@every_kind
def test_outputs_that_no_cache_holds(isa: str, kind: Kind) -> None:
    """More than a megabyte, with fewer products than it takes to ask for it, and with more."""
    check(kind, [(133, k, 2070) for k in (10, 60, 95, 97, 150)])


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
    found = layer(np.empty((1, 0), np.float32))
    kernels.use_isa("reference")
    expected = layer(np.empty((1, 0), np.float32))
    kernels.use_isa(isa)
    assert_same_bits(found, expected)


def test_rows_that_are_not_finite(isa: str) -> None:
    for kind in (Kind(), Kind(group=128, affine=True)):
        for m, k, n in [(1, 64, 16), (7, 300, 40), (40, 129, 70), *SHARED]:
            layer, x = layer_of(kind, k, n), random_rows(m, k)
            x[m // 2, k // 3], x[0, k - 1] = np.inf, np.nan
            found = [layer(x, threads=threads) for threads in (1, 2)]
            kernels.use_isa("reference")
            expected = layer(x, threads=1)
            kernels.use_isa(isa)
            for y in found:
                assert_same_bits(y, expected)


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0xFFFFFFFF])
def test_one_value_that_is_not_finite_is_seen_wherever_it_lies(isa: str, bits: int) -> None:
    """Infinities and NaN of either sign, alone in each place of a row beside large numbers."""
    layer, k = layer_of(Kind(), 150, 16), 150
    x = np.tile(np.array([3e38, -3e38], np.float32), (k + 1, k // 2))
    x[np.arange(k), np.arange(k)] = np.uint32(bits).view(np.float32)
    y = layer(x / np.float32(1e6))
    assert np.isnan(y[:k]).all()
    assert np.isfinite(y[k]).all()


# --- threads ---

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


@every_kind
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_every_number_of_threads(isa: str, kind: Kind, threads: int) -> None:
    check(kind, SHARED, threads)


@pytest.mark.parametrize("threads", [2, 3])
@every_kind
def test_threads_of_other_calls(isa: str, kind: Kind, threads: int) -> None:
    """Layers over one input, and over integers."""
    for m, k, n in SHARED:
        layers, x = [layer_of(kind, k, n), layer_of(kind, k, 40)], inputs_of(kind, (m, k, n))[0]
        one = linear_together(layers, x, threads=1)
        for found, wanted in zip(linear_together(layers, x, threads=threads), one, strict=True):
            assert_same_bits(found, wanted)
        given = kernels.quantize_rows(x, kind.group)
        found = layers[0].quantized(*given, threads=threads)
        assert_same_bits(found, layers[0].quantized(*given, threads=1))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_of_deep_rows(isa: str, threads: int) -> None:
    check(Kind(affine=True), [(3, 70_000, 33), (65, 33_000, 5)], threads)


def test_threads_of_a_layer_that_does_not_say(isa: str) -> None:
    kernels.set_num_threads(3)
    assert kernels.num_threads() == 3
    check(Kind(), SHARED[:3], 0)
    with pytest.raises(ValueError, match="threads: 0 must be at least 1"):
        kernels.set_num_threads(0)


def test_python_threads_call_at_once(isa: str) -> None:
    shapes = [*SHARED, (5, 5, 5), (1, 64, 64), (2, 40_000, 5)]
    expected = {shape: reference(Kind(affine=True), shape) for shape in shapes}

    def work(i: int) -> None:
        for j in range(12):
            shape = shapes[(i + j) % len(shapes)]
            assert_same_bits(output(Kind(affine=True), shape, 1 + (i + j) % 3), expected[shape])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


# --- the host's floating-point modes ---


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


@pytest.mark.skipif(not KNOWS_MODES, reason="the modes' numbers are x86-64's and aarch64's")
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_hosts_modes_change_nothing(isa: str, mode: Callable[[], Any], threads: int) -> None:
    for kind in KINDS.values():
        deep = [] if kind.group else [(2, 33_000, 5)]
        for m, k, n in [(5, 300, 40), (64, 150, 150), *deep]:
            layer = layer_of(kind, k, n)
            x, residual = inputs_of(kind, (m, k, n))
            x = x * x.dtype.type(1e-3) if kind.dtype == "float32" else x
            plain = layer(x, residual, threads=1)
            rows = kernels.quantize_rows(x, kind.group)
            out = np.empty_like(plain)
            with mode():
                layer(x, residual, out=out, threads=threads)
                again = kernels.quantize_rows(x, kind.group)
            assert_same_bits(out, plain)
            for a, b in zip(again, rows, strict=True):
                assert_same_bits(a, b)


@pytest.mark.skipif(not KNOWS_MODES, reason="the modes' numbers are x86-64's and aarch64's")
def test_subnormal_outputs_survive_flushing(isa: str) -> None:
    weight = random_layer(40, 30, bias=False)
    tiny = type(weight)(weight.q, weight.scale * np.float32(1e-38))
    layer, x = packed(tiny), random_rows(9, 30)
    plain = layer(x)
    assert ((plain != 0) & (np.abs(plain) < np.finfo(np.float32).tiny)).any()
    out = np.empty_like(plain)
    with flushing():
        layer(x, out=out)
    assert_same_bits(out, plain)


# --- processes ---

PRELUDE = """
import json, os, sys
import numpy as np
from octavo.core import kernels
from octavo.core.linear import Linear
from tests.core.layers import packed, random_layer, random_rows
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_environment_chooses_the_instruction_set(isa: str) -> None:
    code = """
assert "torch" not in sys.modules
y = packed(random_layer(17, 100))(random_rows(5, 100))
print(json.dumps([kernels.isa(), y.view(np.int32).tolist()]))
"""
    name, bits = json.loads(python(code, OCTAVO_ISA=isa))
    assert name == isa
    assert bits == reference(Kind(), (5, 100, 17)).view(np.int32).tolist()


def test_an_instruction_set_that_is_not_there_is_an_error_that_lists_what_is() -> None:
    code = """
x = random_rows(5, 100)
large = np.ones((2048, 2048), np.int8)  # for several threads
layer = lambda: packed(random_layer(17, 100))
for call in (kernels.isa, lambda: kernels.pack(large), layer, lambda: kernels.quantize_rows(x)):
    try:
        call()
    except ValueError as error:
        print(error)
kernels.use_isa("reference")
layer()(x)
"""
    said = python(code, OCTAVO_ISA="sse9").splitlines()
    assert len(said) == 4
    assert set(said) == {said[0]}
    assert said[0].startswith("OCTAVO_ISA is 'sse9': this processor runs ")
    assert all(name in said[0] for name in kernels.isas())
    with pytest.raises(ValueError, match=r"is 'neon9': this processor runs .*reference"):
        kernels.use_isa("neon9")
    with pytest.raises(ValueError, match=r"is 'neon9': this processor runs .*reference"):
        kernels.peak_gops("neon9", 0.001)
    assert python("print(kernels.isa())", OCTAVO_ISA="").strip() == kernels.isas()[0]


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


@pytest.mark.parametrize("most", ["8", "2", "1"])
def test_beside_pytorch_the_threads_are_its_own(most: str) -> None:
    """However many of those that are asked for come."""
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
def test_import_and_first_call_take_less_than_50_ms(tmp_path: Path, first_call: str) -> None:
    """Of processor time, beyond numpy's own: other programs may be busy. Compiled, as installed."""
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
    run = [sys.executable, "-c", code]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    times = [
        float(subprocess.check_output(run, text=True, cwd=ROOT, env=environment)) for _ in range(6)
    ]
    assert min(times) < 0.05, times


# --- the run says what ran ---

ONE_TEST = """
import pytest

def test_kernel(isa):
    if isa in {skipped!r}:
        pytest.skip("left out")
"""


@pytest.mark.parametrize(
    ("forgotten", "workers"),
    [([], []), (["reference"], []), (["reference"], ["-p", "xdist", "-n", "2"])],
    ids=["all ran", "one forgotten", "one forgotten by workers"],
)
def test_a_run_that_leaves_an_instruction_set_out_fails(
    tmp_path: Path, forgotten: list[str], workers: list[str]
) -> None:
    (tmp_path / "conftest.py").write_bytes((ROOT / "tests/conftest.py").read_bytes())
    (tmp_path / "test_one.py").write_text(ONE_TEST.format(skipped=forgotten))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    ran = ", ".join(name for name in kernels.isas() if name not in forgotten) or "none"
    assert f"kernel instruction sets run: {ran}; absent on this CPU: " in done.stdout
    message = "FAILED: this CPU has reference, and no kernel test ran on it"
    assert (done.returncode, message in done.stdout) == (len(forgotten), bool(forgotten))


def test_a_run_fails_where_octavo_does_not_find_what_the_processor_has(tmp_path: Path) -> None:
    lost = kernels.isas()[0]
    if lost == "reference":
        pytest.skip("NOT TESTED: this processor has no instruction set that could be lost")
    (tmp_path / "conftest.py").write_bytes((ROOT / "tests/conftest.py").read_bytes())
    blind = f"from octavo.core import kernels\nkernels.isas = lambda: {kernels.isas()[1:]!r}\n"
    (tmp_path / "test_one.py").write_text(blind + ONE_TEST.format(skipped=[]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    assert f"FAILED: this CPU has {lost}, and no kernel test ran on it" in done.stdout
    assert done.returncode == 1
