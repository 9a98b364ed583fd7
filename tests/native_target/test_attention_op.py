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
from tests.native_target.nodes import (
    REFUSALS,
    assert_same_on_every_isa,
    inferred,
    run,
    session,
)

FLOAT = np.dtype(np.float32)
cases = pytest.mark.parametrize("case", CASES, ids=str)


def exact(case: Case, x: dict[str, np.ndarray], scale: float | None = None) -> np.ndarray:
    factor = 1 / np.sqrt(case.depth) if scale is None else scale
    return reference(x["Q"], x["K"], x["V"], case.heads, factor, x.get("bias"))


@cases
def test_it_computes_what_is_stated(case: Case) -> None:
    x = operands(case)
    y = run("Attention", x, {}, heads=case.heads)
    np.testing.assert_allclose(y, exact(case, x), rtol=2e-5, atol=2e-6)


@cases
def test_two_threads_give_the_same_bits(case: Case) -> None:
    x = operands(case)
    one, two = (run("Attention", x, {}, threads, heads=case.heads) for threads in (1, 2))
    assert_same_bits(one, two)


def test_a_row_does_not_depend_on_the_batch() -> None:
    case = CASES[3]
    x = operands(case)
    whole = run("Attention", x, {}, heads=case.heads)
    second = run("Attention", {n: a[1:] for n, a in x.items()}, {}, heads=case.heads)
    assert_same_bits(whole[1:], second)


@cases
def test_products_of_bfloat16_are_an_attribute(case: Case) -> None:
    x = operands(case)
    bias = x.get("bias")
    kernel = attention(x["Q"], x["K"], x["V"], case.heads, 0.25, bias, bfloat16=True)
    assert_same_bits(run("Attention", x, {}, heads=case.heads, scale=0.25, bfloat16=1), kernel)


def test_scale_is_an_attribute() -> None:
    case = CASES[1]
    x = operands(case)
    y = run("Attention", x, {}, heads=case.heads, scale=0.7)
    np.testing.assert_allclose(y, exact(case, x, 0.7), rtol=2e-5, atol=2e-6)


def test_keys_that_are_hidden_weigh_nothing() -> None:
    x = operands(Case(1, 1, 3, 4, 8, 8))
    x["bias"] = np.array([[0, 0, -np.inf, np.finfo(np.float32).min]], np.float32)
    x["V"][0, 2:] = 1e30
    seen = {"Q": x["Q"], "K": x["K"][:, :2], "V": x["V"][:, :2]}
    np.testing.assert_allclose(
        run("Attention", x, {}, heads=1), run("Attention", seen, {}, heads=1), rtol=1e-6
    )


@pytest.mark.parametrize("alone", [{"Q"}, {"K", "V"}, {"Q", "K", "V"}])
def test_a_batch_of_one_is_repeated(alone: set[str]) -> None:
    case = Case(3, 2, 20, 33, 16, 16, (3, 1, 20, 33))
    x = operands(case)
    x |= {name: x[name][:1] for name in alone}
    every = {n: np.broadcast_to(a, (3, *a.shape[1:])).copy() for n, a in x.items()}
    assert_same_bits(run("Attention", x, {}, heads=2), run("Attention", every, {}, heads=2))


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
@settings(max_examples=60, deadline=None)
def test_a_mask_may_be_larger_than_the_products(given_: tuple[Case, set[str]]) -> None:
    """As ONNX broadcasts; Q, K and V with a batch of 1 are repeated too."""
    case, alone = given_
    x = operands(case)
    x |= {name: x[name][:1] for name in alone}
    y = run("Attention", x, {}, heads=case.heads)
    expected = exact(case, x)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "shape,expected",
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
    case = Case(1, 2, 1, 5, 8, 8, (4, 1, 6, 5))
    x = operands(case)
    y = run("Attention", x, {}, heads=2, shape=shape)
    assert y.shape == expected
    whole = run("Attention", x, {}, heads=2)
    assert whole.shape == (4, 6, 16)
    assert_same_bits(y.reshape(whole.shape), whole)


@pytest.mark.parametrize("shape", [(-2, -2, 16), (0, -2, 16), (0, 0, 32)])
def test_shapes_that_the_output_does_not_fit(shape: tuple[int, ...]) -> None:
    x = operands(Case(1, 2, 1, 5, 8, 8, (4, 1, 6, 5)))
    with pytest.raises(REFUSALS, match=r"make the output \[4, 6, 16\], and the attribute shape"):
        run("Attention", x, {}, heads=2, shape=shape)


def test_not_a_number_stays_in_its_row() -> None:
    x = operands(Case(1, 2, 5, 6, 8, 8))
    clean = run("Attention", x, {}, heads=2)
    x["Q"][0, 3, 0] = np.nan  # of the first head
    y = run("Attention", x, {}, heads=2)
    assert np.isnan(y[0, 3, :8]).all()
    y[0, 3, :8] = clean[0, 3, :8]
    assert_same_bits(y, clean)


@pytest.mark.parametrize("queries,keys,batch", [(0, 4, 1), (3, 0, 1), (3, 4, 0)])
def test_nothing_to_attend(queries: int, keys: int, batch: int) -> None:
    x = operands(Case(batch, 2, queries, keys, 4, 4))
    y = run("Attention", x, {}, heads=2)
    assert y.shape == (batch, queries, 8)
    assert not y.any()


def test_every_instruction_set_gives_the_same_bits() -> None:
    assert_same_on_every_isa("tests.native_target.attention_bits")


def test_shapes_are_inferred() -> None:
    shapes: Any = {"Q": ["b", "s", 96], "K": ["b", "t", 96], "V": ["b", "t", 64]}
    found = inferred("Attention", dict.fromkeys(shapes, FLOAT), shapes, {}, heads=4)
    assert found == ["b", "s", 64]


@pytest.mark.parametrize(
    "bias,shape,expected",
    [
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
def test_shapes_with_a_bias_are_inferred(
    bias: list[Any], shape: tuple[int, ...], expected: list[Any]
) -> None:
    """A size that a run may make larger is not said to be Q's."""
    shapes: Any = {"Q": ["b", "s", 96], "K": ["b", "t", 96], "V": ["b", "t", 64], "bias": bias}
    dtypes = dict.fromkeys(shapes, FLOAT)
    assert inferred("Attention", dtypes, shapes, {}, heads=4, shape=shape) == expected


@pytest.mark.parametrize(
    "change,message",
    [
        ({"Q": (2, 5, 13)}, r"Q has shape \[2, 5, 13\]; .* a multiple of 4 heads"),
        ({"K": (3, 6, 16)}, r"K has shape \[3\], which does not broadcast with Q's \[2\]"),
        ({"K": (2, 6, 20)}, r"and K \[2, 6, 20\]; their depth of a head"),
        ({"V": (2, 7, 16)}, r"K has shape \[2, 6, 16\] and V \[2, 7, 16\]; their length"),
        ({"bias": (2, 4, 5, 7)}, r"bias has shape \[2, 4, 5, 7\], which does not broadcast"),
        ({"bias": (7, 6)}, r"bias has shape \[7, 6\], which does not broadcast with the product's"),
        ({"bias": (3, 2, 1, 5, 6)}, r"the leading dimensions \[3, 2\]; its layout has one"),
        ({"K": (2, 1, 16), "V": (2, 1, 16)}, r"bias has shape \[5, 6\] for 1 keys; its last"),
    ],
)
def test_shapes_that_do_not_fit(change: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"Q": (2, 5, 16), "K": (2, 6, 16), "V": (2, 6, 16), "bias": (5, 6)} | change
    feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(REFUSALS, match=message):
        run("Attention", feeds, {}, heads=4)


@pytest.mark.parametrize(
    "attributes,message",
    [
        ({}, "heads is missing"),
        ({"heads": 0}, "heads is 0, not in 1"),
        ({"heads": 2, "shape": [0, -1]}, "shape has to be three sizes"),
        ({"heads": 2, "shape": [-1, 0, -1]}, "shape has to be three sizes"),
        ({"heads": 2, "shape": [-3, 0, -1]}, "shape has to be three sizes"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    shapes: Any = {name: ["b", "s", 8] for name in "QKV"}
    with pytest.raises(REFUSALS, match=message):
        session("Attention", dict.fromkeys(shapes, FLOAT), shapes, {}, **attributes)
