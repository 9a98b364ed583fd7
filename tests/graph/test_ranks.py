"""How many axes values have that the model says nothing of."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from octavo.graph.analysis.constants import Stored
from octavo.graph.analysis.ranks import Ranks
from tests.graphs import FLOAT, build, node, run

SHAPE_OF_X = [node("Shape", ["x"], ["s"])]
OPEN = [  # as exporters write the shape of an Expand: where it says -1, the size stays
    *SHAPE_OF_X,
    node("Reshape", ["s", "minus"], ["flat"]),
    node("Shape", ["flat"], ["count"]),
    node("ConstantOfShape", ["count"], ["ones"], value=onnx.numpy_helper.from_array(np.array([1]))),
    node("Mul", ["ones", "minus_one"], ["minus_ones"]),
    node("Equal", ["flat", "minus_ones"], ["open"]),
    node("Where", ["open", "ones", "flat"], ["asked"]),
]
CASES: dict[str, list[Any]] = {
    "expand": [*OPEN, node("Expand", ["table", "asked"], ["y"])],
    "expand to less": [*SHAPE_OF_X, node("Expand", ["cube", "s"], ["y"])],
    "filled": [*SHAPE_OF_X, node("ConstantOfShape", ["s"], ["y"])],
    "gathered elements": [*OPEN, node("Expand", ["i", "asked"], ["e"]),
                          node("GatherElements", ["x", "e"], ["y"], axis=1)],
    "unsqueezed": [node("Unsqueeze", ["x", "two_axes"], ["y"])],
    "squeezed": [node("Unsqueeze", ["x", "two_axes"], ["u"]),
                 node("Squeeze", ["u", "minus"], ["y"])],
    "compared": [node("Less", ["x", "cube"], ["y"])],
    "flattened": [node("Flatten", ["cube"], ["y"])],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_ranks_are_those_of_a_run(case: str) -> None:
    stored = {
        "minus": np.array([-1]),
        "minus_one": np.array(-1),
        "two_axes": np.array([0, -1]),
        "table": np.ones((1, 4), np.float32),
        "cube": np.ones((2, 3, 4), np.float32),
        "i": np.array([[0]]),
    }
    given = build(CASES[case], {"x": (FLOAT, ["n", 4])}, ["y"], stored)
    read = {i for n in given.graph.node for i in n.input}
    for unread in [i for i in given.graph.initializer if i.name not in read]:
        given.graph.initializer.remove(unread)
    if case == "compared":
        given.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    (y,) = run(given, {"x": np.ones((3, 4), np.float32)})
    model = ir.from_proto(given)
    model.graph.outputs[0].shape = None
    assert Ranks(model, Stored())(model.graph.outputs[0]) == y.ndim
