"""Local functions that are written in another opset than their model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.errors import ModelError
from octavo.onnx import inspect, quantize_dynamic, session
from tests.graphs import F32, normal, save

WIDTH = 64
DOMAIN = "local"


def imports(opset: int, *more: tuple[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid(*pair) for pair in (("", opset), (DOMAIN, 1), *more)]


def node(op: str, inputs: list[str], outputs: list[str], **more: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **more)


def constant(name: str, value: Any) -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(value)))


def referring(op: str, inputs: list[str], outputs: list[str], **refers: str) -> onnx.NodeProto:
    """A node whose attributes are those of the call: name=attribute of the function."""
    made = node(op, inputs, outputs)
    for name, of in refers.items():
        kind = onnx.AttributeProto.INTS if name in ("axes", "split") else onnx.AttributeProto.INT
        made.attribute.add(name=name, ref_attr_name=of, type=kind)
    return made


def model(
    nodes: list[onnx.NodeProto],
    functions: list[onnx.FunctionProto],
    opset: int,
    *more: tuple[str, int],
) -> onnx.ModelProto:
    """x [n, WIDTH] -> `nodes` -> y, with weights w0 and w1."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F32, ["n", WIDTH])],
        [helper.make_tensor_value_info("y", F32, None)],
        [numpy_helper.from_array(normal(WIDTH, WIDTH, seed=i), f"w{i}") for i in range(2)],
    )
    made = helper.make_model(graph, opset_imports=imports(opset, *more), ir_version=10)
    made.functions.extend(functions)
    return made


def layer(opset: int, name: str = "layer") -> onnx.FunctionProto:
    """Nothing in it has changed in years, but for what types it takes."""
    nodes = [node("MatMul", ["a", "w"], ["m"]), node("Relu", ["m"], ["b"])]
    return helper.make_function(DOMAIN, name, ["a", "w"], ["b"], nodes, imports(opset))


def centred(opset: int) -> onnx.FunctionProto:
    """What is left of the mean; axes are an attribute up to 17, and an input from 18 on."""
    if opset < 18:
        mean = [node("ReduceMean", ["a"], ["mean"], axes=[-1], keepdims=1)]
    else:
        mean = [constant("axes", [-1]), node("ReduceMean", ["a", "axes"], ["mean"], keepdims=1)]
    nodes = [*mean, node("Sub", ["a", "mean"], ["b"])]
    return helper.make_function(DOMAIN, "centred", ["a"], ["b"], nodes, imports(opset))


def call(op: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return node(op, inputs, [output], domain=DOMAIN, **attributes)


def expected(x: np.ndarray) -> np.ndarray:
    h = np.maximum(x @ normal(WIDTH, WIDTH, seed=0), 0)
    h = h - h.mean(-1, keepdims=True)
    return h @ normal(WIDTH, WIDTH, seed=1)


def check(proto: onnx.ModelProto, folder: Path, wanted: Any, target: str = "portable") -> Any:
    """Quantizes, runs and compares with NumPy; returns the report."""
    report = quantize_dynamic(save(proto, folder / "m.onnx"), folder / "out.onnx", target=target)
    assert not onnx.load(folder / "out.onnx").functions
    x = normal(5, WIDTH, seed=9)
    (y,) = session(folder / "out.onnx").run(None, {"x": x})
    found = wanted(x)
    assert y.shape == found.shape
    assert 0 < np.abs(y - found).max() < 0.05 * np.abs(found).max()
    return report


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize(
    ("opset", "of_layer", "of_centred"),
    [
        (17, 13, 17),
        (17, 17, 13),
        (21, 18, 17),
        (21, 15, 18),
        (17, 17, 18),
        (13, 18, 11),
        (17, 9, 21),
    ],
)
def test_functions_are_inlined_in_one_opset(
    opset: int, of_layer: int, of_centred: int, target: str, tmp_path: Path
) -> None:
    calls = [call("layer", ["x", "w0"], "h"), call("centred", ["h"], "c")]
    proto = model(
        [*calls, node("MatMul", ["c", "w1"], ["y"])], [layer(of_layer), centred(of_centred)], opset
    )
    report = check(proto, tmp_path, expected, target)
    assert len(report.quantized) == 2
    assert report.opset == max(opset, of_layer, of_centred)
    assert any("local functions were written in opset" in note for note in report.notes)
    assert any("2 local functions were inlined" in note for note in report.notes)


def test_what_calls_say_reaches_the_nodes_that_are_converted(tmp_path: Path) -> None:
    """A function in a function, both with attributes; two calls that differ."""
    unsqueezed = helper.make_function(
        DOMAIN,
        "inner",
        ["a"],
        ["b"],
        [referring("Unsqueeze", ["a"], ["b"], axes="where")],
        imports(11),
        ["where"],
    )
    outer = helper.make_function(
        DOMAIN,
        "outer",
        ["a"],
        ["b"],
        [
            node("MatMul", ["a", "w"], ["m"]),
            node("inner", ["m"], ["u"], domain=DOMAIN),
            referring("Softmax", ["u"], ["b"], axis="axis"),
        ],
        imports(9),
        ["where", "axis"],
    )
    outer.input.append("w")
    outer.node[1].attribute.add(name="where", ref_attr_name="where", type=onnx.AttributeProto.INTS)
    calls = [
        call("outer", ["x", "w0"], "p", where=[0], axis=2),  # [1, n, WIDTH]
        call("outer", ["x", "w1"], "q", where=[1], axis=1),  # [n, 1, WIDTH], flattened from axis 1
        node("Add", ["p", "q"], ["y"]),
    ]

    def softmax(a: np.ndarray) -> np.ndarray:
        e = np.exp(a - a.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def wanted(x: np.ndarray) -> np.ndarray:
        p, q = (softmax(x @ normal(WIDTH, WIDTH, seed=i)) for i in range(2))
        return p[None] + q[:, None]

    proto = model(calls, [unsqueezed, outer], 17)
    check(proto, tmp_path, wanted)
    assert len(inspect(tmp_path / "m.onnx").decisions) == 2


def test_nodes_in_bodies_are_converted_too(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("ReduceSum", ["m"], ["s"], axes=[1], keepdims=1)],
        "then",
        [],
        [helper.make_tensor_value_info("s", F32, None)],
    )
    other = helper.make_graph(
        [node("Identity", ["m"], ["o"])],
        "else",
        [],
        [helper.make_tensor_value_info("o", F32, None)],
    )
    nodes = [
        node("MatMul", ["a", "w"], ["m"]),
        constant("yes", True),
        node("If", ["yes"], ["b"], then_branch=body, else_branch=other),
    ]
    function = helper.make_function(DOMAIN, "sums", ["a", "w"], ["b"], nodes, imports(11))
    proto = model([call("sums", ["x", "w0"], "y")], [function], 17)
    check(proto, tmp_path, lambda x: (x @ normal(WIDTH, WIDTH)).sum(1, keepdims=True))


def test_several_outputs_and_nodes_keep_their_order(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["a", "w"], ["m"]),
        node("Split", ["m"], ["left", "right"], axis=1, split=[16, 48]),
        node("Concat", ["right", "left"], ["b"], axis=1),
    ]
    function = helper.make_function(DOMAIN, "turned", ["a", "w"], ["b"], nodes, imports(11))
    proto = model([call("turned", ["x", "w0"], "y")], [function], 18)
    check(proto, tmp_path, lambda x: np.roll(x @ normal(WIDTH, WIDTH), 48, axis=1))


@pytest.mark.parametrize(("of_model", "of_function"), [(1, 2), (3, 1)])
def test_versions_of_the_functions_own_domain_mean_nothing(
    of_model: int, of_function: int, tmp_path: Path
) -> None:
    proto = model([call("layer", ["x", "w0"], "y")], [layer(17)], 17)
    proto.opset_import[1].version = of_model
    proto.functions[0].opset_import[1].version = of_function
    check(proto, tmp_path, lambda x: np.maximum(x @ normal(WIDTH, WIDTH), 0))


def test_an_operator_of_another_domain_that_has_not_changed_is_no_hindrance(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["a", "w"], ["m"]),
        node("Normalizer", ["m"], ["b"], domain="ai.onnx.ml", norm="L2"),
    ]
    of_it = imports(17, ("ai.onnx.ml", 1))
    function = helper.make_function(DOMAIN, "unit", ["a", "w"], ["b"], nodes, of_it)
    proto = model([call("unit", ["x", "w0"], "y")], [function], 17, ("ai.onnx.ml", 3))

    def wanted(x: np.ndarray) -> Any:
        h = x @ normal(WIDTH, WIDTH)
        return h / np.linalg.norm(h, axis=1, keepdims=True)

    check(proto, tmp_path, wanted)


# What cannot be done says why, and what to do


def recursive() -> onnx.ModelProto:
    inner = helper.make_function(
        DOMAIN, "f", ["a"], ["b"], [node("f", ["a"], ["b"], domain=DOMAIN)], imports(17)
    )
    return model([call("f", ["x"], "y")], [inner], 17)


def too_new() -> onnx.ModelProto:
    return model([call("layer", ["x", "w0"], "y")], [layer(99)], 17)


def inconvertible() -> onnx.ModelProto:
    nodes = [node("Scan8Like", ["a"], ["b"])]
    function = helper.make_function(DOMAIN, "f", ["a"], ["b"], nodes, imports(8))
    return model([call("f", ["x"], "y")], [function], 17)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (recursive, "cannot be inlined, as they call themselves.*without such functions"),
        (too_new, "a local function has opset 99; up to 26 are supported"),
        (inconvertible, "Scan8Like .* has opset 8, the model 17.*Export the model again with one"),
    ],
)
def test_the_advice_fits_the_cause(make: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        quantize_dynamic(make(), tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
