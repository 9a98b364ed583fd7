"""Runs kernels beside unreadable memory: `python -m tests.core.bounds ISA [EVERY]`.

Every array lies once right before a page that nobody may touch and once right behind one, so a
kernel that reads or writes one byte too far ends the process. The line printed last tells which
case it was. What comes out has to be what comes out elsewhere; gaps between rows stay as they were.
Each case runs, or each EVERY-th; with 0, one that reads too far.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from octavo.core import kernels
from octavo.core.attention import attention as attend
from octavo.core.convolution import Conv2d, PackedFilters, Window, pack_filters
from octavo.core.embedding import Embedding
from octavo.core.half_linear import HalfLinear
from octavo.core.kernels import PackedWeight, pack, quantize_rows, unpack
from octavo.core.layer_norm import layer_norm
from octavo.core.linear import Linear
from octavo.core.qparams import Grid, QType
from octavo.core.recurrent import Gru, Lstm, Rnn
from tests.core.layers import random_layer, random_rows
from tests.core.statement import Layer
from tests.core.tables import assert_all_same
from tests.core.test_block_kernels import gated, norm, rotary

PAGE = mmap.PAGESIZE
GAP = 173
"""What gaps between rows hold, byte by byte."""
_libc = ctypes.CDLL(None, use_errno=True)


class Place:
    """Where a case's arrays lie: "anywhere", "before" an unreadable page or "behind" one."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._whole: list[tuple[np.ndarray, np.ndarray]] = []

    def bytes(self, count: int, alignment: int = 1) -> np.ndarray:
        if self.where == "anywhere":
            return kernels.aligned(count, max(alignment, 64))
        room = -(-count // PAGE) * PAGE
        memory = mmap.mmap(-1, room + 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for guard in (address, address + PAGE + room):
            if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        first = PAGE + (room - count) // alignment * alignment if self.where == "before" else PAGE
        return np.frombuffer(memory, np.uint8, count, first)

    def copy(self, array: np.ndarray, alignment: int = 0) -> np.ndarray:
        to = self.bytes(array.nbytes, alignment or array.itemsize).view(array.dtype)
        to = to.reshape(array.shape)
        to[...] = array
        return to

    def rows(self, array: np.ndarray, gap: int = 3) -> np.ndarray:
        """`array` [M, N] there, with `gap` elements from each row to the next, checked later."""
        m, n = array.shape
        count = max(m * n and (m - 1) * (n + gap) + n, 0)
        memory = self.bytes(count * array.itemsize, array.itemsize)
        memory[...] = GAP
        flat = memory.view(array.dtype)
        size = array.itemsize
        rows = np.lib.stride_tricks.as_strided(flat, (m, n), ((n + gap) * size, size))
        rows[...] = array
        gaps = np.ones((m, (n + gap) * size), bool)
        gaps[:, : n * size] = False
        self._whole.append((memory, gaps.reshape(-1)[: memory.size]))
        return rows

    def output(self, shape: tuple[int, int], dtype: Any = np.float32, gap: int = 3) -> np.ndarray:
        return self.rows(np.zeros(shape, dtype), gap)

    def check(self) -> None:
        for memory, gaps in self._whole:
            assert (memory[gaps] == GAP).all(), "bytes between rows were written"


Outputs = list[np.ndarray]
Case = tuple[str, Callable[[Place], Outputs]]
"""What it is called, and what it computes from arrays that lie in a place."""

KS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200, 257)
NS = (1, 3, 15, 16, 17, 31, 33, 47, 48, 49, 63, 64, 65, 80, 100, 113)
MS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 31, 32, 33, 40, 65)


def shapes(deep: bool = False) -> Iterator[tuple[int, int, int]]:
    """Every K and N, with an M that runs through all; then what threads share, then long sums."""
    for i, k in enumerate(KS):
        for j, n in enumerate(NS):
            yield MS[(i * len(NS) + j * 7) % len(MS)], k, n
    yield from [(1, 700, 1001), (2, 701, 1001), (65, 301, 201), (17, 701, 333)]
    if deep:
        yield from [(3, 32_641, 5), (2, 65_281, 17)]


def placed(weight: PackedWeight, place: Place) -> PackedWeight:
    zero = weight.zero_point
    return PackedWeight(
        place.copy(weight.packed, 64),
        weight.n,
        weight.k,
        place.copy(weight.scale),
        None if zero is None else place.copy(zero),
        weight.group,
    )


def linear() -> Iterator[Case]:
    half, brain = np.float16, ml_dtypes.bfloat16
    for group, affine, activation, dtype, residual in [
        (0, False, "none", np.float32, False),
        (0, True, "gelu", np.float32, True),
        (128, False, "silu", np.float32, True),
        (128, True, "none", brain, False),
        (0, True, "relu", half, True),
    ]:
        for m, k, n in shapes(deep=group == 0):
            made = random_layer(n, k, group=group, affine=affine, activation=activation)
            name = f"{group=} {affine=} {activation} {dtype.__name__} M={m} K={k} N={n}"
            yield name, partial(linear_case, made, m, dtype, residual)


def linear_case(made: Layer, m: int, dtype: Any, residual: bool, place: Place) -> Outputs:
    n, k = made.q.shape
    assert made.bias is not None
    weight = PackedWeight(pack(made.q), n, k, made.scale, made.zero, made.group)
    layer = Linear.from_packed(placed(weight, place), place.copy(made.bias), made.activation)
    x = place.rows(random_rows(m, k).astype(dtype))
    add = place.rows(random_rows(m, n).astype(dtype), 5) if residual else None
    out = [place.output((m, n), dtype, gap) for gap in (0, 3)]
    for threads, y in enumerate(out, 1):
        layer(x, add, out=y, threads=threads)
    return out


def integers() -> Iterator[Case]:
    for group, (m, k, n) in itertools.product((0, 128), shapes()):
        yield f"{group=} M={m} K={k} N={n}", partial(integers_case, group, m, k, n)


def integers_case(group: int, m: int, k: int, n: int, place: Place) -> Outputs:
    x = place.rows(random_rows(m, k))
    q, scale, zero = quantize_rows(x, group)
    made = random_layer(n, k, group=group)
    packed = place.bytes(kernels.packed_bytes(n, k), 64)
    kernels.packing._native.pack(place.copy(made.q), packed)
    out = place.output((m, n))
    layer = Linear.from_packed(PackedWeight(packed, n, k, place.copy(made.scale), None, group))
    layer.quantized(place.copy(q), place.copy(scale), place.copy(zero), out=out)
    return [q, scale, zero, out, unpack(packed, n, k)]


def weights() -> Iterator[Case]:
    for symmetric, (_, k, n) in itertools.product((True, False), shapes()):
        grid = Grid.of(QType.INT8, symmetric=symmetric)
        yield f"{symmetric=} K={k} N={n}", partial(weights_case, grid, (n, k))


def weights_case(grid: Grid, shape: tuple[int, int], place: Place) -> Outputs:
    native = kernels.packing._native
    w = place.copy(random_rows(*shape))
    lo, hi, scale = (place.copy(np.zeros(shape[0], np.float32)) for _ in range(3))
    zero = place.copy(np.zeros(shape[0], np.int32))
    assert native.channel_ranges(w[None], lo, hi) < 0
    limits, of_zero = (grid.qmin, grid.qmax), (grid.symmetric, grid.zero_point)
    native.channel_qparams(lo, hi, *limits, *of_zero, scale, zero)
    q = place.copy(np.zeros(shape, np.int8))
    native.quantize_channels(w[None], *limits, scale, zero, q[None])
    packed = place.bytes(kernels.packed_bytes(*shape), 64)
    native.quantize_packed(w, *limits, scale, zero, packed)
    return [lo, hi, scale, zero, q, packed]


def half() -> Iterator[Case]:
    for dtype, (m, k, n) in itertools.product(("float16", "bfloat16"), shapes()):
        w = random_rows(n, k, 2) * np.float32(1e-3)
        made = HalfLinear.from_float(w, random_rows(1, n)[0], dtype, "tanh")
        yield f"{dtype} M={m} K={k} N={n}", partial(half_case, made, m)


def half_case(made: HalfLinear, m: int, place: Place) -> Outputs:
    assert made.bias is not None
    bias, packed = place.copy(made.bias), place.copy(made.packed, 64)
    layer = HalfLinear(packed, made.n, made.k, made.dtype, bias, made.activation)
    return [
        layer(place.rows(random_rows(m, made.k).astype(kind)), place.output((m, made.n), kind))
        for kind in (np.float32, np.dtype(made.dtype))
    ]


def embedding() -> Iterator[Case]:
    for dim in sorted({*NS, *KS}):
        for dtype, kind, affine in [(np.int8, np.int64, False), (np.uint8, np.int32, True)]:
            yield f"{dtype.__name__} {dim=}", partial(embedding_case, dim, dtype, kind, affine)


def embedding_case(dim: int, dtype: Any, kind: Any, affine: bool, place: Place) -> Outputs:
    r = np.random.default_rng(dim)
    q = place.copy(r.integers(0, 127, (11, dim)).astype(dtype))
    zero = place.copy(r.integers(0, 99, 11).astype(np.int32)) if affine else None
    table = Embedding(q, place.copy(r.random(11).astype(np.float32)), zero)
    indices = place.copy(np.append(r.integers(0, 11, 18), 10).astype(kind))
    offsets = place.copy(np.array([0, 3, 3, 10, 18], kind))
    weights = place.copy(r.random(19).astype(np.float32))
    out = [table(indices, place.output((19, dim)), threads=2)]
    for mode in ("sum", "mean", "max"):
        out.append(table.bag(indices, offsets, mode=mode, out=place.output((5, dim))))
    bags = place.output((5, dim))
    table.bag(indices, offsets, mode="sum", per_sample_weights=weights, out=bags)
    return [*out, bags]


def convolution() -> Iterator[Case]:
    sizes = [(1, 1), (3, 5), (7, 7), (8, 17), (16, 33)]
    filters = [
        ((5, 3, 1, 1), 1), ((16, 16, 3, 3), 1), ((17, 5, 2, 3), 1), ((33, 64, 1, 1), 1),
        ((6, 2, 3, 3), 3), ((7, 1, 3, 3), 7), ((16, 1, 5, 5), 16), ((8, 1, 1, 3), 4),
        ((64, 70, 3, 1), 1),
    ]  # fmt: skip
    windows = [((1, 1), (1, 1), 1), ((2, 3), (0, 2), 1), ((1, 2), (2, 0), 2)]
    for (shape, groups), (stride, pad, dilation) in itertools.product(filters, windows):
        window = Window.of(2, stride, pad, dilation)
        spans = [dilation * (k - 1) + 1 for k in shape[2:]]
        for size in sizes:
            if all(n + 2 * p >= span for n, p, span in zip(size, pad, spans, strict=True)):
                name = f"filters={shape} {groups=} {window} {size=}"
                yield name, partial(convolution_case, shape, groups, window, size)


def convolution_case(
    shape: tuple[int, ...], groups: int, window: Window, size: tuple[int, int], place: Place
) -> Outputs:
    r = np.random.default_rng(shape)
    q = pack_filters(r.integers(-127, 128, shape).astype(np.int8), groups)
    scale = place.copy(r.random(shape[0]).astype(np.float32))
    packed = PackedFilters(place.copy(q, 64), shape, groups, scale)
    bias = place.copy(r.standard_normal(shape[0]).astype(np.float32))
    layer = Conv2d.from_packed(packed, window, bias, "relu")
    x = r.standard_normal((2, shape[1] * groups, *size)).astype(np.float32)
    out = place.copy(np.zeros(layer.output_shape(x.shape), np.float32))
    return [layer(place.copy(x), out, threads=threads).copy() for threads in (1, 2)]


def recurrent() -> Iterator[Case]:
    kinds = [("lstm", 4), ("proj", 4), ("gru", 3), ("first", 3), ("rnn", 1)]
    sizes = [(1, 1, 1), (3, 4, 2), (17, 3, 5), (64, 2, 16), (65, 7, 3)]
    hidden_sizes = (1, 5, 15, 16, 17, 33, 64, 70)
    for hidden, size, (name, gates), kept in itertools.product(
        hidden_sizes, sizes, kinds, ((), (0,))
    ):
        if name != "proj" or hidden > 1:
            case = partial(recurrent_case, name, gates, hidden, size, kept)
            yield f"{name} {hidden=} inputs, steps, batch={size} float={kept}", case


def recurrent_case(
    name: str,
    gates: int,
    hidden: int,
    size: tuple[int, int, int],
    kept: tuple[int, ...],
    place: Place,
) -> Outputs:
    inputs, steps, batch = size
    r = np.random.default_rng(hidden)
    proj = hidden // 2 if name == "proj" else 0
    width = proj or hidden

    def array(*shape: int) -> np.ndarray:
        return place.copy(r.standard_normal(shape).astype(np.float32))

    weights = []
    for _ in range(2):  # directions
        weights += [array(gates * hidden, inputs), array(gates * hidden, width)]
        weights += [array(gates * hidden), array(gates * hidden)]
        weights += [array(proj, hidden)] if proj else []
    options: dict[str, Any] = {"hidden_size": hidden, "bidirectional": True, "float_layers": kept}
    x = place.rows(r.standard_normal((steps * batch, inputs)).astype(np.float32))
    y = place.output((steps * batch, 2 * width), gap=5)
    strided = [
        a.reshape(steps, batch, -1) if batch * steps == 1 else _cube(a, steps, batch)
        for a in (x, y)
    ]
    lengths = place.copy(r.integers(0, steps + 1, batch))
    h0 = array(2, batch, width)
    if gates == 4:
        lstm = Lstm.from_float(weights, proj_size=proj, **options)
        found: tuple[Any, ...] = lstm(strided[0], h0, array(2, batch, hidden), lengths, strided[1])
    elif gates == 3:
        gru = Gru.from_float(weights, linear_before_reset=name == "gru", **options)
        found = gru(strided[0], h0, lengths, strided[1])
    else:
        found = Rnn.from_float(weights, **options)(strided[0], h0, lengths, strided[1])
    return list(found)


def _cube(rows: np.ndarray, steps: int, batch: int) -> np.ndarray:
    row, one = rows.strides
    shape = (steps, batch, rows.shape[1])
    return np.lib.stride_tricks.as_strided(rows, shape, (row * batch, row, one))


def attention() -> Iterator[Case]:
    """And the layer normalization that stands behind it."""
    depths = [(1, 3, ""), (16, 16, "bias"), (20, 33, "mask"), (64, 64, ""), (17, 16, "causal")]
    for queries, keys, (*widths, over) in itertools.product(
        (1, 5, 16, 17, 64, 65), (1, 3, 15, 16, 33, 70), depths
    ):
        sizes = (queries, keys, *widths)
        yield f"queries, keys, depths={sizes} {over}", partial(attention_case, sizes, over)


def attention_case(sizes: tuple[int, ...], over: str, place: Place) -> Outputs:
    queries, keys, depth, value_depth = sizes
    r = np.random.default_rng(sizes)
    kv = 1 if over == "causal" else 3
    q, k, v = (
        place.copy(r.standard_normal((2, *shape)).astype(np.float32))
        for shape in ((queries, 3 * depth), (keys, kv * depth), (keys, kv * value_depth))
    )
    values = r.random((2, 1, queries, keys))
    given = {"bias": values.astype(np.float32), "mask": values < 0.5}
    options: dict[str, Any] = {}
    if over == "causal":
        options = {"causal": True, "offset": keys // 2, "window": 3, "kv_heads": 1}
    elif over:
        options = {over: place.copy(given[over])}
    found = [
        attend(q, k, v, 3, threads=t, bfloat16=halved, **options)
        for t, halved in ((1, False), (2, False), (2, True))
    ]
    shift = [place.copy(r.standard_normal(3 * value_depth).astype(np.float32)) for _ in range(2)]
    return [*found, layer_norm(place.copy(found[0]), *shift)]


def block_kernels() -> Iterator[Case]:
    for rows, width in itertools.product((1, 3, 17), (2, 14, 16, 18, 34, 64, 100)):
        yield f"{rows=} {width=}", partial(block_case, rows, width)


def block_case(rows: int, width: int, place: Place) -> Outputs:
    r = np.random.default_rng(rows * 1000 + width)

    def array(*shape: int) -> np.ndarray:
        return place.copy(r.standard_normal(shape).astype(np.float32))

    x, y, gain, shift = array(rows, width), array(rows, width), array(width), array(width)
    found = []
    for kind in ("layer", "rms"):
        found += norm(kind, x, gain, shift, y)
        found += norm(kind, x, gain, None)
    for interleaved, each in itertools.product((False, True), repeat=2):
        turned = width // 4 * 2
        tables = [array(1, rows, turned if each else turned // 2) for _ in range(2)]
        found.append(rotary(x.reshape(1, 1, rows, width), *tables, turned, interleaved, each))
    first, second = (
        Linear.from_packed(placed(Linear.from_float(array(33, width)).weight, place))
        for _ in range(2)
    )
    return [*found, gated(first, "silu", second, x)]


def one_byte_too_far(place: Place) -> Outputs:
    address = place.bytes(100).ctypes.data
    ctypes.string_at(address + (-1 if place.where == "behind" else 0), 101)
    return []


FAMILIES = (
    linear,
    integers,
    weights,
    half,
    embedding,
    convolution,
    recurrent,
    attention,
    block_kernels,
)


def check(name: str, case: Callable[[Place], Outputs]) -> None:
    places = [Place("anywhere"), Place("before"), Place("behind")]
    print(name, flush=True)
    expected, *others = [case(place) for place in places]
    for place, found in zip(places[1:], others, strict=True):
        assert_all_same(found, expected)
        place.check()


def main(isa: str, every: str = "1") -> None:
    kernels.use_isa(isa)
    if every == "0":
        check("on purpose", one_byte_too_far)
    for family in FAMILIES:
        cases = [*itertools.islice(family(), 0, None, int(every))]
        for name, case in cases:
            check(f"{family.__name__} {name}", case)
        print(f"{family.__name__}: {len(cases)} cases")


if __name__ == "__main__":
    main(*sys.argv[1:])
