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
from tests.graphs import F32, build, normal, save

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
    weights = {f"w{i}": normal(WIDTH, WIDTH, seed=i) for i in range(2)}
    made = build(nodes, {"x": (F32, ["n", WIDTH])}, ["y"], weights, ir=10, functions=functions)
    del made.opset_import[:]
    made.opset_import.extend(imports(opset, *more))
    return made


def function(
    name: str, inputs: list[str], nodes: list[onnx.NodeProto], opset: int, *more: tuple[str, int]
) -> onnx.FunctionProto:
    """One that gives b."""
    return helper.make_function(DOMAIN, name, inputs, ["b"], nodes, imports(opset, *more))


def layer(opset: int, name: str = "layer") -> onnx.FunctionProto:
    """Nothing in it has changed in years, but for what types it takes."""
    nodes = [node("MatMul", ["a", "w"], ["m"]), node("Relu", ["m"], ["b"])]
    return function(name, ["a", "w"], nodes, opset)


def centred(opset: int) -> onnx.FunctionProto:
    """What is left of the mean; axes are an attribute up to 17, and an input from 18 on."""
    if opset < 18:
        mean = [node("ReduceMean", ["a"], ["mean"], axes=[-1], keepdims=1)]
    else:
        mean = [constant("axes", [-1]), node("ReduceMean", ["a", "axes"], ["mean"], keepdims=1)]
    nodes = [*mean, node("Sub", ["a", "mean"], ["b"])]
    return function("centred", ["a"], nodes, opset)


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


@pytest.mark.parametrize(
    ("opset", "of_layer", "of_centred", "target"),
    [
        (17, 13, 17, "portable"),
        (17, 17, 13, "native"),
        (21, 18, 17, "portable"),
        (21, 15, 18, "native"),
        (17, 17, 18, "native"),
        (13, 18, 11, "portable"),
        (17, 9, 21, "native"),
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
    unsqueezed = function("inner", ["a"], [referring("Unsqueeze", ["a"], ["b"], axes="where")], 11)
    unsqueezed.attribute.append("where")
    nodes = [
        node("MatMul", ["a", "w"], ["m"]),
        node("inner", ["m"], ["u"], domain=DOMAIN),
        referring("Softmax", ["u"], ["b"], axis="axis"),
    ]
    outer = function("outer", ["a", "w"], nodes, 9)
    outer.attribute.extend(["where", "axis"])
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
    sums = node("ReduceSum", ["m"], ["s"], axes=[1], keepdims=1)
    body, other = (
        helper.make_graph([each], out, [], [helper.make_tensor_value_info(out, F32, None)])
        for each, out in ((sums, "s"), (node("Identity", ["m"], ["o"]), "o"))
    )
    nodes = [
        node("MatMul", ["a", "w"], ["m"]),
        constant("yes", True),
        node("If", ["yes"], ["b"], then_branch=body, else_branch=other),
    ]
    proto = model([call("sums", ["x", "w0"], "y")], [function("sums", ["a", "w"], nodes, 11)], 17)
    check(proto, tmp_path, lambda x: (x @ normal(WIDTH, WIDTH)).sum(1, keepdims=True))


def test_several_outputs_and_nodes_keep_their_order(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["a", "w"], ["m"]),
        node("Split", ["m"], ["left", "right"], axis=1, split=[16, 48]),
        node("Concat", ["right", "left"], ["b"], axis=1),
    ]
    turned = function("turned", ["a", "w"], nodes, 11)
    proto = model([call("turned", ["x", "w0"], "y")], [turned], 18)
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
    unit = function("unit", ["a", "w"], nodes, 17, ("ai.onnx.ml", 1))
    proto = model([call("unit", ["x", "w0"], "y")], [unit], 17, ("ai.onnx.ml", 3))

    def wanted(x: np.ndarray) -> Any:
        h = x @ normal(WIDTH, WIDTH)
        return h / np.linalg.norm(h, axis=1, keepdims=True)

    check(proto, tmp_path, wanted)


RECURSIVE = function("f", ["a"], [node("f", ["a"], ["b"], domain=DOMAIN)], 17)
INCONVERTIBLE = function("f", ["a"], [node("Scan8Like", ["a"], ["b"])], 8)


@pytest.mark.parametrize(
    ("called", "said"),
    [
        (RECURSIVE, "cannot be inlined, as they call themselves.*without such functions"),
        (layer(99), "a local function has opset 99; up to 2[0-9] are supported"),
        (INCONVERTIBLE, "Scan8Like .* has opset 8, the model 17.*Export the model again with one"),
    ],
    ids=["recursive", "too new", "inconvertible"],
)
def test_the_advice_fits_the_cause(called: onnx.FunctionProto, said: str, tmp_path: Path) -> None:
    proto = model([call(called.name, ["x", "w0"][: len(called.input)], "y")], [called], 17)
    with pytest.raises(ModelError, match=said):
        quantize_dynamic(proto, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
