"""Sizes that are told of a model's values, beside those that they have when it runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.constants import Stored
from octavo.graph.analysis.dims import AtMost, Dim, Dims, Known, OneOf

FLOAT, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LIMIT = 6  # rows of the table

# What is read, the operator, what is made, and the sizes that have to be known of it.
STEPS: list[tuple[str, str, str, dict[str, Any], tuple[Dim, ...] | None]] = [
    ("x", "Relu", "relu", {}, ("B", "S", 8)),
    ("x w", "MatMul", "product", {}, ("B", "S", 12)),
    ("product bias", "Add", "biased", {}, ("B", "S", 12)),
    ("x", "Shape", "shape", {}, (3,)),
    ("shape i0", "Gather", "b", {}, ()),
    ("shape i1", "Gather", "s", {}, ()),
    ("b v0", "Unsqueeze", "b1", {}, (1,)),
    ("s v0", "Unsqueeze", "s1", {}, (1,)),
    ("m", "Shape", "beyond", {"start": 2, "end": 3}, None),
    ("beyond", "ConstantOfShape", "one_number", {"value": 1}, ()),
    ("b1 s1 heads", "Concat", "to_heads", {"axis": 0}, None),
    ("biased to_heads", "Reshape", "by_heads", {}, ("B", "S", 3, 4)),
    ("by_heads", "Transpose", "turned", {"perm": [0, 2, 3, 1]}, ("B", 3, 4, "S")),
    ("by_heads", "Transpose", "heads_first", {"perm": [0, 2, 1, 3]}, ("B", 3, "S", 4)),
    ("heads_first turned", "MatMul", "scores", {}, ("B", 3, "S", "S")),
    ("biased", "Shape", "copied_shape", {}, (3,)),
    ("biased copied", "Reshape", "by_copies", {}, ("B", "S", 3, 4)),
    ("biased open", "Reshape", "flat", {}, (None,)),
    ("flat copied_shape", "Reshape", "as_it_was", {"allowzero": 1}, ("B", "S", 12)),
    ("heads_first", "ReduceMax", "range", {"axes": [-1]}, ("B", 3, "S", 1)),
    ("heads_first heads_of", "Split", "first_head rest", {"axis": 1}, ("B", 1, "S", 4)),
    ("rest", "Neg", "of_rest", {}, ("B", 2, "S", 4)),
    ("m", "Flatten", "in_one", {"axis": 2}, (None, 1)),
    ("m", "Flatten", "in_two", {}, ("B", "S")),
    ("m", "Flatten", "at_last", {"axis": -1}, ("B", "S")),
    ("m", "Flatten", "at_first", {"axis": 0}, (1, None)),
    ("m middle", "Unsqueeze", "mask", {}, ("B", 1, 1, "S")),
    ("s minus", "Unsqueeze", "s_last", {}, (1,)),
    ("by_heads minus", "Unsqueeze", "columns", {}, ("B", "S", 3, 4, 1)),
    ("m behind", "Unsqueeze", "behind_all", {}, ("B", "S", 1, 1)),
    ("scores mask", "Add", "masked", {}, ("B", 3, "S", "S")),
    ("i0 s i1", "Range", "steps", {}, ("S",)),
    ("i1 s i1", "Range", "later", {}, None),
    ("b1 v1 s1 s1", "Concat", "target", {"axis": 0}, None),
    ("mask target", "Expand", "wide", {}, ("B", 1, "S", "S")),
    ("b1 minus s1 s1", "Concat", "open_target", {"axis": 0}, None),
    ("open_target", "Shape", "shape_of_target", {}, None),
    ("shape_of_target", "ConstantOfShape", "ones", {"value": 1}, None),
    ("target", "ConstantOfShape", "filled", {"value": 1}, ("B", 1, "S", "S")),
    ("of_a_number", "ConstantOfShape", "number", {"value": 1}, ()),
    ("ones m1", "Mul", "marks", {}, None),
    ("open_target marks", "Equal", "is_open", {}, None),
    ("is_open ones open_target", "Where", "closed", {}, None),
    ("mask closed", "Expand", "as_pytorch", {}, ("B", 1, "S", "S")),
    ("table v0 s1 v0", "Slice", "rows", {}, (AtMost("S", LIMIT), 8)),
    ("x rows", "Add", "with_rows", {}, ("B", "S", 8)),
    ("wide", "Cast", "as_bool", {"to": BOOL}, ("B", 1, "S", "S")),
    ("as_bool", "Not", "others", {}, ("B", 1, "S", "S")),
    ("x again", "Gather", "picked", {"axis": -1}, ("B", "S", 2, 3)),
    ("unknown", "Relu", "of_unknown", {}, ("unknown[0]", "S")),
    ("unknown m", "Add", "with_known", {}, (OneOf(frozenset({"unknown[0]", "B"})), "S")),
    ("i0 i1_back i1", "Range", "nothing", {}, (0,)),
]
CONSTANTS = {
    "w": np.ones((8, 12), np.float32),
    "bias": np.ones(12, np.float32),
    "table": np.ones((LIMIT, 8), np.float32),
    "i0": np.array(0),
    "i1": np.array(1),
    "i1_back": np.array(-1),
    "m1": np.array(-1),
    "v0": np.array([0]),
    "v1": np.array([1]),
    "minus": np.array([-1]),
    "middle": np.array([1, 2]),
    "behind": np.array([-1, -2]),
    "heads": np.array([3, 4]),
    "heads_of": np.array([1, 2]),
    "copied": np.array([0, 0, 3, 4]),
    "open": np.array([-1]),
    "of_a_number": np.array([], np.int64),
    "again": np.array([[0, 0, 0], [0, 0, 0]]),
}


def names_made() -> list[str]:
    return [name for _, _, made, _, _ in STEPS for name in made.split()]


def model() -> Any:
    nodes = []
    for reads, op, made, attributes, _ in STEPS:
        given = dict(attributes)
        if op == "ConstantOfShape":
            given["value"] = helper.make_tensor("v", I64, [1], [given["value"]])
        nodes.append(helper.make_node(op, reads.split(), made.split(), **given))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "sizes",
        [
            info("x", FLOAT, ["B", "S", 8]),
            info("m", FLOAT, ["B", "S"]),
            info("unknown", FLOAT, [-1, "S"]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in names_made()],
        [numpy_helper.from_array(a, name) for name, a in CONSTANTS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def told_of(strictly: bool) -> dict[str, tuple[Dim, ...] | None]:
    found = ir.from_proto(model())
    dims = Dims(found, Stored(), strictly=strictly)
    return {o.name or "": dims(o) for node in found.graph for o in node.outputs}


@pytest.fixture(scope="module")
def told() -> dict[str, tuple[Dim, ...] | None]:
    return told_of(strictly=False)


@pytest.fixture(scope="module")
def told_strictly() -> dict[str, tuple[Dim, ...] | None]:
    return told_of(strictly=True)


def test_what_has_to_be_known(told: dict[str, tuple[Dim, ...] | None]) -> None:
    for _, _, made, _, wanted in STEPS:
        if wanted is not None:
            assert told[made.split()[0]] == wanted, made


def test_what_has_to_be_known_of_every_run(
    told_strictly: dict[str, tuple[Dim, ...] | None],
) -> None:
    b, s, c = "x[0]", "x[1]", "m[1]"
    rows = OneOf(frozenset({b, "m[0]"}))
    assert told_strictly["biased"] == (b, s, 12)
    assert told_strictly["by_heads"] == (b, s, 3, 4)
    assert told_strictly["scores"] == (b, 3, s, s)
    assert told_strictly["masked"] == (rows, 3, s, OneOf(frozenset({s, c})))
    assert told_strictly["with_rows"] == (b, s, 8)
    assert told_strictly["with_known"][0] == OneOf(frozenset({"unknown[0]", "m[0]"}))


RUNS = [(1, 1), (2, 5), (3, 1), (1, 6), (0, 4), (2, 0)]


@pytest.mark.parametrize(("b", "s"), RUNS)
def test_nothing_is_told_that_is_not_so(
    told: dict[str, tuple[Dim, ...] | None], b: int, s: int
) -> None:
    check(told, {"x": (b, s, 8), "m": (b, s), "unknown": (1, s)}, {"B": b, "S": s})


@pytest.mark.parametrize(("b", "s"), RUNS)
@pytest.mark.parametrize(("c", "d"), [(1, 1), (None, 1), (1, None), (None, None)])
def test_nor_of_inputs_that_do_not_keep_to_the_names(
    told_strictly: dict[str, tuple[Dim, ...] | None],
    b: int,
    s: int,
    c: int | None,
    d: int | None,
) -> None:
    m = (b if c is None else c, s if d is None else d)
    check(told_strictly, {"x": (b, s, 8), "m": m, "unknown": (1, m[1])}, {})


def check(
    told: dict[str, tuple[Dim, ...] | None],
    shapes: dict[str, tuple[int, ...]],
    named: dict[str, int],
) -> None:
    """Runs the model on inputs of these shapes."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    runner = ort.InferenceSession(
        model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    named = named | {
        f"{name}[{i}]": n for name, shape in shapes.items() for i, n in enumerate(shape)
    }
    made = names_made()
    feed = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    arrays = runner.run(made, feed)
    named |= {
        f"{name}[{i}]": n
        for name, a in zip(made, arrays, strict=True)
        for i, n in enumerate(a.shape)
    }
    for name, array in zip(made, arrays, strict=True):
        dims = told[name]
        if dims is None:
            continue
        assert len(dims) == array.ndim, name
        for d, n in zip(dims, array.shape, strict=True):
            assert d is None or size_of(d, named) == n, (name, dims, array.shape)


def size_of(told: Known, named: dict[str, int]) -> int:
    if isinstance(told, AtMost):
        return min(named[told.size], told.limit)
    if isinstance(told, OneOf):
        return next((n for p in told.sizes if (n := size_of(p, named)) != 1), 1)
    return told if isinstance(told, int) else named[told]


def concats(parts: int, times: int) -> tuple[ir.Value, ir.Model]:
    """A vector that is joined with itself, or alone, again and again."""
    names = ["v", *(f"v{i}" for i in range(times))]
    graph = helper.make_graph(
        [helper.make_node("Concat", [a] * parts, [b], axis=0) for a, b in pairwise(names)],
        "concats",
        [],
        [helper.make_tensor_value_info(names[-1], I64, None)],
        [numpy_helper.from_array(np.array([3]), "v")],
    )
    model = ir.from_proto(helper.make_model(graph))
    return model.graph.outputs[0], model


@pytest.mark.parametrize(("parts", "times"), [(2, 64), (1, 5000), (17, 1)])
def test_shapes_that_nobody_writes_are_given_up(parts: int, times: int) -> None:
    last, model = concats(parts, times)
    assert sizes(last, Stored()) is None
    assert Dims(model, Stored())(last) is None


@pytest.mark.parametrize(("parts", "times"), [(2, 1), (2, 3), (1, 3), (16, 1)])
def test_shapes_of_shapes(parts: int, times: int) -> None:
    last, _model = concats(parts, times)
    assert sizes(last, Stored()) == [3] * parts**times


@pytest.mark.parametrize(
    "array", [np.array([1.0, np.inf]), np.ones(4000, np.int64), np.array([True])]
)
def test_constants_that_are_no_shapes(array: Any) -> None:
    value = ir.Value(name="v", const_value=ir.Tensor(array))
    ir.Graph([], [], nodes=[], initializers=[value])
    assert sizes(value, Stored()) is None


@pytest.mark.parametrize(
    ("nodes", "axes"),
    [
        ("s = Shape <start = 0> (x) v = Gather (s, order)", [0, 2, 1, 3]),
        ("s = Shape (x) g = Gather (s, order) v = Slice (g, last, far)", [3]),
        ("s = Shape (x) g = Gather (s, order) v = Gather (g, one)", [2]),
        ("s = Shape <start = 0> (x) v = Gather (s, one)", [1]),
        ("s = Shape <start = 1> (x) v = Gather (s, order)", None),
        ("s = Shape (x) v = Gather (s, last)", None),
    ],
)
def test_parts_of_a_shape_in_another_order(nodes: str, axes: list[int] | None) -> None:
    """As ONNX Runtime writes the shape of a Transpose that it moved behind."""
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[a, b, c, d] x) => (int64[n] v)
        <int64[4] order = {{0, 2, 1, 3}}, int64[1] one = {{1}}, int64[1] last = {{-1}},
         int64[1] far = {{9223372036854775807}}> {{ {nodes} }}
    """
    model = ir.from_proto(onnx.parser.parse_model(text))
    found = sizes(model.graph.outputs[0], Stored())
    x = model.graph.inputs[0]
    assert found == (None if axes is None else [SizeOf(x, axis) for axis in axes])
