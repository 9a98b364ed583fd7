"""Recurrent layers in models: branches, shared weights, float16, and PyTorch's integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from octavo.core.recurrent_weights import permute_gates, separate
from octavo.torch import quantize_dynamic
from tests.graphs import BOOL, FLOAT, FLOAT16, INT8, assert_close, build, error, node, run
from tests.native_target.forms import convert
from tests.native_target.recurrent_layers import ORDERS, Layer, native, opened, outputs


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


def test_the_result_is_close_to_the_float_model(tmp_path: Path) -> None:
    layer = Layer("gru", 40, 48, direction="bidirectional", steps=12, batch=4)
    found = outputs(layer, tmp_path)
    for name, theirs in zip(layer.names, run(layer.model(), layer.feeds), strict=True):
        assert_close(found[name], theirs, INT8)


def torch_layer(layer: Layer) -> torch.nn.Module:
    """The float layer of torch.nn with the weights of `layer`."""
    kind: Any = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "RNN": torch.nn.RNN}[layer.op]
    more = {"nonlinearity": layer.kind} if layer.op == "RNN" else {}
    module: torch.nn.Module = kind(
        layer.inputs, layer.hidden, bidirectional=layer.ways == 2, **more
    )
    order, state = ORDERS[layer.op], {}
    for d, end in enumerate(["", "_reverse"][: layer.ways]):
        first, second = np.split(layer.weights["B"][d], 2)
        arrays = (layer.weights["W"][d], layer.weights["R"][d], first, second)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for name, array in zip(names, arrays, strict=True):
            state[f"{name}_l0{end}"] = torch.from_numpy(permute_gates(array, order))
    module.load_state_dict(state)
    return module


@pytest.mark.parametrize(
    ("kind", "direction"),
    [
        ("lstm", "bidirectional"),
        ("gru", "bidirectional"),
        ("tanh", "bidirectional"),
        ("relu", "forward"),
    ],
)
def test_integers_and_outputs_are_those_of_octavo_torch(
    tmp_path: Path, kind: str, direction: str
) -> None:
    layer = Layer(kind, 21, 35, direction=direction)
    quantized = quantize_dynamic(torch_layer(layer).eval())
    buffers = dict(quantized.named_buffers())
    done = native(layer, tmp_path)
    stored = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    inputs = [stored.get(name) for name in done.proto.graph.node[0].input]
    for part, w, scale in (("ih", inputs[1], inputs[2]), ("hh", inputs[3], inputs[4])):
        for d, end in enumerate(["", "_reverse"][: layer.ways]):
            packed = buffers[f"packed_{part}_l0{end}"].numpy()
            assert np.array_equal(w[d].reshape(-1).view(np.uint8), packed)
            scales = buffers[f"scale_{part}_l0{end}"].numpy()
            gates = len(ORDERS[layer.op])
            assert np.array_equal(separate(scale[d], gates, layer.hidden), scales)
    y, _ = quantized(torch.from_numpy(layer.feeds["X"]))
    found = outputs(layer, tmp_path)["Y"].transpose(0, 2, 1, 3).reshape(y.shape)
    assert np.array_equal(found, y.numpy())


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
