"""Convolutions against a float64 statement of their definition, and their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from octavo.core.convolution import Conv1d, Conv2d, PackedFilters, pack_filters
from octavo.core.kernels import quantize_weight
from octavo.core.qparams import Grid, QType
from tests.core import statement
from tests.core.statement import ACTIVATIONS, assert_same_bits, assert_states
from tests.core.tables import on_every_table


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


def assert_all_agree(case: Case) -> None:
    """Every table, with one, two and three threads; nothing is written beside the output."""
    x, layer = case.x(), case.layer()
    shape = layer.output_shape(x.shape)

    def run(threads: int) -> np.ndarray:
        room = np.full(np.prod(shape) + 64, 7, np.float32)
        layer.run(x.ctypes.data, case.n, *case.size, room[32:].ctypes.data, threads)
        assert (room[:32] == 7).all() and (room[-32:] == 7).all()
        return room[32:-32].reshape(shape)

    assert_states(on_every_table(run), case.expected(x))


@pytest.mark.parametrize(
    "case",
    [*CASES, Case(c=256, o=80, size=(14, 15), kernel=(3, 3), pads=(1, 1, 1, 1))],
    ids=str,
)
def test_every_table_computes_what_is_defined(case: Case) -> None:
    assert_all_agree(case)


@pytest.mark.parametrize("groups", [1, 2, 8], ids=["one", "grouped", "depthwise"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str, groups: int) -> None:
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
def test_every_table_gives_the_same_bits_with_any_options(case: Case) -> None:
    assert_all_agree(case)


@pytest.mark.parametrize(
    ("groups", "pool"),
    [(1, (1, 1)), (2, (1, 1)), (8, (1, 1)), (1, (2, 2)), (2, (1, 3))],
    ids=["one", "grouped", "depthwise", "pooled", "grouped and pooled"],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_stays_in_its_image(value: float, groups: int, pool: tuple[int, int]) -> None:
    shape = {"n": 3, "c": 8, "o": 16, "size": (7, 30), "kernel": (3, 3), "pads": (1, 1, 1, 1)}
    case = Case(**shape, groups=groups, pool=pool, activation="relu")  # type: ignore[arg-type]
    x = case.x()
    clean = case.layer()(x)
    x[1, 7, 6, 29] = value
    y = case.layer()(x)
    assert np.isnan(y[1]).all()
    assert_same_bits(y[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize(
    "case",
    [
        Case(n=9, c=4, o=8, size=(11, 12), kernel=(3, 3)),
        Case(n=9, c=4, o=8, size=(11, 12), kernel=(3, 3), groups=4),
        Case(n=7, c=64, o=3, size=(130, 120), kernel=(1, 2)),
    ],
    ids=["one", "depthwise", "more than the 4 MB of integers that are held at a time"],
)
def test_an_image_does_not_depend_on_its_batch(case: Case) -> None:
    x, layer = case.x(), case.layer()
    together = layer(x, threads=2)
    for i in (0, 3, 6):
        assert_same_bits(layer(x[i : i + 1]), together[i : i + 1])


def test_no_images_and_no_outputs() -> None:
    assert Case(c=3, o=4).layer()(np.empty((0, 3, 5, 5), np.float32)).shape == (0, 4, 5, 5)
    layer = Conv2d.from_float(np.empty((0, 3, 1, 1), np.float32))
    assert layer(np.ones((2, 3, 5, 5), np.float32)).shape == (2, 0, 5, 5)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)], ids=str)
def test_no_channels_leave_the_bias(kernel: tuple[int, int]) -> None:
    bias = np.array([1.5, -2.0], np.float32)
    layer = Conv2d.from_float(np.empty((2, 0, *kernel), np.float32), bias)
    y = layer(np.empty((1, 0, 4, 4), np.float32))
    assert_same_bits(y, np.broadcast_to(bias[:, None, None], y.shape).copy())


@pytest.mark.parametrize(
    ("groups", "pool"), [(1, 1), (6, 1), (1, 3)], ids=["one", "depthwise", "pooled"]
)
def test_one_axis_is_a_height_of_one(groups: int, pool: int) -> None:
    options = {"stride": 2, "dilation": 2, "groups": groups, "pool": pool}
    each = {name: (1, value) for name, value in options.items() if name != "groups"}
    shape: dict[str, Any] = {"size": (1, 50), "kernel": (1, 5), "pads": (0, 3, 0, 1), **each}
    case = Case(n=2, c=6, o=12, groups=groups, **shape)
    x = case.x()
    layer = Conv1d.from_float(case.w()[:, :, 0], case.b(), padding=(3, 1), **options)
    y = layer(x[:, :, 0])
    assert y.shape == layer.output_shape((2, 6, 50))
    assert_states(y[:, :, None], case.expected(x))


def test_a_layer_from_packed_filters() -> None:
    case = CASES[7]
    layer = case.layer()
    again = Conv2d.from_packed(layer.filters, layer.window, layer.bias)
    assert again.filters.packed is layer.filters.packed
    assert_same_bits(again(case.x()), layer(case.x()))
    assert (layer.in_channels, layer.out_channels) == (12, 8)
    assert "12 -> 8" in repr(layer) and "padding=(2, 0, 1, 4)" in repr(layer)


def test_how_arrays_come_in_and_go_out() -> None:
    case = Case(n=2, c=4, o=5, size=(6, 8), kernel=(3, 3))
    x, layer = case.x(), case.layer()
    expected = layer(x)
    odd = np.empty(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    odd[:] = x
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    wide = np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 3)))[..., :8]
    for view in (np.repeat(x, 2, axis=3)[..., ::2], wide, last, odd):
        assert_same_bits(layer(view), expected)
    out = np.full(expected.shape, 7, np.float32)
    assert layer(x, out=out) is out
    assert_same_bits(out, expected)
    torch = pytest.importorskip("torch")
    y = layer(torch.from_numpy(x).to(memory_format=torch.channels_last))
    assert isinstance(y, torch.Tensor)
    assert_same_bits(y.numpy(), expected)


W = np.ones((4, 2, 3, 3), np.float32)
X = np.ones((1, 2, 5, 5), np.float32)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"w": W[0]}, r"w: needs shape \[O, I/groups, kh, kw\]"),
        ({"w": W[:, :, :0]}, "kernel: "),
        ({"w": np.full_like(W, np.nan)}, "w: channel 0 .* NaN"),
        ({"bias": np.ones(3, np.float32)}, r"bias: needs shape \(4,\)"),
        ({"stride": 0}, "stride: 0"),
        ({"stride": (1, 2, 3)}, r"stride: \(1, 2, 3\)"),
        ({"dilation": (1, -1)}, r"dilation: \(1, -1\)"),
        ({"padding": -1}, "padding: -1"),
        ({"padding": (1, 1, 1)}, "padding: .* 2 or 4 of them"),
        ({"groups": 0}, "groups: 0"),
        ({"groups": 3}, "groups: 3 does not divide the 4 output channels"),
        ({"activation": "rele"}, "unknown activation 'rele'"),
        ({"pool": 0}, "pool: 0"),
        ({"pool": 9}, "pool: 9 x 9 .* 64 at most"),
        ({"pool": (2**31 - 1, 2**31 - 1)}, "pool: .* 64 at most"),
        ({"w": W[:, :1], "groups": 2, "pool": (2, 1)}, "pool: filters of one channel"),
    ],
)
def test_layers_that_cannot_be(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Conv2d.from_float(**{"w": W, **wrong})


LAYER = Conv2d.from_float(W)
ROOM, LARGE = np.ones(100, np.float32), 2**31 - 1
FEW = PackedFilters(LAYER.filters.packed, (4, 3, 3, 3), 1, LAYER.filters.scale)
SHORT = PackedFilters(LAYER.filters.packed, W.shape, 1, LAYER.filters.scale[:2])


@pytest.mark.parametrize(
    ("error", "named", "call"),
    [
        (ValueError, r"x: needs shape \[N, 2, H, W\], not \(2, 5, 5\)", lambda: LAYER(X[0])),
        (ValueError, r"x: needs shape \[N, 2, H, W\]", lambda: LAYER(X[:, :1])),
        (ValueError, r"x: .* \(5, 2\), smaller than .* \(3, 3\)", lambda: LAYER(X[..., :2])),
        (TypeError, "x: needs float32, not float16", lambda: LAYER(X.astype(np.float16))),
        (ValueError, "threads: -1", lambda: LAYER(X, threads=-1)),
        (ValueError, "out: needs shape", lambda: LAYER(X, out=np.empty((1, 4, 3, 2), np.float32))),
        (
            *(ValueError, "out: needs to be contiguous"),
            lambda: LAYER(X, out=np.empty((1, 4, 3, 4), np.float32)[..., :3]),
        ),
        (
            *(ValueError, "out: shares memory with x"),
            lambda: LAYER(ROOM[:50].reshape(X.shape), out=ROOM[20:56].reshape(1, 4, 3, 3)),
        ),
        (ValueError, "filters: .* Conv1d needs 3", lambda: Conv1d(LAYER.filters, LAYER.window)),
        (ValueError, "packed needs", lambda: Conv2d(FEW, LAYER.window)),
        (ValueError, "one element an output channel", lambda: Conv2d(SHORT, LAYER.window)),
        (TypeError, "q: needs int8", lambda: pack_filters(W)),
        (MemoryError, "alloc|memory", lambda: Conv2d.from_float(W, padding=LARGE, stride=LARGE)(X)),
    ],
)
def test_calls_that_do_not_fit(error: type[Exception], named: str, call: Any) -> None:
    with pytest.raises(error, match=named):
        call()
