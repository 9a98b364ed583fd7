"""Each field of an attention, and attention of arrays, against float64 statements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octavo.core.attention import attention
from octavo.graph.rewrite.attention import reference
from tests.core.attention_cases import CASES, Case, operands
from tests.core.attention_statement import Fields, random
from tests.core.statement import assert_same_bits
from tests.core.tables import on_every_table


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32)


def shown(*shape: int) -> np.ndarray:
    """A mask that hides two of three keys, and some queries' all."""
    return noise(*shape) > 0.4


def sinks(heads: int) -> np.ndarray:
    """One above all scores, one that takes nothing, others about as large as scores."""
    found = noise(heads)
    found[0], found[1] = 9.0, -np.inf
    return found


def padding(batch: int, keys: int, *counts: int) -> np.ndarray:
    """A mask that shows the first keys of each item; of the second of two, here none."""
    return (np.arange(keys) < np.array(counts)[:, None]).reshape(batch, 1, 1, keys)


def strided(x: Fields) -> Fields:
    """The same, in memory where rows, heads and items lie apart in ways of their own."""
    b, h, s, d = x.q.shape
    g, t, e = x.v.shape[1:]
    q = np.full((b, s + 1, h, d + 3), np.nan, np.float32)
    q[:, :s, :, :d] = x.q.swapaxes(1, 2)
    k = np.full((b, g, t + 2, d + 5), np.nan, np.float32)
    k[:, :, :t, :d] = x.k
    v = np.full((g, t, b, e + 1), np.nan, np.float32)
    v[..., :e] = x.v.transpose(1, 2, 0, 3)
    return replace(
        x,
        q=q[:, :s, :, :d].swapaxes(1, 2),
        k=k[:, :, :t, :d],
        v=v[..., :e].transpose(2, 0, 1, 3),
        out_shape=(b, s + 2, h + 1, e + 4),
    )


FIELDS = {
    "plain": random(2, 3, 5, 9, 8),
    "grouped": random(2, 6, 7, 40, 16, kv_heads=2),
    "one kv head": random(1, 4, 3, 19, 16, kv_heads=1, value_depth=5),
    "strides": strided(random(2, 4, 6, 21, 12, kv_heads=2, value_depth=7)),
    "causal": random(1, 2, 70, 70, 16, causal=True),
    "causal with a cache": random(2, 4, 3, 150, 16, kv_heads=2, causal=True, offset=147),
    "causal, rows without keys": random(1, 2, 70, 30, 8, causal=True, offset=-5),
    "causal, more than all keys": random(1, 2, 9, 30, 8, causal=True, offset=100),
    "window": random(1, 2, 130, 130, 16, causal=True, window=20),
    "window ahead": random(1, 2, 40, 90, 16, window=20, offset=30),
    "window past the keys": random(1, 2, 40, 20, 16, window=4, offset=3),
    "window of all": random(1, 2, 9, 9, 16, causal=True, window=1 << 40),
    "softcap": random(1, 2, 33, 47, 32, scale=4.0, softcap=5.0),
    "bias and mask": random(2, 3, 20, 31, 8, bias=noise(3, 20, 31), mask=shown(2, 1, 20, 31)),
    "mask of keys": random(2, 3, 20, 31, 8, mask=shown(2, 1, 1, 31)),
    "mask of queries": random(2, 3, 20, 31, 8, mask=shown(1, 1, 20, 1)),
    "bias of keys": random(2, 3, 20, 31, 8, bias=noise(31)),
    "turned bias": random(1, 3, 20, 31, 8, bias=noise(31, 3, 20).transpose(1, 2, 0)),
    "blocks of keys": random(1, 3, 70, 700, 24, bias=noise(3, 70, 700), mask=shown(70, 700)),
    "blocks that the mask hides": random(2, 1, 17, 1030, 8, mask=padding(2, 1030, 300, 0)),
    "blocks behind the window": random(
        *(1, 2, 40, 1030, 8), causal=True, offset=990, window=30, softcap=2.0
    ),
    "chunks of keys": random(
        *(2, 6, 2, 700, 24), kv_heads=2, value_depth=70, bias=noise(6, 2, 700), mask=shown(2, 700)
    ),
    "chunks that the mask hides": random(2, 3, 1, 1030, 8, mask=padding(2, 1030, 300, 0)),
    "chunks behind the window": random(
        *(1, 8, 1, 1030, 8), kv_heads=1, causal=True, offset=1000, window=301, softcap=2.0
    ),
    "sinks": random(2, 6, 7, 40, 16, kv_heads=2, sinks=sinks(6)),
    "sinks of many queries": random(
        *(2, 6, 70, 300, 16), kv_heads=2, causal=True, offset=230, sinks=sinks(6)
    ),
    "sinks of a long cache": random(1, 8, 1, 700, 8, kv_heads=2, sinks=sinks(8)),
    "sinks of queries without keys": random(
        *(2, 3, 70, 31, 8), mask=shown(2, 1, 70, 1), sinks=sinks(3)
    ),
    "all together": strided(
        random(
            *(2, 4, 66, 131, 20),
            kv_heads=2,
            value_depth=9,
            causal=True,
            offset=65,
            window=50,
            softcap=3.0,
            bias=noise(4, 66, 131),
            mask=shown(2, 1, 66, 131),
            sinks=sinks(4),
        )
    ),
}
fields = pytest.mark.parametrize("x", FIELDS.values(), ids=FIELDS)


@fields
def test_every_table_computes_what_is_stated(x: Fields) -> None:
    np.testing.assert_allclose(on_every_table(x.run), x.stated(), rtol=2e-5, atol=3e-6)


EDGES = (*range(1, 11), 15, 16, 17, 31, 33, 63, 64, 65)


@pytest.mark.parametrize("queries", EDGES)
def test_all_edges_of_tiles(queries: int) -> None:
    """A column's or a key's place in tiles and lanes changes nothing but its place."""
    for keys, depth in ((3, 5), (16, 16), (21, 40), (257, 64), (6, 130)):
        x = random(1, 2, queries, keys, depth, value_depth=queries)
        np.testing.assert_allclose(x.run(), x.stated(), rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("queries", [3, 30])
def test_an_item_does_not_depend_on_the_batch(queries: int) -> None:
    x = random(3, 4, queries, 300, 16, kv_heads=2, causal=True, offset=280)
    last = replace(x, q=x.q[2:], k=x.k[2:], v=x.v[2:])
    assert_same_bits(x.run(2)[2:], last.run())


@pytest.mark.parametrize("queries", [3, 70])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_what_is_not_finite_stays_with_its_query(
    queries: int, value: float, bfloat16: bool
) -> None:
    x = random(1, 1, queries, 300, 16, bfloat16=bfloat16)
    q = x.q.copy()
    q[0, 0, 1, 3] = value
    found, expected = replace(x, q=q).run(), x.run()
    assert np.isnan(found[0, 0, 1]).all()
    assert_same_bits(np.delete(found, 1, axis=2), np.delete(expected, 1, axis=2))


@pytest.mark.parametrize("queries", [2, 20])
def test_a_bias_of_the_least_number_everywhere_is_the_mean(queries: int) -> None:
    """As exporters write a query that sees nothing; a bias of -infinity everywhere is NaN."""
    x = random(1, 2, queries, 300, 16, bias=np.full(300, np.finfo(np.float32).min))
    mean = np.broadcast_to(x.v.astype(np.float64).mean(2, keepdims=True), x.v[:, :, :queries].shape)
    np.testing.assert_allclose(x.run(), mean, rtol=2e-5, atol=3e-6)
    assert np.isnan(replace(x, bias=np.full(300, -np.inf, np.float32)).run()).all()


def test_arrays_take_the_same_fields() -> None:
    options = {"causal": True, "offset": 15, "window": 9, "softcap": 2.0, "sinks": sinks(4)}
    x = random(2, 4, 6, 21, 8, kv_heads=2, **options)
    flat = (a.swapaxes(1, 2).reshape(*(a.shape[0], a.shape[2]), -1) for a in (x.q, x.k, x.v))
    found = attention(*flat, 4, x.scale, kv_heads=2, **options)
    assert_same_bits(found.reshape(2, 6, 4, 8).swapaxes(1, 2), x.run())


cases = pytest.mark.parametrize("case", CASES, ids=str)


def attended(case: Case, x: dict[str, np.ndarray], **options: Any) -> np.ndarray:
    return attention(x["Q"], x["K"], x["V"], case.heads, bias=x.get("bias"), **options)


def masked(case: Case, shape: tuple[int, ...]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Operands without a bias, and a mask that shows the first key to every query."""
    mask = np.random.default_rng(7).random(shape) < 0.5
    mask[..., 0] = True
    return operands(case._replace(bias=None)), mask


@cases
def test_arrays_give_what_is_stated(case: Case) -> None:
    x = operands(case)
    exact = reference(x["Q"], x["K"], x["V"], case.heads, 1 / np.sqrt(case.depth), x.get("bias"))
    np.testing.assert_allclose(attended(case, x), exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "shape", [(2, 1, 1, 33), (1, 1, 70, 33), (2, 3, 70, 33), (70, 33), (33,), (2, 1, 70, 1)]
)
def test_a_mask_is_a_bias_of_minus_infinity(shape: tuple[int, ...]) -> None:
    case = Case(2, 3, 70, 33, 20, 17)
    x, mask = masked(case, shape)
    x["bias"] = np.where(mask, 0, -np.inf).astype(np.float32)
    found = attention(x["Q"], x["K"], x["V"], case.heads, mask=mask)
    assert_same_bits(found, attended(case, x))


@pytest.mark.parametrize("alike", [True, False])
def test_queries_without_any_key_are_zero(alike: bool) -> None:
    case = Case(2, 3, 70, 9, 8, 5)
    x, mask = masked(case, (2, 3, 70, 9))
    if alike:
        mask[1] = False
        empty = [(1, h, q) for h in range(3) for q in range(70)]
    else:
        empty = [(0, 0, 0), (0, 2, 63), (1, 1, 64), (1, 1, 69)]
        for index in empty:
            mask[index] = False
    found = attention(x["Q"], x["K"], x["V"], 3, mask=mask).reshape(2, 70, 3, 5)
    assert np.isfinite(found).all()
    zero = {(b, h, q) for b, q, h in zip(*np.nonzero(~found.any(-1)), strict=True)}
    assert zero == set(empty)


@pytest.mark.parametrize("queries,keys,batch", [(0, 4, 1), (3, 0, 1), (3, 4, 0)])
def test_nothing_to_attend(queries: int, keys: int, batch: int) -> None:
    case = Case(batch, 2, queries, keys, 4, 4)
    y = attended(case, operands(case))
    assert y.shape == (batch, queries, 8)
    assert not y.any()


@pytest.mark.parametrize(
    "change,named",
    [
        ({"q": np.zeros((2, 5, 13))}, "q: needs float32"),
        ({"q": np.zeros((2, 5, 13), np.float32)}, r"q: needs shape .* 4 heads.*\(2, 5, 13\)"),
        ({"k": np.zeros((3, 6, 16), np.float32)}, r"k: needs shape \(2, 'S', 16\), as q"),
        ({"v": np.zeros((2, 7, 16), np.float32)}, r"v: needs shape .*, as k"),
        ({"heads": 0}, "0 heads"),
        ({"heads": 4.0}, "heads: needs an int"),
        ({"scale": "1"}, "scale: needs a float or None"),
        ({"bias": np.zeros((2, 4, 5, 7), np.float32)}, r"bias: .* broadcasts to \(2, 4, 5, 6\)"),
        ({"mask": np.zeros((3, 6), bool)}, r"mask: .* broadcasts to \(2, 4, 5, 6\)"),
        ({"mask": np.zeros((5, 6), np.uint8)}, "mask: needs bool"),
        ({"threads": -1}, "threads"),
        ({"kv_heads": 3}, "kv_heads: .* divides 4 heads"),
        ({"kv_heads": 2.0}, "kv_heads: needs an int"),
        ({"kv_heads": 2}, r"k: needs shape \(2, 'S', 8\), as q"),
        ({"offset": 1.5}, "offset: needs an int"),
        ({"window": -1}, "window: .* -1"),
        ({"sinks": np.zeros(3, np.float32)}, r"sinks: needs shape \[4\]"),
        ({"softcap": -1.0}, "softcap: needs a number of 0 or more"),
        ({"softcap": float("nan")}, "softcap: needs a number of 0 or more"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(change: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {n: np.zeros((2, 6, 16), np.float32) for n in "kv"}
    given |= {"q": np.zeros((2, 5, 16), np.float32), "heads": 4} | change
    with pytest.raises((TypeError, ValueError), match=named):
        attention(**given)
