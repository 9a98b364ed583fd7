"""`Erfc`, which ONNX has not, in files that were converted elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from octavo.onnx import quantize_dynamic, session
from tests.graphs import F32, build, normal, save

WIDTH = 64
HALF = 1 / math.sqrt(2)


def keras_gelu(sign: str) -> Callable[[str], list[onnx.NodeProto]]:
    """`h/2 erfc(-h sqrt(1/2))`; the sign before the product, behind it, or the factor's."""

    def nodes(h: str) -> list[onnx.NodeProto]:
        argument = {
            "before": [("Neg", [h], "n"), ("Mul", ["n", "root"], "a")],
            "before-right": [("Neg", [h], "n"), ("Mul", ["root", "n"], "a")],
            "behind": [("Mul", [h, "root"], "n"), ("Neg", ["n"], "a")],
            "factor": [("Mul", [h, "negative_root"], "a")],
        }[sign]
        last = [("Erfc", ["a"], "e"), ("Mul", [h, "half"], "g"), ("Mul", ["g", "e"], "act")]
        return [helper.make_node(op, inputs, [out]) for op, inputs, out in (*argument, *last)]

    return nodes


def plain(h: str) -> list[onnx.NodeProto]:
    return [helper.make_node("Erfc", [h], ["act"], name="complement")]


def model(activation: Callable[[str], Sequence[onnx.NodeProto]]) -> onnx.ModelProto:
    """x -> MatMul -> `activation` -> MatMul -> y."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
        *activation("h"),
        helper.make_node("MatMul", ["act", "w1"], ["y"], name="second"),
    ]
    scalars = {"root": HALF, "negative_root": -HALF, "half": 0.5}
    weights = {name: np.array(value, np.float32) for name, value in scalars.items()}
    weights |= {"w0": normal(WIDTH, WIDTH) / 8, "w1": normal(WIDTH, WIDTH, seed=1) / 8}
    read = {i for node in nodes for i in node.input}
    held = {name: array for name, array in weights.items() if name in read}
    return build(nodes, [("x", F32, ["n", WIDTH])], [("y", F32, ["n", WIDTH])], held)


def expected(x: np.ndarray, *, gelu: bool) -> Any:
    h = (x @ (normal(WIDTH, WIDTH) / 8)).astype(np.float64)
    erfc = np.vectorize(math.erfc)
    return (h / 2 * erfc(-h * HALF) if gelu else erfc(h)) @ (normal(WIDTH, WIDTH, seed=1) / 8)


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("form", ["before", "before-right", "behind", "factor", "plain"])
def test_it_is_written_with_erf(form: str, target: str, tmp_path: Path) -> None:
    gelu = form != "plain"
    path = save(model(keras_gelu(form) if gelu else plain), tmp_path / "m.onnx")
    report = quantize_dynamic(path, tmp_path / "out.onnx", target=target)
    assert any("node Erfc was written as 1 - Erf" in note for note in report.notes)
    assert report.verification.status == "unchecked"  # nothing can run the float model
    x = normal(9, WIDTH, seed=2)
    (y,) = session(tmp_path / "out.onnx").run(None, {"x": x})
    wanted = expected(x, gelu=gelu)
    assert np.abs(y - wanted).max() < 0.03 * np.abs(wanted).max()
    ops = [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]
    assert "Erfc" not in ops
    if gelu and target == "native":  # it is recognized as an activation of the layer
        assert ops == ["Linear", "Linear"]


def test_one_in_a_subgraph_and_in_other_types(tmp_path: Path) -> None:
    """The constant has the type of what it is subtracted from, said by an input or a Cast's."""
    body = helper.make_graph(
        [helper.make_node("Erfc", ["d"], ["e"])],
        "then",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT16, None)],
    )
    nodes = [
        helper.make_node("If", ["yes"], ["o"], then_branch=body, else_branch=body),
        helper.make_node("Cast", ["o"], ["f"], to=F32),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="layer"),
    ]
    inputs = [("d", TensorProto.FLOAT16, ["n", WIDTH]), ("yes", TensorProto.BOOL, [])]
    outputs = [("y", F32, ["n", WIDTH])]
    proto = build(nodes, inputs, outputs, {"w": normal(WIDTH, WIDTH)})
    proto.graph.node[0].attribute[1].g.node[0].output[0] = "e2"
    proto.graph.node[0].attribute[1].g.output[0].name = "e2"
    report = quantize_dynamic(save(proto, tmp_path / "m.onnx"), tmp_path / "out.onnx")
    assert any("2 nodes Erfc were written" in note for note in report.notes)
    x = normal(3, WIDTH).astype(np.float16)
    feed = {"d": x, "yes": np.array(True)}
    (y,) = session(tmp_path / "out.onnx").run(None, feed)
    wanted = np.vectorize(math.erfc)(x.astype(np.float64)) @ normal(WIDTH, WIDTH)
    assert np.abs(y - wanted).max() < 0.03 * np.abs(wanted).max()
