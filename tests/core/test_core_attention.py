"""Attention of arrays: against its float64 statement, with biases and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core.attention import attention
from octavo.graph.rewrite.attention import reference
from tests.core.attention_cases import CASES, Case, operands
from tests.core.statement import assert_same_bits

cases = pytest.mark.parametrize("case", CASES, ids=str)


def run(case: Case, x: dict[str, np.ndarray], **options: Any) -> np.ndarray:
    return attention(x["Q"], x["K"], x["V"], case.heads, bias=x.get("bias"), **options)


def masked(case: Case, shape: tuple[int, ...]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Operands without a bias, and a mask that shows the first key to every query."""
    mask = np.random.default_rng(7).random(shape) < 0.5
    mask[..., 0] = True
    return operands(case._replace(bias=None)), mask


@cases
def test_it_computes_what_is_stated(case: Case) -> None:
    x = operands(case)
    exact = reference(x["Q"], x["K"], x["V"], case.heads, 1 / np.sqrt(case.depth), x.get("bias"))
    np.testing.assert_allclose(run(case, x), exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "shape", [(2, 1, 1, 33), (1, 1, 70, 33), (2, 3, 70, 33), (70, 33), (33,), (2, 1, 70, 1)]
)
def test_a_mask_is_a_bias_of_minus_infinity(shape: tuple[int, ...]) -> None:
    case = Case(2, 3, 70, 33, 20, 17)
    x, mask = masked(case, shape)
    x["bias"] = np.where(mask, 0, -np.inf).astype(np.float32)
    found = attention(x["Q"], x["K"], x["V"], case.heads, mask=mask)
    assert_same_bits(found, run(case, x))


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
    y = run(case, operands(case))
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
