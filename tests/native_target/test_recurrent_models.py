"""Recurrent layers in models: branches, shared weights, float16, and PyTorch's integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.graphs import BOOL, FLOAT, FLOAT16, INT8, build, error, node, run
from tests.native_target.forms import convert
from tests.native_target.recurrent_layers import Layer, opened


def test_inside_a_branch(tmp_path: Path) -> None:
    """The operator's constants lie in the graph of its node."""
    layer = Layer("gru", outs=("Y",))
    inner = layer.model().graph
    branch = helper.make_graph(list(inner.node), "then", [], list(inner.output))
    zeros = numpy_helper.from_array(np.zeros((1, 1, 1, 1), "f4"))
    out = [helper.make_tensor_value_info("Y0", FLOAT, None)]
    other = helper.make_graph([node("Constant", [], ["Y0"], value=zeros)], "else", [], out)
    model = build(
        [node("If", ["c"], ["out"], then_branch=branch, else_branch=other)],
        {"c": (BOOL, ()), "X": (FLOAT, ("T", "B", 7))},
        ["out"],
        layer.weights,
    )
    done = convert(model, tmp_path)
    (found,) = opened(done.path).run(None, layer.feeds | {"c": np.array(True)})
    assert np.array_equal(found, layer.by_core()["Y"])


def test_two_layers_share_their_weights(tmp_path: Path) -> None:
    layer = Layer("lstm", outs=("Y",))
    model = layer.model()
    twin = onnx.NodeProto()
    twin.CopyFrom(model.graph.node[0])
    twin.name, twin.output[0] = "twin", "Z"
    model.graph.node.append(twin)
    model.graph.output.append(helper.make_tensor_value_info("Z", FLOAT, None))
    done = convert(model, tmp_path)
    assert sum(len(i.dims) == 5 for i in done.proto.graph.initializer) == 2
    for found in opened(done.path).run(None, layer.feeds):
        assert np.array_equal(found, layer.by_core()["Y"])
    assert done.outcome("twin").bytes_after == 0


def recast(layer: Layer, old: type, new: type) -> None:
    """Changes the type of a layer's weights and feeds."""
    for arrays in (layer.weights, layer.feeds):
        arrays |= {n: a.astype(new) for n, a in arrays.items() if a.dtype == old}


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_float16(tmp_path: Path, kind: str) -> None:
    """Casts around the operator; its weights are quantized from what float16 holds."""
    states = ("initial_h", "initial_c") if kind == "lstm" else ("initial_h",)
    layer = Layer(kind, states=states, lengths=(5, 2, 4), layout=1)
    recast(layer, np.float32, np.float16)
    model = layer.model()
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = FLOAT16
    found = opened(convert(model, tmp_path).path).run(list(layer.names), layer.feeds)
    recast(layer, np.float16, np.float32)
    for array, expected in zip(found, layer.by_core().values(), strict=True):
        assert array.dtype == np.float16
        assert np.array_equal(array, expected.astype(np.float16))


@pytest.mark.parametrize(
    "changes", [{}, {"clip": 0.7}, {"bias": False, "direction": "bidirectional"}], ids=str
)
def test_input_forget_couples_the_gates(tmp_path: Path, changes: dict[str, Any]) -> None:
    """f is 1 - i, as in ONNX Runtime; not coupled, the outputs are others."""
    layer = Layer("lstm", **changes)
    coupled, apart = layer.model(), layer.model()
    coupled.graph.node[0].attribute.append(helper.make_attribute("input_forget", 1))
    done = convert(coupled, tmp_path)
    assert [n.domain for n in done.proto.graph.node] == ["ai.octavo"]
    names = [o.name for o in coupled.graph.output]
    exact, other = (run(m, layer.feeds, names) for m in (coupled, apart))
    for y, a, b in zip(opened(done.path).run(names, layer.feeds), exact, other, strict=True):
        assert error(y, a) < INT8 < error(a, b) / 4
