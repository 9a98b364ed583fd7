"""Convolutions against a float64 statement of their definition, and their arguments."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from octavo.core import kernels
from octavo.core.convolution import Conv1d, Conv2d, PackedFilters, Window, pack_filters
from octavo.core.kernels import quantize_weight, unpack
from octavo.core.qparams import Grid, QType
from tests.core import statement
from tests.core.statement import ACTIVATIONS, assert_same_bits, assert_states


@dataclass(frozen=True)
class Case:
    """A layer and an input; pads are top, left, bottom, right."""

    n: int = 1
    c: int = 1
    o: int = 1
    size: tuple[int, int] = (5, 5)
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    pool: tuple[int, int] = (1, 1)
    bias: bool = True
    activation: str = "none"

    def random(self) -> np.random.Generator:
        return np.random.default_rng([self.n, self.c, self.o, *self.size, *self.kernel])

    def x(self) -> np.ndarray:
        """Images of sizes over six decades, every third of one sign."""
        r = self.random()
        x = r.standard_normal((self.n, self.c, *self.size)) * 10 ** r.uniform(
            -3, 3, (self.n, 1, 1, 1)
        )
        x[::3] = np.abs(x[::3])
        return x.astype(np.float32)

    def w(self) -> np.ndarray:
        r = self.random()
        shape = (self.o, self.c // self.groups, *self.kernel)
        return (r.standard_normal(shape) * 10 ** r.uniform(-2, 1, (self.o, 1, 1, 1))).astype(
            np.float32
        )

    def b(self) -> np.ndarray | None:
        return self.random().standard_normal(self.o).astype(np.float32) if self.bias else None

    def layer(self) -> Conv2d:
        return Conv2d.from_float(
            self.w(),
            self.b(),
            stride=self.stride,
            padding=self.pads,
            dilation=self.dilation,
            groups=self.groups,
            pool=self.pool,
            activation=self.activation,
        )

    def expected(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The outputs in float64 and how far float32 may be from them: image by image as a linear
        layer over windows of its integers, all with the image's scale and zero point."""
        w = quantize_weight(self.w(), Grid.of(QType.INT8, symmetric=True), 0)
        b = self.b()
        q, scale, zero = statement.quantize_rows(x.reshape(self.n, -1))
        top, left, bottom, right = self.pads
        pads = ((0, 0), (top, bottom), (left, right))
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        found = []
        for i, image in enumerate(q.reshape(x.shape)):
            padded = np.pad(image, pads, constant_values=int(zero[i, 0]))
            every = sliding_window_view(padded, spans, (1, 2))
            every = every[
                :, :: self.stride[0], :: self.stride[1], :: self.dilation[0], :: self.dilation[1]
            ]
            sizes = every.shape[1:3]
            for g in range(self.groups):
                own, filters = (
                    np.s_[g * m // self.groups : (g + 1) * m // self.groups]
                    for m in (self.c, self.o)
                )
                rows = every[own].transpose(1, 2, 0, 3, 4).reshape(sizes[0] * sizes[1], -1)
                part = statement.Layer(
                    w.q[filters].reshape(self.o // self.groups, -1),
                    w.qparams.scale[filters],
                    bias=None if b is None else b[filters],
                    activation=self.activation,
                )
                count = (len(rows), 1)
                y, error = part(rows, np.full(count, scale[i]), np.full(count, zero[i]))
                found.append([a.T.reshape(-1, *sizes) for a in (y, error)])
        y, error = (
            np.concatenate(a).reshape(self.n, self.o, *sizes) for a in zip(*found, strict=True)
        )
        return pooled(y, self.pool), pooled(error, self.pool)


def pooled(y: np.ndarray, pool: tuple[int, int]) -> np.ndarray:
    """The largest of each pool[0] x pool[1] that lie side by side in [N, O, H, W]."""
    h, w = (size // p for size, p in zip(y.shape[2:], pool, strict=True))
    whole = y[:, :, : h * pool[0], : w * pool[1]]
    return whole.reshape(*y.shape[:2], h, pool[0], w, pool[1]).max((3, 5))


PAIRS = [(1, 1), (2, 1), (1, 3), (3, 2)]
PADS = [(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 1, 3)]
CASES = [
    Case(),
    Case(n=2, c=3, o=5, size=(7, 9), kernel=(3, 3), pads=(1, 1, 1, 1)),
    Case(c=64, o=64, size=(28, 28), kernel=(3, 3), pads=(1, 1, 1, 1)),
    Case(c=64, o=48, size=(17, 19)),
    Case(n=3, c=70, o=33, size=(6, 5), bias=False),
    Case(c=16, o=130, size=(9, 40), kernel=(1, 5), stride=(1, 2), pads=(0, 2, 0, 2)),
    Case(c=128, o=16, size=(8, 8), kernel=(2, 2), stride=(2, 2)),
    Case(c=12, o=8, size=(13, 12), kernel=(3, 2), dilation=(2, 3), pads=(2, 0, 1, 4), groups=4),
    Case(c=1, o=7, size=(20, 20), kernel=(23, 24), pads=(5, 5, 5, 5)),  # too long for float sums
    Case(n=2, c=24, o=24, size=(14, 35), kernel=(3, 3), pads=(1, 1, 1, 1), groups=24),
    Case(c=6, o=12, size=(15, 70), kernel=(5, 4), stride=(2, 3), pads=(2, 0, 1, 3), groups=6),
    Case(c=6, o=6, size=(15, 70), kernel=(5, 4), stride=(3, 3), dilation=(1, 2), groups=6),
    Case(c=5, o=5, size=(9, 17), kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1), groups=5),
    Case(c=3, o=3, size=(12, 18), kernel=(3, 3), stride=(2, 1), dilation=(2, 2), groups=3),
    Case(c=3700, o=20, size=(4, 5), kernel=(3, 3), pads=(1, 1, 1, 1)),  # too long for int32 sums
    Case(c=2, o=3, size=(0, 3), kernel=(2, 2), pads=(1, 1, 2, 0)),  # padding alone
    Case(n=2, c=32, o=64, size=(14, 15), kernel=(3, 3), pads=(1, 1, 1, 1), pool=(2, 2)),
    Case(c=20, o=70, size=(9, 300), pool=(2, 3)),  # a row and its pools are more than a block
    Case(n=3, c=12, o=10, size=(9, 23), kernel=(3, 2), stride=(1, 2), groups=2, pool=(1, 4)),
    Case(c=3700, o=20, size=(4, 5), kernel=(3, 3), pool=(2, 1), activation="gelu"),
    Case(n=2, c=4, o=17, size=(17, 19), kernel=(2, 2), pool=(8, 8), activation="relu"),
]  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES, ids=str)


# --- the numbers ---


@every_case
def test_a_convolution_computes_what_is_defined(isa: str, case: Case) -> None:
    x = case.x()
    assert_states(case.layer()(x), case.expected(x))


@pytest.mark.parametrize("groups", [1, 2, 8], ids=["one", "grouped", "depthwise"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(isa: str, activation: str, groups: int) -> None:
    case = Case(c=8, o=24, size=(6, 21), kernel=(3, 2), groups=groups, activation=activation)
    x = case.x()
    assert_states(case.layer()(x), case.expected(x))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pair = st.tuples(st.integers(1, 4), st.integers(1, 4))
    kernel, dilation = draw(pair), draw(pair)
    groups = draw(st.sampled_from([1, 1, 2, 3, 17]))
    depthwise = draw(st.booleans())
    pads = draw(st.tuples(*[st.integers(0, 5)] * 4))
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    channels, stride = 1 if depthwise else draw(st.integers(1, 40)), draw(pair)
    pool = (1, 1) if channels == 1 else draw(st.sampled_from([(1, 1), (2, 2), (1, 2), (3, 2)]))
    spans = [span + s * (p - 1) for span, s, p in zip(spans, stride, pool, strict=True)]
    least = [max(0, span - pads[i] - pads[i + 2]) for i, span in enumerate(spans)]
    return Case(
        n=draw(st.integers(1, 3)),
        c=groups * channels,
        o=groups * draw(st.sampled_from([1, 2, 15, 16, 17, 65])),
        size=(least[0] + draw(st.integers(0, 20)), least[1] + draw(st.integers(0, 70))),
        kernel=kernel,
        stride=stride,
        pads=pads,  # type: ignore[arg-type]
        dilation=dilation,
        groups=groups,
        pool=pool,
        bias=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases())
def test_every_table_and_number_of_threads_gives_the_same_bits(case: Case) -> None:
    assert_all_agree(case)


@pytest.mark.parametrize(
    "kernel,stride,pads,dilation", list(itertools.product(PAIRS, PAIRS, PADS, PAIRS[:2])), ids=str
)
def test_every_option_together(kernel: Any, stride: Any, pads: Any, dilation: Any) -> None:
    options = {"kernel": kernel, "stride": stride, "pads": pads, "dilation": dilation}
    for c, o, groups in ((5, 18, 1), (6, 4, 2), (4, 4, 4)):
        assert_all_agree(Case(n=2, c=c, o=o, size=(9, 20), groups=groups, **options))


@pytest.mark.parametrize(
    "case",
    [
        CASES[2],
        CASES[3],
        Case(c=256, o=256, size=(28, 28), kernel=(3, 3), pads=(1, 1, 1, 1)),
        Case(c=3700, o=20, size=(4, 5), kernel=(3, 3), pads=(1, 1, 1, 1)),
        Case(c=64, o=128, size=(28, 28), kernel=(3, 3), pads=(1, 1, 1, 1), pool=(2, 2)),
    ],
    ids=str,
)
def test_large_layers_agree(case: Case) -> None:
    assert_all_agree(case)


def assert_all_agree(case: Case) -> None:
    """Every instruction set that runs here, with one, two and three threads."""
    x, layer, before = case.x(), case.layer(), kernels.isa()
    try:
        kernels.use_isa("reference")
        expected = layer(x)
        assert_states(expected, case.expected(x))
        for name, threads in itertools.product(kernels.isas(), (1, 2, 3)):
            kernels.use_isa(name)
            assert_same_bits(layer(x, threads=threads), expected)
    finally:
        kernels.use_isa(before)


def test_quantization_costs_little() -> None:
    """Against the float convolution, computed from the float weights."""
    case = Case(c=32, o=16, size=(12, 12), kernel=(3, 3), pads=(1, 1, 1, 1))
    x, w = case.x().astype(np.float64), case.w().astype(np.float64)
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    b = case.b()
    assert b is not None
    exact = np.einsum("nchwij,ocij->nohw", windows, w) + b.astype(np.float64)[:, None, None]
    error = np.linalg.norm(case.layer()(case.x()) - exact) / np.linalg.norm(exact)
    assert 1e-4 < error < 2e-2


# --- rows are images ---


@pytest.mark.parametrize(
    ("groups", "pool"),
    [(1, (1, 1)), (2, (1, 1)), (8, (1, 1)), (1, (2, 2)), (2, (1, 3))],
    ids=["one", "grouped", "depthwise", "pooled", "grouped and pooled"],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_stays_in_its_image(isa: str, value: float, groups: int, pool: tuple[int, int]) -> None:
    case = Case(
        n=3,
        c=8,
        o=16,
        size=(7, 30),
        kernel=(3, 3),
        pads=(1, 1, 1, 1),
        groups=groups,
        pool=pool,
        activation="relu",
    )
    x = case.x()
    clean = case.layer()(x)
    x[1, 7, 6, 29] = value
    y = case.layer()(x)
    assert np.isnan(y[1]).all()
    assert_same_bits(y[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("groups", [1, 4], ids=["one", "depthwise"])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_image_does_not_depend_on_its_batch(isa: str, groups: int, threads: int) -> None:
    case = Case(n=9, c=4, o=8, size=(11, 12), kernel=(3, 3), groups=groups)
    x = case.x()
    together = case.layer()(x, threads=threads)
    for i in range(case.n):
        assert_same_bits(case.layer()(x[i : i + 1]), together[i : i + 1])


def test_many_images_go_through_in_parts(isa: str) -> None:
    """More than the 4 MB of integers that are held at a time."""
    case = Case(n=7, c=64, o=3, size=(130, 120), kernel=(1, 2))
    x, layer = case.x(), case.layer()
    y = layer(x, threads=2)
    for i in (0, 3, 6):
        assert_same_bits(layer(x[i : i + 1]), y[i : i + 1])


# --- nothing at all ---


def test_no_images(isa: str) -> None:
    assert Case(c=3, o=4).layer()(np.empty((0, 3, 5, 5), np.float32)).shape == (0, 4, 5, 5)


def test_no_outputs(isa: str) -> None:
    assert Conv2d.from_float(np.empty((0, 3, 1, 1), np.float32))(
        np.ones((2, 3, 5, 5), np.float32)
    ).shape == (2, 0, 5, 5)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)], ids=str)
def test_no_channels_leave_the_bias(isa: str, kernel: tuple[int, int]) -> None:
    bias = np.array([1.5, -2.0], np.float32)
    layer = Conv2d.from_float(np.empty((2, 0, *kernel), np.float32), bias)
    y = layer(np.empty((1, 0, 4, 4), np.float32))
    assert_same_bits(y, np.broadcast_to(bias[:, None, None], y.shape).copy())


# --- one axis ---


@pytest.mark.parametrize("groups", [1, 6], ids=["one", "depthwise"])
def test_one_axis_is_a_height_of_one(isa: str, groups: int) -> None:
    case = Case(
        n=2,
        c=6,
        o=12,
        size=(1, 50),
        kernel=(1, 5),
        stride=(1, 2),
        pads=(0, 3, 0, 1),
        dilation=(1, 2),
        groups=groups,
    )
    x = case.x()
    layer = Conv1d.from_float(
        case.w()[:, :, 0], case.b(), stride=2, padding=(3, 1), dilation=2, groups=groups
    )
    y = layer(x[:, :, 0])
    assert y.shape == layer.output_shape((2, 6, 50))
    assert_same_bits(y, case.layer()(x)[:, :, 0])
    assert_states(y[:, :, None], case.expected(x))


def test_pools_of_one_axis(isa: str) -> None:
    case = Case(n=2, c=6, o=12, size=(1, 50), kernel=(1, 5), pads=(0, 3, 0, 1), pool=(1, 3))
    x = case.x()
    layer = Conv1d.from_float(case.w()[:, :, 0], case.b(), padding=(3, 1), pool=3)
    y = layer(x[:, :, 0])
    assert y.shape == layer.output_shape((2, 6, 50)) == (2, 12, 16)
    assert_same_bits(y, case.layer()(x)[:, :, 0])


# --- filters ---


def test_packed_filters_are_blocks_by_kernel_row_column_and_channel() -> None:
    q = np.random.default_rng(0).integers(-127, 128, (6, 5, 2, 3)).astype(np.int8)
    packed = pack_filters(q, groups=2)
    assert packed.ctypes.data % 64 == 0
    for part, own in zip(np.split(packed, 2), np.split(q, 2), strict=True):
        assert np.array_equal(unpack(part, 3, 30), own.transpose(0, 2, 3, 1).reshape(3, 30))


def test_depthwise_filters_are_packed_as_they_are() -> None:
    q = np.random.default_rng(0).integers(-127, 128, (6, 1, 2, 3)).astype(np.int8)
    assert np.array_equal(pack_filters(q, groups=3).view(np.int8), q.ravel())


def test_a_layer_from_packed_filters(isa: str) -> None:
    case = CASES[7]
    layer = case.layer()
    again = Conv2d.from_packed(layer.filters, layer.window, layer.bias)
    assert again.filters.packed is layer.filters.packed
    assert_same_bits(again(case.x()), layer(case.x()))


def test_what_a_layer_says_of_itself() -> None:
    layer = CASES[7].layer()
    assert (layer.in_channels, layer.out_channels) == (12, 8)
    assert "12 -> 8" in repr(layer)
    assert "padding=(2, 0, 1, 4)" in repr(layer)


# --- how arrays come in and go out ---


def test_views_are_copied(isa: str) -> None:
    case = Case(n=2, c=4, o=5, size=(6, 8), kernel=(3, 3))
    x = case.x()
    expected = case.layer()(x)
    assert_same_bits(case.layer()(np.repeat(x, 2, axis=3)[..., ::2]), expected)
    assert_same_bits(case.layer()(np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 3)))[..., :8]), expected)
    assert_same_bits(
        case.layer()(np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)), expected
    )
    room = np.empty(x.nbytes + 1, np.uint8)
    odd = room[1:].view(np.float32).reshape(x.shape)
    odd[:] = x
    assert_same_bits(case.layer()(odd), expected)


def test_out_is_written_and_returned(isa: str) -> None:
    case = CASES[1]
    x = case.x()
    expected = case.layer()(x)
    out = np.full(expected.shape, 7, np.float32)
    assert case.layer()(x, out=out) is out
    assert_same_bits(out, expected)


@every_case
def test_nothing_is_written_beside_the_output(isa: str, case: Case) -> None:
    x, layer = case.x(), case.layer()
    expected = layer(x)
    room = np.full(expected.size + 64, 7, np.float32)
    for threads in (1, 2):
        layer.run(x.ctypes.data, case.n, *case.size, room[32:].ctypes.data, threads)
        assert_same_bits(room[32:-32].reshape(expected.shape), expected)
        assert np.all(room[:32] == 7)
        assert np.all(room[-32:] == 7)


def test_tensors(isa: str) -> None:
    torch = pytest.importorskip("torch")
    case = CASES[1]
    y = case.layer()(torch.from_numpy(case.x()).to(memory_format=torch.channels_last))
    assert isinstance(y, torch.Tensor)
    assert_same_bits(y.numpy(), case.layer()(case.x()))


# --- errors ---

W = np.ones((4, 2, 3, 3), np.float32)
X = np.ones((1, 2, 5, 5), np.float32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"w": W[0]}, r"w: needs shape \[O, I/groups, kh, kw\], not \(2, 3, 3\)"),
        ({"w": W[:, :, :0]}, "kernel: .* must be 1 or more"),
        ({"w": np.full_like(W, np.nan)}, "w: channel 0 .* NaN"),
        ({"bias": np.ones(3, np.float32)}, r"bias: needs shape \(4,\), not \(3,\)"),
        ({"stride": 0}, "stride: 0 must be 1 or more"),
        ({"stride": (1, 2, 3)}, r"stride: \(1, 2, 3\) must be one number, or 2 of them"),
        ({"dilation": (1, -1)}, r"dilation: \(1, -1\) must be 1 or more"),
        ({"padding": -1}, "padding: -1 must be 0 or more"),
        ({"padding": (1, 1, 1)}, r"padding: .* or 2 or 4 of them"),
        ({"groups": 0}, "groups: 0 must be 1 or more"),
        ({"groups": 3}, "groups: 3 does not divide the 4 output channels"),
        ({"activation": "rele"}, "unknown activation 'rele'"),
        ({"pool": 0}, "pool: 0 must be 1 or more"),
        ({"pool": 9}, "pool: 9 x 9 results; a pool has 64 at most"),
        ({"pool": (2**31 - 1, 2**31 - 1)}, "pool: .* a pool has 64 at most"),
        ({"w": W[:, :1], "groups": 2, "pool": (2, 1)}, "pool: filters of one channel .* none"),
    ],
    ids=lambda v: None if isinstance(v, str) else next(iter(v)),
)  # fmt: skip
def test_layers_that_cannot_be(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Conv2d.from_float(**{"w": W, **wrong})


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[0], r"x: needs shape \[N, 2, H, W\], not \(2, 5, 5\)"),
        (X[:, :1], r"x: needs shape \[N, 2, H, W\], not \(1, 1, 5, 5\)"),
        (X[..., :2], r"x: with padding it is \(5, 2\), smaller than the kernel's \(3, 3\)"),
    ],
    ids=["rank", "channels", "size"],
)
def test_inputs_that_do_not_fit(x: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Conv2d.from_float(W)(x)


def test_other_errors() -> None:
    layer = Conv2d.from_float(W)
    with pytest.raises(TypeError, match="x: needs float32, not float16"):
        layer(X.astype(np.float16))
    with pytest.raises(TypeError, match="x: needs float32"):
        layer(X.astype(np.float64))
    with pytest.raises(ValueError, match="threads: -1"):
        layer(X, threads=-1)
    with pytest.raises(ValueError, match=r"out: needs shape \(1, 4, 3, 3\)"):
        layer(X, out=np.empty((1, 4, 3, 2), np.float32))
    with pytest.raises(ValueError, match="out: needs to be contiguous"):
        layer(X, out=np.empty((1, 4, 3, 4), np.float32)[..., :3])
    room = np.ones(100, np.float32)
    with pytest.raises(ValueError, match="out: shares memory with x"):
        layer(room[:50].reshape(X.shape), out=room[20:56].reshape(1, 4, 3, 3))
    with pytest.raises(ValueError, match=r"filters: shape .* Conv1d needs 3 axes"):
        Conv1d(layer.filters, layer.window)
    with pytest.raises(ValueError, match="packed needs"):
        Conv2d(
            PackedFilters(layer.filters.packed, (4, 3, 3, 3), 1, layer.filters.scale), layer.window
        )
    with pytest.raises(MemoryError):
        Conv2d.from_float(W, padding=2**31 - 1, stride=2**31 - 1)(X)
    with pytest.raises(TypeError, match="q: needs int8"):
        pack_filters(W)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one element an output channel"):
        Conv2d(
            PackedFilters(layer.filters.packed, W.shape, 1, layer.filters.scale[:2]),
            Window.of(2, 1, 0, 1),
        )
