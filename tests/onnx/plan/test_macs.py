"""What inspect says a model multiplies, holds and has quantized already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic as theirs

from octavo.errors import NothingQuantizedError
from octavo.onnx import inspect, quantize_dynamic
from octavo.recipe import Inspection

F32 = TensorProto.FLOAT


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    weights: dict[str, tuple[int, ...]],
    opset: int = 17,
) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, F32, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
        [
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def counted(found: Inspection) -> dict[str, int | None]:
    return {d.layer.name: m for d, m in zip(found.decisions, found.macs, strict=True)}


def node(op: str, inputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [f"y_{op}"], op, **attributes)


@pytest.mark.parametrize(
    ("made", "x", "weights", "macs"),
    [
        # Each output is a sum: [2, 5, 8] of 64, [2, 16, 6, 6] of 3 * 9, ...
        (node("MatMul", "x w"), [2, 5, 64], {"w": (64, 8)}, 2 * 5 * 8 * 64),
        (node("MatMul", "w x"), [64, 5], {"w": (8, 64)}, 8 * 5 * 64),
        (node("Gemm", "x w", transB=1), [7, 64], {"w": (8, 64)}, 7 * 8 * 64),
        (node("Conv", "x w"), [2, 3, 8, 8], {"w": (16, 3, 3, 3)}, 2 * 16 * 36 * 27),
        (node("Conv", "x w", group=4), [1, 4, 10], {"w": (8, 1, 3)}, 8 * 8 * 3),
        (node("ConvTranspose", "x w"), [1, 4, 10], {"w": (4, 8, 32)}, 10 * 4 * 8 * 32),
        (node("Einsum", "x w", equation="bij,jk->bik"), [2, 5, 64], {"w": (64, 32)}, 20480),
        (node("Add", "x w"), [64, 64], {"w": (64, 64)}, 0),
        (node("LSTM", "x w r", hidden_size=8), [6, 2, 16], {"w": (1, 32, 16), "r": (1, 32, 8)}, 0),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_work_is_counted_from_sizes_that_are_fixed(
    made: onnx.NodeProto, x: list[int], weights: dict[str, tuple[int, ...]], macs: int
) -> None:
    found = inspect(model([made], {"x": [*x]}, weights))
    expected = 6 * 2 * 32 * (16 + 8) if made.op_type == "LSTM" else macs
    assert counted(found) == {made.op_type: expected}
    assert found.sizes == ""


def test_open_sizes_are_those_of_inputs_made_up_and_said() -> None:
    made = node("Conv", "x w")
    found = inspect(model([made], {"x": ["n", 3, "h", "w_"]}, {"w": (16, 3, 3, 3)}))
    name, _, shape = found.sizes.partition("=")
    n, channels, height, width = map(int, shape.split("x"))
    assert (name, channels) == ("x", 3)
    assert counted(found) == {"Conv": n * 16 * (height - 2) * (width - 2) * 27}


def test_what_cannot_be_counted_is_none_and_no_share_is_said() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["rows"], to=F32),
        helper.make_node("Transpose", ["rows"], ["turned"]),
        helper.make_node("MatMul", ["turned", "w"], ["y"], "/late"),
        helper.make_node("MatMul", ["x", "v"], ["z"], "/first"),
        helper.make_node("MatMul", ["z", "y"], ["out"], "/product"),
    ]
    found = inspect(model(nodes, {"x": [4, 2]}, {"w": (2, 64), "v": (2, 64)}))
    assert counted(found)["/first"] == 4 * 64 * 2
    assert counted(found)["/late"] is None
    assert "%" not in str(found)


def test_a_layer_in_a_branch_runs_or_not_and_is_not_counted() -> None:
    def branch(name: str) -> onnx.GraphProto:
        made = helper.make_node("MatMul", ["x", "w"], [name], name)
        return helper.make_graph([made], name, [], [helper.make_empty_tensor_value_info(name)])

    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    made = model(nodes, {"x": [4, 64]}, {"w": (64, 64)})
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    found = inspect(made)
    assert counted(found) == {"a": None, "b": None}
    assert "%" not in str(found)


def test_shared_weights_count_once() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "/first"),
        helper.make_node("Transpose", ["w"], ["turned"]),
        helper.make_node("MatMul", ["h", "turned"], ["y"], "/second"),
    ]
    found = inspect(model(nodes, {"x": [4, 64]}, {"w": (64, 64)}))
    assert found.weight_bytes == (64 * 64 * 4, 0)
    assert "2 layers with 16.4 kB of weights" in str(found)
    assert [layer["own_bytes"] for layer in found.to_dict()["layers"]] == [16384, 0]


@pytest.mark.parametrize("opset", [8, 13])
def test_the_opset_is_the_file_s_own(opset: int) -> None:
    found = inspect(model([node("MatMul", "x w")], {"x": [4, 64]}, {"w": (64, 64)}, opset))
    assert found.opset == opset
    assert f"opset {opset}, IR version 8" in str(found)


def test_a_file_of_octavo_says_what_it_is(tmp_path: Path) -> None:
    floating = model([node("MatMul", "x w")], {"x": [4, 64]}, {"w": (64, 64)})
    for target in ("portable", "native"):
        out = tmp_path / f"{target}.onnx"
        quantize_dynamic(floating, out, target=target)
        found = inspect(out)
        assert found.quantized.startswith("1 of 1 layers, by Octavo ")
        assert found.quantized.endswith(f" (recipe int8, target {target})")
        assert "Quantized already: 1 of 1 layers" in str(found)


def test_a_file_of_another_tool_says_what_it_holds(tmp_path: Path) -> None:
    onnx.save(
        model([node("MatMul", "x w")], {"x": [4, 64]}, {"w": (64, 64)}), tmp_path / "float.onnx"
    )
    theirs(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    said = inspect(tmp_path / "int8.onnx").quantized
    assert said.startswith(
        "quantized dynamically, as ONNX Runtime's quantize_dynamic does; it holds 1 "
    )
    assert "1 MatMulInteger" in said and "1 DynamicQuantizeLinear" in said
    assert inspect(tmp_path / "float.onnx").quantized == ""


def test_nothing_quantized_says_each_reason_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["h0"], "/conv0")]
    nodes += [helper.make_node("Conv", [f"h{i}", "v"], [f"h{i + 1}"], f"/c{i}") for i in range(30)]
    made = model(nodes, {"x": [1, 3, 8, 8]}, {"w": (16, 3, 3, 3), "v": (16, 16, 1, 1)})
    with pytest.raises(NothingQuantizedError) as caught:
        quantize_dynamic(made, tmp_path / "out.onnx")
    said = str(caught.value)
    assert "no layer would be quantized. " in said and "\n  31 Conv: float by default" in said
    assert said.count("float by default") == 1 and len(said) < 400


def test_what_multiplies_and_is_no_layer_leaves_no_share_to_be_said() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "/layer"),
        helper.make_node("Einsum", ["h", "h"], ["y"], "/einsum", equation="ij,kj->ik"),
    ]
    found = inspect(model(nodes, {"x": [4, 64]}, {"w": (64, 64)}))
    assert (found.uncounted, counted(found)) == (1, {"/layer": 4 * 64 * 64})
    assert "%" not in str(found)
    assert str(found).endswith("not counted: 1 node without weights")
    assert inspect(model(nodes[:1], {"x": [4, 64]}, {"w": (64, 64)})).uncounted == 0
