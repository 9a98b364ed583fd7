"""Embedding tables against float64 statements, PyTorch's bags and the scalar kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from octavo.core.embedding import MODES, Embedding
from octavo.core.qparams import Grid
from tests.core.grids import every_grid
from tests.core.statement import EPS, TINY, assert_same_bits, assert_states
from tests.core.tables import on_every_table

DIMS = [0, *range(1, 11), 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 300]
KINDS = {"int8": (np.int8, False), "uint8": (np.uint8, True), "int8-affine": (np.int8, True)}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_mode = pytest.mark.parametrize("mode", MODES)
INDEX = (np.int32, np.int64)


def random_table(rows: int, dim: int, kind: str = "int8") -> Embedding:
    """Integers over the whole range, scales over two decades."""
    dtype, affine = KINDS[kind]
    r = np.random.default_rng([rows, dim])
    q = r.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (rows, dim)).astype(dtype)
    scale = (10 ** r.uniform(-3, -1, rows)).astype(np.float32)
    return Embedding(q, scale, r.integers(-128, 256, rows).astype(np.int32) if affine else None)


def values(table: Embedding) -> np.ndarray:
    """The table's rows: one rounding, of the product of an integer and the scale."""
    zero = 0 if table.zero_point is None else table.zero_point[:, None]
    exact: np.ndarray = (table.q.astype(np.int64) - zero) * table.scale.astype(np.float64)[:, None]
    return exact.astype(np.float32)


def stated(table: Embedding, bags: list[np.ndarray], mode: str) -> tuple[np.ndarray, np.ndarray]:
    """The bags, float64 [bags, dim], and how far float32 sums may be from each."""
    zero = 0 if table.zero_point is None else table.zero_point[:, None]
    rows = (table.q.astype(np.int64) - zero) * table.scale.astype(np.float64)[:, None]
    y, error = np.zeros((2, len(bags), table.dim))
    for b, bag in enumerate(bags):
        if not len(bag):
            continue
        terms, count = rows[bag], len(bag) if mode == "mean" else 1
        size = np.abs(terms).sum(axis=0)
        y[b] = (terms.max(axis=0) if mode == "max" else terms.sum(axis=0)) / count
        error[b] = (len(bag) + 2 + (mode == "mean")) * EPS * size / count
    return y, error * 1.01 + TINY


def random_bags(rows: int, bags: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Indices and offsets; some bags are empty, the last among them."""
    r = np.random.default_rng([rows, bags, seed])
    lengths = r.integers(0, 9, bags)
    lengths[::4] = 0
    lengths[-1:] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return r.integers(0, rows, offsets[-1]), offsets[:-1]


@every_kind
def test_rows_are_dequantized(kind: str) -> None:
    for rows, count, dim in [*((50, 37, dim) for dim in DIMS), (3000, 5000, 257)]:
        table = random_table(rows, dim, kind)
        indices = np.random.default_rng(dim).integers(0, rows, count).astype(INDEX[dim % 2])
        indices[:2] = 0, rows - 1
        found = on_every_table(lambda threads: table(indices, threads=threads))  # noqa: B023
        assert_same_bits(found, values(table)[indices])


def test_shapes_and_outputs() -> None:
    table = random_table(50, 20)
    flat = np.random.default_rng(1).integers(0, 50, 24)
    expected = values(table)[flat]
    for shape in [(24,), (2, 3, 4), (24, 1), (1, 24)]:
        assert_same_bits(table(flat.reshape(shape)), expected.reshape(*shape, 20))
    assert_same_bits(table(np.int64(3)[...]), values(table)[3])
    for shape in [(0,), (3, 0)]:
        assert table(np.empty(shape, np.int64)).shape == (*shape, 20)
    assert_same_bits(table(np.repeat(flat, 2)[::2]), expected)
    room = np.full((24, 30), 7, np.float32)
    table(flat, out=room[:, 5:25])
    assert_same_bits(room[:, 5:25], expected)
    assert (room[:, :5] == 7).all()
    assert (room[:, 25:] == 7).all()


@pytest.mark.parametrize("index", INDEX)
@pytest.mark.parametrize("bad", [-1, 50, -(2**31), 2**31 - 1, 2**32])
def test_an_index_outside_is_named_and_nothing_is_written(bad: int, index: Any) -> None:
    table, indices = random_table(50, 20), np.arange(40, dtype=np.int64)
    indices[17] = bad
    if bad < 2**31:
        indices = indices.astype(index)
    out = np.full((40, 20), 7, np.float32)
    for call in (
        lambda: table(indices, out=out),
        lambda: table.bag(indices.reshape(20, 2), out=out[:20]),
    ):
        with pytest.raises(IndexError, match=f"position 17 holds {bad}, and the table has 50 rows"):
            call()
    assert (out == 7).all()
    with pytest.raises(IndexError, match="position 0 holds 0, and the table has 0 rows"):
        random_table(0, 20)(np.array([0]))


@every_grid
def test_a_float_table_is_quantized_row_by_row(grid: Grid) -> None:
    w = np.random.default_rng(0).standard_normal((40, 33)).astype(np.float32)
    w *= 10 ** np.linspace(-3, 3, 40, dtype=np.float32)[:, None]
    w[5] = 0
    table = Embedding.from_float(w, grid)
    assert table.q.dtype == grid.dtype
    y = table(np.arange(40))
    assert_same_bits(y, values(table))
    # Half a step; an affine grid's zero point is rounded too.
    assert (np.abs(y - w) <= table.scale[:, None] * (0.501 if grid.symmetric else 1.001)).all()
    assert not y[5].any()


def test_a_table_of_16_bits_is_widened() -> None:
    w = np.random.default_rng(0).standard_normal((5, 7)).astype(ml_dtypes.bfloat16)
    narrow, wide = Embedding.from_float(w), Embedding.from_float(w.astype(np.float32))
    assert_same_bits(narrow.q, wide.q)
    assert narrow.zero_point is None
    assert repr(narrow) == "Embedding(5 x 7, int8)"
    assert repr(random_table(5, 7, "uint8")) == "Embedding(5 x 7, uint8 affine)"


@every_kind
@every_mode
def test_bags_are_what_is_defined(mode: str, kind: str) -> None:
    for dim in DIMS:
        table = random_table(50, dim, kind)
        indices, offsets = (a.astype(INDEX[dim % 2]) for a in random_bags(50, 15, dim))
        y = on_every_table(lambda t: table.bag(indices, offsets, mode=mode, threads=t), (1, 2))  # noqa: B023
        assert_states(y, stated(table, np.split(indices, offsets[1:]), mode))


@every_mode
def test_large_bags_on_several_threads(mode: str) -> None:
    table = random_table(3000, 130, "uint8")
    r = np.random.default_rng(2)
    lengths = r.integers(0, 30, 300)
    lengths[50], lengths[51:120] = 3000, 0  # one bag is as long as all others
    ends = np.cumsum(lengths)
    indices, offsets = r.integers(0, 3000, ends[-1]), np.concatenate([[0], ends[:-1]])
    y = on_every_table(lambda t: table.bag(indices, offsets, mode=mode, threads=t), (1, 2, 5))
    assert_states(y, stated(table, np.split(indices, ends[:-1]), mode))


@every_mode
def test_bags_of_one_length(mode: str) -> None:
    table = random_table(50, 33)
    indices = np.random.default_rng(3).integers(0, 50, (12, 5))
    y = table.bag(indices, mode=mode)
    assert_same_bits(y, table.bag(indices.reshape(-1), np.arange(0, 60, 5), mode=mode))
    for bags, length in ((0, 5), (2, 0)):
        empty = table.bag(np.empty((bags, length), np.int64), mode=mode)
        assert_same_bits(empty, np.zeros((bags, 33), np.float32))


def test_the_last_offset() -> None:
    table = random_table(50, 33)
    indices, offsets = random_bags(50, 15)
    closed = np.append(offsets, indices.size)
    more = np.append(indices, [1, 2, 3])  # what lies behind it belongs to no bag
    y = table.bag(more, closed, include_last_offset=True)
    assert_same_bits(y, table.bag(indices, offsets))
    assert table.bag(indices, np.array([0]), include_last_offset=True).shape == (0, 33)
    assert table.bag(indices, np.empty(0, np.int64)).shape == (0, 33)


@every_mode
@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize("last", [False, True])
def test_bags_mean_what_pytorch_means(mode: str, padding: int | None, last: bool) -> None:
    torch = pytest.importorskip("torch")
    table = random_table(20, 33, "uint8")
    indices, offsets = (torch.from_numpy(a) for a in random_bags(20, 30))
    if last:
        offsets = torch.cat([offsets, torch.tensor([len(indices)])])
    weights = torch.rand(len(indices)) if mode == "sum" else None
    options: dict[str, Any] = {"mode": mode, "include_last_offset": last, "padding_idx": padding}
    y = table.bag(indices, offsets, per_sample_weights=weights, **options)
    assert isinstance(y, torch.Tensor)
    theirs = torch.nn.functional.embedding_bag(
        indices,
        torch.from_numpy(values(table)),
        offsets,
        per_sample_weights=weights,
        **options,
    )
    torch.testing.assert_close(y, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("error", "named", "indices", "options"),
    [
        (TypeError, "indices: needs .* not float32", np.zeros(6, np.float32), {}),
        (TypeError, "indices: is a list", [1, 2], {}),
        (TypeError, "out: needs float32", np.arange(6), {"out": np.empty((6, 33), np.float16)}),
        (ValueError, "out: needs shape", np.arange(6), {"out": np.empty((6, 32), np.float32)}),
        (ValueError, "threads: -1", np.arange(6), {"threads": -1}),
    ],
)
def test_what_cannot_be_looked_up_says_so(
    error: type[Exception], named: str, indices: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(error, match=named):
        random_table(20, 33)(indices, **options)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"indices: needs shape \[bags, length\], not \(6,\), or offsets", {}),
        ("include_last_offset: needs offsets", {"square": True, "include_last_offset": True}),
        ("need one axis each", {"square": True, "offsets": [0]}),
        ("offset 0 is 1$", {"offsets": [1, 2]}),
        ("offset 2 is 3 after 4", {"offsets": [0, 4, 3]}),
        ("offset 1 is 7 after 0", {"offsets": [0, 7]}),
        ("offset 1 is -1 after 0", {"offsets": [0, -1]}),
        ("offsets: are empty", {"offsets": [], "include_last_offset": True}),
        ("unknown mode 'avg'.* Known: max, mean, sum", {"offsets": [0], "mode": "avg"}),
        ("padding_idx: 20", {"offsets": [0], "padding_idx": 20}),
        ("padding_idx: -21", {"offsets": [0], "padding_idx": -21}),
        ("per_sample_weights: mode 'mean'", {"offsets": [0], "weights": 6}),
        ("per_sample_weights: needs shape", {"offsets": [0], "weights": 5, "mode": "sum"}),
    ],
)
def test_bags_that_cannot_be_say_so(message: str, arguments: dict[str, Any]) -> None:
    table = random_table(20, 33)
    options = dict(arguments)
    indices = np.arange(6).reshape((3, 2) if options.pop("square", False) else (6,))
    offsets = options.pop("offsets", None)
    if "weights" in options:
        options["per_sample_weights"] = np.ones(options.pop("weights"), np.float32)
    out = np.full((3, 33), 7, np.float32)
    with pytest.raises(ValueError, match=message):
        table.bag(
            indices,
            None if offsets is None else np.array(offsets, np.int64),
            out=out[: len(offsets) if offsets else 3],
            **options,
        )
    assert (out == 7).all()


def test_tables_are_checked() -> None:
    q, scale = np.zeros((3, 4), np.int8), np.ones(3, np.float32)
    infinite = np.array([[0, 1], [2, np.inf]], np.float32)
    cases: list[tuple[type[Exception], str, Any]] = [
        (TypeError, "q: needs int8 or uint8", lambda: Embedding(q.astype(np.int16), scale)),
        (ValueError, "q: needs shape", lambda: Embedding(q[0], scale)),
        (ValueError, "scale: needs shape", lambda: Embedding(q, np.ones(4, np.float32))),
        (TypeError, "zero_point: needs int32", lambda: Embedding(q, scale, np.zeros(3, np.int64))),  # type: ignore[arg-type]
        (ValueError, "table: needs shape", lambda: Embedding.from_float(scale)),
        (ValueError, "channel 1 .* NaN", lambda: Embedding.from_float(infinite)),
    ]
    for error, named, make in cases:
        with pytest.raises(error, match=named):
            make()
