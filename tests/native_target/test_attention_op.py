"""ai.octavo.Attention: all heads at once inside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.attention import attention
from octavo.graph.rewrite.attention import reference
from tests.core.attention_cases import CASES, Case, operands
from tests.core.statement import assert_same_bits
from tests.native_target.nodes import inferred, refuses, run


def exact(case: Case, x: dict[str, np.ndarray], scale: float | None = None) -> np.ndarray:
    factor = 1 / np.sqrt(case.depth) if scale is None else scale
    return reference(x["Q"], x["K"], x["V"], case.heads, factor, x.get("bias"))


@pytest.mark.parametrize(
    ("case", "scale"), [*((case, None) for case in CASES), (CASES[1], 0.7)], ids=str
)
def test_it_computes_what_is_stated(case: Case, scale: float | None) -> None:
    x = operands(case)
    given = {"heads": case.heads} | ({} if scale is None else {"scale": scale})
    y = run("Attention", x, **given)
    np.testing.assert_allclose(y, exact(case, x, scale), rtol=2e-5, atol=2e-6)
    assert_same_bits(y, run("Attention", x, None, 2, **given))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_of_bfloat16_are_an_attribute(case: Case) -> None:
    x = operands(case)
    bias = x.get("bias")
    kernel = attention(x["Q"], x["K"], x["V"], case.heads, 0.25, bias, bfloat16=True)
    assert_same_bits(run("Attention", x, heads=case.heads, scale=0.25, bfloat16=1), kernel)


@pytest.mark.parametrize("alone", ["Q", "KV", "QKV"])
def test_a_batch_of_one_is_repeated(alone: str) -> None:
    x = operands(Case(3, 2, 20, 33, 16, 16, (3, 1, 20, 33)))
    x |= {name: x[name][:1] for name in alone}
    every = {n: np.broadcast_to(a, (3, *a.shape[1:])).copy() for n, a in x.items()}
    assert_same_bits(run("Attention", x, heads=2), run("Attention", every, heads=2))


@st.composite
def larger_masks(draw: st.DrawFn) -> tuple[Case, set[str]]:
    """Attentions whose bias has any rank and any axis of which the products have one."""
    batch, heads, queries = (draw(st.sampled_from([1, n])) for n in (3, 2, 70))
    keys, depth, width = draw(st.sampled_from([1, 5, 33])), draw(st.sampled_from([3, 16])), 16
    pairs = (batch, 4), (heads, 5), (queries, 6), (keys, 1)
    bias = [draw(st.sampled_from([n, 1] if n > 1 else [1, more])) for n, more in pairs]
    rank = draw(st.integers(0, 4))
    case = Case(batch, heads, queries, keys, depth, width, tuple(bias[4 - rank :]))
    return case, draw(st.sets(st.sampled_from("QKV")))


@given(larger_masks())
@settings(max_examples=40, deadline=None)
def test_a_mask_may_be_larger_than_the_products(given_: tuple[Case, set[str]]) -> None:
    """As ONNX broadcasts; Q, K and V with a batch of 1 are repeated too."""
    case, alone = given_
    x = operands(case)
    x |= {name: x[name][:1] for name in alone}
    y = run("Attention", x, heads=case.heads)
    expected = exact(case, x)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-6)


ENLARGED = Case(1, 2, 1, 5, 8, 8, (4, 1, 6, 5))
"""Whose output is [4, 6, 16]."""


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((0, 0, -1), (4, 6, 16)),
        ((0, 0, 16), (4, 6, 16)),
        ((-2, 0, -1), (1, 6, 64)),
        ((-2, -2, -1), (1, 1, 384)),
        ((-1, -2, 16), (24, 1, 16)),
        ((2, 12, 16), (2, 12, 16)),
    ],
)
def test_the_output_has_the_shape_that_is_asked_for(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    x = operands(ENLARGED)
    whole = run("Attention", x, heads=2)
    assert whole.shape == (4, 6, 16)
    assert_same_bits(run("Attention", x, heads=2, shape=shape), whole.reshape(expected))


@pytest.mark.parametrize(("queries", "keys", "batch"), [(0, 4, 1), (3, 0, 1), (3, 4, 0)])
def test_nothing_to_attend(queries: int, keys: int, batch: int) -> None:
    y = run("Attention", operands(Case(batch, 2, queries, keys, 4, 4)), heads=2)
    assert y.shape == (batch, queries, 8)
    assert not y.any()


SIZES: Any = {"Q": ["b", "s", 96], "K": ["b", "t", 96], "V": ["b", "t", 64]}


@pytest.mark.parametrize(
    ("bias", "shape", "expected"),
    [
        (None, (0, 0, -1), ["b", "s", 64]),
        (["b", 1, "s", "t"], (0, 0, -1), ["b", "s", 64]),
        (["b", 1, 1, "t"], (0, 0, -1), ["b", "s", 64]),
        (["m", 1, 1, "t"], (0, 0, -1), [None, "s", 64]),
        (["m", 1, 1, "t"], (-2, -2, 64), ["b", "s", 64]),
        (["m", 1, 1, "t"], (-2, -2, -1), ["b", "s", None]),
        (["b", 1, 1, "t"], (-2, -2, -1), ["b", "s", 64]),
        ([3, 1, 6, "t"], (0, 0, -1), [3, 6, 64]),
        (["b", 1, 1, "t"], (-2, -1, 64), ["b", "s", 64]),
        (["m", 1, 1, "t"], (-2, -1, 64), ["b", None, 64]),
    ],
)
def test_shapes_are_inferred(
    bias: list[Any] | None, shape: tuple[int, ...], expected: list[Any]
) -> None:
    """A size that a run may make larger is not said to be Q's."""
    shapes = SIZES | ({} if bias is None else {"bias": bias})
    assert inferred("Attention", shapes, heads=4, shape=shape) == expected


ZEROS: dict[str, tuple[int, ...]] = {"Q": (2, 5, 16), "K": (2, 6, 16), "V": (2, 6, 16)}
LARGER = {"Q": (1, 1, 16), "K": (1, 5, 16), "V": (1, 5, 16), "bias": (4, 1, 6, 5)}
REFUSED: list[tuple[dict[str, tuple[int, ...]], dict[str, Any], str]] = [
    ({"Q": (2, 5, 13)}, {}, r"Q has shape \[2, 5, 13\]; .* a multiple of 4 heads"),
    ({"K": (3, 6, 16)}, {}, r"K has shape \[3\], .* Q's \[2\]"),
    ({"K": (2, 6, 20)}, {}, r"and K \[2, 6, 20\]; their depth of a head"),
    ({"V": (2, 7, 16)}, {}, r"K has shape \[2, 6, 16\] and V \[2, 7, 16\]; their length"),
    ({"bias": (2, 4, 5, 7)}, {}, r"bias has shape \[2, 4, 5, 7\]"),
    ({"bias": (7, 6)}, {}, r"bias has shape \[7, 6\]"),
    ({"bias": (3, 2, 1, 5, 6)}, {}, r"the leading dimensions \[3, 2\]"),
    ({"K": (2, 1, 16), "V": (2, 1, 16)}, {}, r"bias has shape \[5, 6\] for 1 keys"),
    ({}, {"heads": None}, "heads is missing"),
    ({}, {"heads": 0}, "heads is 0, not in 1"),
    ({}, {"shape": [0, -1]}, "shape has to be three sizes"),
    ({}, {"shape": [-1, 0, -1]}, "shape has to be three sizes"),
    ({}, {"shape": [-3, 0, -1]}, "shape has to be three sizes"),
    *(
        (LARGER, {"shape": shape}, r"the output \[4, 6, 16\], and the attribute shape")
        for shape in ([-2, -2, 16], [0, -2, 16], [0, 0, 32])
    ),
]


@pytest.mark.parametrize(("shapes", "attributes", "message"), REFUSED)
def test_what_does_not_fit_is_refused(
    shapes: dict[str, tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    whole = {**ZEROS, "bias": (5, 6), **shapes}
    feeds = {name: np.zeros(shape, np.float32) for name, shape in whole.items()}
    given = {k: v for k, v in ({"heads": 4} | attributes).items() if v is not None}
    refuses(message, "Attention", feeds, **given)
