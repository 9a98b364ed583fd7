"""Activations of the same sizes share what depends on nothing else, and on nobody's values."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.onnx import convert_target
from tests.graphs import (
    FLOAT,
    INT8,
    MS,
    Array,
    Converted,
    assert_close,
    build,
    convert,
    node,
    run,
    sizes,
    text,
    values,
    weight,
)

BOTH = "float[] ya, float[] yb"
K, N = 1024, 24
WA, WB = weight(K, N), weight(K, N, seed=5)
NAMED = ("batch", "length", K)
PAIRS = {
    "one input": (NAMED, "a"),
    "numbers": ((2, 3, K), (2, 3, K)),
    "the same names": (NAMED, NAMED),
    "other names": (NAMED, ("batch", "words", K)),
    "other numbers": ((2, 3, K), (3, 2, K)),
    "no names": ((None, None, K), (None, None, K)),
    "unknown": (None, None),
}
SHARED = ("one input", "numbers")


def two(a: Any, b: Any) -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["a", "wa"], ["ya"]),
        node("Gelu", ["a" if b == "a" else "b"], ["g"], domain=MS),
        node("Mul", ["g", "far"], ["h"]),
        node("MatMul", ["h", "wb"], ["yb"]),
    ]
    inputs = {"a": (FLOAT, a)} | ({} if b == "a" else {"b": (FLOAT, b)})
    return build(nodes, inputs, ["ya", "yb"], {"wa": WA, "wb": WB, "far": np.float32(-1)})


def assert_near(done: Converted, model: onnx.ModelProto, feed: dict[str, Any]) -> list[Array]:
    """Both outputs, each by the sizes of its weight."""
    found = run(done.path, feed)
    for actual, wanted, w in zip(found, run(model, feed), (WA, WB), strict=True):
        assert_close(actual, wanted, INT8, sizes(w))
    return found


def feeds(a: Any, b: Any) -> dict[str, Any]:
    numbers = {"batch": 2, "length": 3, "words": 4, None: 2}
    given = {"a": a} | ({} if b == "a" else {"b": b})
    shapes = {name: [numbers.get(d, d) for d in (s or (5, K))] for name, s in given.items()}
    return {name: values(*s, seed=i) for i, (name, s) in enumerate(shapes.items())}


@pytest.mark.parametrize("pair", PAIRS)
def test_what_has_the_same_sizes_is_made_once(pair: str, tmp_path: Path) -> None:
    a, b = PAIRS[pair]
    model, feed = two(a, b), feeds(a, b)
    done = convert(model, tmp_path)
    counts = Counter(done.ops)
    # A Shape for the integers and one for the zero points.
    assert (counts["Shape"], counts["ConstantOfShape"]) == ((2, 1) if pair in SHARED else (4, 2))
    for found, wanted, w in zip(run(done.path, feed), run(model, feed), (WA, WB), strict=True):
        assert_close(found, wanted, INT8, sizes(w))


def test_zero_points_are_shared_by_those_that_have_the_same(tmp_path: Path) -> None:
    """Behind a Relu rows count from 0, beside it from 128."""
    nodes = [
        node("MatMul", ["a", "wa"], ["ya"]),
        node("Relu", ["a"], ["h"]),
        node("MatMul", ["h", "wb"], ["yb"]),
    ]
    model = build(nodes, {"a": (FLOAT, (2, 3, K))}, ["ya", "yb"], {"wa": WA, "wb": WB})
    done, feed = convert(model, tmp_path), {"a": values(2, 3, K)}
    assert_near(done, model, feed)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_what_is_not_finite_stays_with_its_own(value: float, tmp_path: Path) -> None:
    fixed = (2, 3, K)
    path = convert(two(fixed, fixed), tmp_path).path
    feed = feeds(fixed, fixed)
    clean = run(path, feed)
    feed["a"][1, 2, 7] = value
    ya, yb = run(path, feed)
    assert np.array_equal(yb, clean[1])
    changed = ~(ya == clean[0]).all(axis=-1)
    assert changed.nonzero() == (np.array([1]), np.array([2]))
    assert np.isfinite(ya[1, 2]).all() == np.isfinite(value)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (1, 1), (7, 5)])
def test_any_number_of_rows(shape: tuple[int, int], tmp_path: Path) -> None:
    model = two(NAMED, "a")
    for found in assert_near(convert(model, tmp_path), model, {"a": values(*shape, K)}):
        assert found.shape == (*shape, N)


@pytest.mark.parametrize("names", [NAMED, ("?", "?", K), ("None", "None", K)])
def test_inputs_that_do_not_keep_to_the_names(names: Any, tmp_path: Path) -> None:
    """One query and four passages, both called batch by length: the float model runs."""
    model = two(names, names)
    done = convert(model, tmp_path)
    for a, b in ((1, 6), (6, 1)), ((2, 3), (2, 5)), ((2, 3), (3, 2)), ((1, 8), (4, 8)):
        assert_near(done, model, {"a": values(*a, K), "b": values(*b, K, seed=3)})


def test_a_reshape_copies_sizes_for_none(tmp_path: Path) -> None:
    """x is laid out as s says, but as it was where s has no rows."""
    body = """of_s = Shape (s)
        rows = Gather (of_s, first)
        wanted = Concat <axis = 0> (rows, k)
        r = Reshape (x, wanted)
        ya = MatMul (r, wa)
        yb = MatMul (s, wb)"""
    weights = {"wa": WA, "wb": WB, "k": np.array([K]), "first": np.array([0])}
    model = text(body, f"float[S, {K}] s, float[B, {K}] x", BOTH, weights)
    done = convert(model, tmp_path)
    for s, x in ((0, 2), (3, 3)):
        assert_near(done, model, {"s": values(s, K), "x": values(x, K, seed=3)})


def test_nodes_in_any_order(tmp_path: Path) -> None:
    """Which ONNX forbids and ONNX Runtime takes: the layer that is listed first runs last."""
    body = """r = Reshape (y1, sizes)
        ya = MatMul (r, wa)
        yb = MatMul (b, wb)
        y1 = MatMul (yb, back)"""
    weights = {"wa": WA, "wb": WB, "back": weight(N, K, seed=7), "sizes": np.array([2, 3, K])}
    model = text(body, f"float[2, 3, {K}] b", "float[] ya", weights)
    done = convert(model, tmp_path)
    assert "nodes were put in the order in which they run" in done.report.notes
    feed = {"b": values(2, 3, K)}
    assert_close(run(done.path, feed)[0], run(model, feed)[0], INT8, 3 * sizes(WA))


@pytest.mark.parametrize("first", ["outside", "inside"])
def test_a_branch_has_its_own(first: str, tmp_path: Path) -> None:
    """What is made in a branch that may not run is not there for others."""
    layers = [
        "[outer] ya = MatMul (a, wa)",
        """yb = If (c) <then_branch = t () => (float[] o) { [inner] o = MatMul (a, wb) },
                        else_branch = e () => (float[] p) { p = Identity (zeros) }>""",
    ]
    body = " ".join(layers if first == "outside" else layers[::-1])
    weights = {"wa": WA, "wb": WB, "zeros": np.zeros((1, 1, N), np.float32)}
    model = text(body, f"float[batch, length, {K}] a, bool c", BOTH, weights)
    done = convert(model, tmp_path)
    assert done.outcome("outer").quantized and done.outcome("inner").quantized
    for condition in (True, False):
        assert_near(done, model, {"a": values(2, 3, K), "c": np.array(condition)})


def test_target_native_knows_whose_shape_it_is(tmp_path: Path) -> None:
    done = convert(two(NAMED, "a"), tmp_path)
    convert_target(done.path, tmp_path / "native.onnx", to="native")
    ops = Counter(n.op_type for n in onnx.load(tmp_path / "native.onnx").graph.node)
    assert (ops["Linear"], ops["QuantizeLinear"], ops["Shape"]) == (2, 0, 0)


def test_and_leaves_what_gets_another_shape(tmp_path: Path) -> None:
    """Integers that are laid out as something of unknown sizes are no longer the rows they were."""
    done = convert(two(NAMED, ("batch", "words", K)), tmp_path)
    proto = onnx.load(done.path)
    shapes = {n.input[0]: n for n in proto.graph.node if n.op_type == "Shape"}
    back = next(n for n in proto.graph.node if n.output[0] == "h_quantized")
    back.input[1] = shapes["a"].output[0]
    onnx.save(proto, tmp_path / "changed.onnx")
    convert_target(tmp_path / "changed.onnx", tmp_path / "native.onnx", to="native")
    ops = Counter(n.op_type for n in onnx.load(tmp_path / "native.onnx").graph.node)
    assert (ops["Linear"], ops["MatMulIntegerToFloat"]) == (1, 1)
