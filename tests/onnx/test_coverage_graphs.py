"""Graphs of every shape: bodies, functions, opsets, odd names, what must stay untouched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.errors import AlreadyQuantizedError, ModelError, NothingQuantizedError
from octavo.onnx import quantize_dynamic
from tests.graphs import (
    BOOL,
    FLOAT,
    INT8,
    INT64,
    MS,
    PER_TENSOR,
    Array,
    Converted,
    assert_close,
    build,
    convert,
    integer_tensors,
    node,
    run,
    values,
    weight,
)

K = 32
X = {"x": (FLOAT, ["m", K])}
W = {"w": weight(K, K)}
ML = "ai.onnx.ml"


def close(
    converted: Converted | Path,
    model: onnx.ModelProto,
    feeds: dict[str, Array],
    bound: float = INT8,
) -> None:
    """Every float output within `bound` of the float model's, every other one equal."""
    path = converted if isinstance(converted, Path) else converted.path
    for expected, actual in zip(run(model, feeds), run(path, feeds), strict=True):
        if expected.dtype.kind == "f":
            assert_close(actual, expected, bound)
        else:
            assert np.array_equal(actual, expected)


def walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for n in graph.node:
        yield n
        for a in n.attribute:
            for body in [a.g, *a.graphs]:
                yield from walk(body)


def all_ops(converted: Converted) -> list[str]:
    return [n.op_type for n in walk(converted.proto.graph)]


def body(
    nodes: list[Any],
    outputs: list[str],
    inputs: list[Any] | None = None,
    weights: dict[str, Array] | None = None,
) -> onnx.GraphProto:
    """A body whose outputs are float of any shape; `inputs` are value infos."""
    return helper.make_graph(
        nodes,
        f"body_{outputs[0]}",
        inputs or [],
        [
            o if not isinstance(o, str) else helper.make_tensor_value_info(o, FLOAT, None)
            for o in outputs
        ],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )


# --- bodies of If, Loop and Scan -----------------------------------------------------------------


def if_model(where: str, capture: str) -> onnx.ModelProto:
    """If whose branches hold layers; weights inside or outside, x outside, used or not."""
    w, v = weight(K, K, seed=3), weight(K, K, seed=4)
    inside = where == "inside"
    branches = {
        "then_branch": body(
            [node("MatMul", ["x", "w"], ["t"])], ["t"], weights={"w": w} if inside else None
        ),
        "else_branch": body(
            [
                node("Gemm", ["x", "v"], ["e0"]),
                node("Relu", ["e0"], ["e1"]),
                node("MatMul", ["e1", "v"], ["e"]),
            ],
            ["e"],
            weights={"v": v} if inside else None,
        ),
    }
    nodes = [node("If", ["c"], ["y"], **branches)]
    outputs = ["y"]
    stored = {} if inside else {"w": w, "v": v}
    if capture == "also outside":  # the same activation is quantized by a layer of the main graph
        nodes = [node("MatMul", ["x", "u"], ["z"]), *nodes]
        stored["u"] = weight(K, K, seed=5)
        outputs.append("z")
    return build(nodes, {**X, "c": (BOOL, [])}, outputs, stored)


@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor", "int8-block", "float16"])
@pytest.mark.parametrize("capture", ["only inside", "also outside"])
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_if(tmp_path: Path, where: str, capture: str, recipe: str) -> None:
    model = if_model(where, capture)
    converted = convert(model, tmp_path, recipe=recipe)
    assert "MatMul" not in [n.op_type for n in walk(converted.proto.graph)] or recipe == "float16"
    assert all(o.quantized for o in converted.report.layers)
    # the spread of the channels makes one scale for a tensor coarse
    bound = 6 * INT8 if recipe == "int8-per-tensor" else 2 * INT8
    for choice in (True, False):
        close(converted, model, {"x": values(9, K), "c": np.array(choice)}, bound)
    scopes = {o.layer.scope for o in converted.report.layers}
    assert {"y_node/then_branch", "y_node/else_branch"} <= scopes


def test_nested_if(tmp_path: Path) -> None:
    inner = {
        "then_branch": body([node("MatMul", ["h", "w"], ["p"])], ["p"]),
        "else_branch": body([node("Neg", ["h"], ["q"])], ["q"]),
    }
    outer = {
        "then_branch": body(
            [node("MatMul", ["x", "w"], ["h"]), node("If", ["d"], ["r"], **inner)], ["r"]
        ),
        "else_branch": body([node("MatMul", ["x", "w2"], ["s"])], ["s"], weights={"w2": W["w"]}),
    }
    nodes = [node("If", ["c"], ["y"], **outer)]
    model = build(nodes, {**X, "c": (BOOL, []), "d": (BOOL, [])}, ["y"], W)
    converted = convert(model, tmp_path)
    assert all_ops(converted).count("MatMulIntegerToFloat") == 3
    for c in (True, False):
        for d in (True, False):
            feeds = {"x": values(9, K), "c": np.array(c), "d": np.array(d)}
            close(converted, model, feeds, 2 * INT8)


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_loop(tmp_path: Path, where: str) -> None:
    """A state that a layer changes, and a captured activation that another layer reads."""
    w, v = weight(K, K, seed=3, spread=False), weight(K, K, seed=4, spread=False)
    info = helper.make_tensor_value_info
    nodes = [
        node("MatMul", ["s", "w"], ["a"]),
        node("Gemm", ["x", "v"], ["b"]),
        node("Add", ["a", "b"], ["ab"]),
        node("Tanh", ["ab"], ["s_out"]),
        node("Identity", ["go"], ["go_out"]),
        node("Identity", ["s_out"], ["scan"]),
    ]
    stored = {"w": w, "v": v}
    loop = body(
        nodes,
        [info("go_out", BOOL, []), info("s_out", FLOAT, None), info("scan", FLOAT, None)],
        [info("i", INT64, []), info("go", BOOL, []), info("s", FLOAT, ["m", K])],
        stored if where == "inside" else None,
    )
    model = build(
        [node("Loop", ["n", "", "x"], ["y", "ys"], body=loop)],
        X,
        ["y", "ys"],
        {"n": np.array(3, np.int64), **({} if where == "inside" else stored)},
    )
    converted = convert(model, tmp_path)
    assert all_ops(converted).count("MatMulIntegerToFloat") == 2
    close(converted, model, {"x": values(9, K)}, PER_TENSOR)


def test_scan(tmp_path: Path) -> None:
    w, v = weight(K, K, seed=3, spread=False), weight(K, K, seed=4, spread=False)
    info = helper.make_tensor_value_info
    step = body(
        [
            node("MatMul", ["s", "w"], ["a"]),
            node("MatMul", ["e", "v"], ["b"]),
            node("Add", ["a", "b"], ["ab"]),
            node("Tanh", ["ab"], ["s_out"]),
            node("Identity", ["s_out"], ["out"]),
        ],
        ["s_out", "out"],
        [info("s", FLOAT, ["m", K]), info("e", FLOAT, ["m", K])],
        {"w": w},
    )
    nodes = [node("Scan", ["s0", "xs"], ["y", "ys"], body=step, num_scan_inputs=1)]
    inputs = {"s0": (FLOAT, ["m", K]), "xs": (FLOAT, ["t", "m", K])}
    model = build(nodes, inputs, ["y", "ys"], {"v": v})
    converted = convert(model, tmp_path)
    assert all_ops(converted).count("MatMulIntegerToFloat") == 2
    close(converted, model, {"s0": values(4, K), "xs": values(5, 4, K, seed=9)}, PER_TENSOR)


def test_other_layers_inside_a_body(tmp_path: Path) -> None:
    """Gather, LSTM and Conv (asked for) in a branch, their weights inside it."""
    then = body(
        [
            node("Gather", ["table", "i"], ["e"]),
            node("LSTM", ["e", "w", "r"], ["", "h"], hidden_size=16),
            node("Squeeze", ["h", "zero"], ["t"]),
        ],
        ["t"],
        weights={
            "table": weight(512, 20, axis=0, spread=False),
            "w": weight(1, 64, 20, spread=False),
            "r": weight(1, 64, 16, spread=False),
            "zero": np.array([0], np.int64),
        },
    )
    other = body(
        [
            node("Conv", ["x", "k"], ["f"], kernel_shape=[3], pads=[1, 1]),
            node("ReduceMean", ["f"], ["e2"], axes=[2], keepdims=0),
        ],
        ["e2"],
        weights={"k": weight(16, 8, 3, seed=7, spread=False)},
    )
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs = {"i": (INT64, [5, 3]), "x": (FLOAT, [3, 8, 10]), "c": (BOOL, [])}
    model = build(nodes, inputs, ["y"])
    converted = convert(model, tmp_path, op_types_to_quantize=["Gather", "LSTM", "Conv"])
    assert {"DynamicQuantizeLSTM", "ConvInteger", "Gather"} <= set(all_ops(converted))
    assert not {"LSTM", "Conv"} & set(all_ops(converted))
    ids = np.arange(15, dtype=np.int64).reshape(5, 3)
    for c in (True, False):
        feeds = {"i": ids, "x": values(3, 8, 10), "c": np.array(c)}
        close(converted, model, feeds, PER_TENSOR)


def test_a_body_that_shadows_an_outer_name(tmp_path: Path) -> None:
    """Two branches call different weights `w`; each layer gets its own."""
    a, b = weight(K, K, seed=3), weight(K, K, seed=4)
    branches = {
        "then_branch": body([node("MatMul", ["x", "w"], ["t"])], ["t"], weights={"w": a}),
        "else_branch": body([node("MatMul", ["x", "w"], ["t"])], ["t"], weights={"w": b}),
    }
    model = build([node("If", ["c"], ["y"], **branches)], {**X, "c": (BOOL, [])}, ["y"])
    converted = convert(model, tmp_path)
    assert sum(a.size >= K * K for a in integer_tensors(converted).values()) == 2
    for c in (True, False):
        close(converted, model, {"x": values(9, K), "c": np.array(c)})


# --- local functions -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["argument", "inside"])
def test_local_functions(tmp_path: Path, where: str) -> None:
    """The same function twice; nested in another; its weight an argument or a Constant inside."""
    w = weight(K, K, spread=False)
    nodes = [node("MatMul", ["a", "b"], ["ab"]), node("Tanh", ["ab"], ["out"])]
    if where == "inside":
        nodes = [node("Constant", [], ["b"], value=numpy_helper.from_array(w)), *nodes]
    arguments = ["a", "b"] if where == "argument" else ["a"]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    layer = helper.make_function("local", "layer", arguments, ["out"], nodes, imports)
    both = helper.make_function(
        "local",
        "both",
        arguments,
        ["out"],
        [
            node("layer", arguments, ["mid"], domain="local"),
            node("layer", ["mid", *arguments[1:]], ["out"], domain="local"),
        ],
        imports,
    )
    given = ["w"] if where == "argument" else []
    calls = [
        node("both", ["x", *given], ["h"], domain="local"),
        node("layer", ["h", *given], ["y"], domain="local"),
    ]
    model = build(
        calls, X, ["y"], {"w": w} if given else None, functions=[layer, both], domains=["local"]
    )
    converted = convert(model, tmp_path)
    assert converted.ops.count("MatMulIntegerToFloat") == 3
    assert not converted.proto.functions
    assert any("functions were inlined" in n for n in converted.report.notes)
    close(converted, model, {"x": values(9, K)}, PER_TENSOR)
    if where == "argument":
        assert sum(a.size for a in integer_tensors(converted).values()) == w.size
    quiet = {o.layer.name for o in converted.report.layers}
    assert len(quiet) == 3  # names that tell the copies apart


# --- opsets --------------------------------------------------------------------------------------


def network(opset: int) -> onnx.ModelProto:
    """Gather, MatMul, Relu, Gemm and a batched MatMul, in operators that no opset changed."""
    nodes = [
        node("Gather", ["table", "i"], ["e"]),
        node("MatMul", ["e", "w"], ["h"]),
        node("Relu", ["h"], ["a"]),
        node("MatMul", ["a", "v"], ["g"]),
        node("Add", ["g", "b"], ["s"]),
        node("Sigmoid", ["s"], ["p"]),
        node("MatMul", ["p", "u"], ["y"]),
    ]
    stored = {
        "table": weight(512, 40, axis=0, spread=False),
        "w": weight(40, 48, seed=3, spread=False),
        "v": weight(48, K, seed=4, spread=False),
        "b": values(K, seed=9),
        "u": weight(2, K, 8, seed=5, spread=False),
    }
    outputs = {"y": (FLOAT, [2, "n", 8])}
    return build(nodes, {"i": (INT64, [2, "n"])}, outputs, stored, opset=opset, ir=min(8, 9))


IDS = np.arange(40, dtype=np.int64).reshape(2, 20)


def opset_in(proto: onnx.ModelProto) -> int:
    return next(i.version for i in proto.opset_import if i.domain in ("", "ai.onnx"))


@pytest.mark.parametrize("opset", range(10, 27))
def test_an_opset_stays_as_it_is(tmp_path: Path, opset: int) -> None:
    model = network(opset)
    converted = convert(model, tmp_path, verify=True)
    assert converted.report.verification.status == "passed"
    assert opset_in(converted.proto) == converted.report.opset == opset
    assert converted.proto.ir_version == model.ir_version
    assert [o.quantized for o in converted.report.layers] == [True] * 4
    close(converted, model, {"i": IDS}, 2 * INT8)
    onnx.checker.check_model(converted.proto)


@pytest.mark.parametrize("recipe", ["int8-per-tensor", "int8-block", "int8-accurate", "float16"])
@pytest.mark.parametrize("opset", [10, 11, 12, 13, 17, 18, 21, 26])
def test_other_recipes_at_other_opsets(tmp_path: Path, opset: int, recipe: str) -> None:
    model = network(opset)
    converted = convert(model, tmp_path, recipe=recipe, verify=True)
    raised = opset == 10 and recipe == "int8-per-tensor"  # DynamicQuantizeLinear came in 11
    assert opset_in(converted.proto) == (11 if raised else opset)
    close(converted, model, {"i": IDS}, 2 * PER_TENSOR)


@pytest.mark.parametrize("opset", [10, 11, 12, 13, 17, 21, 26])
def test_qdq_at_other_opsets(tmp_path: Path, opset: int) -> None:
    model = network(opset)
    converted = convert(model, tmp_path, quant_format="qdq", verify=True)
    assert opset_in(converted.proto) >= opset
    assert "DequantizeLinear" in converted.ops
    close(converted, model, {"i": IDS}, 2 * PER_TENSOR)


@pytest.mark.parametrize("opset", [7, 8, 9])
def test_an_old_opset_is_raised(tmp_path: Path, opset: int) -> None:
    model = network(opset)
    converted = convert(model, tmp_path, verify=True)
    assert opset_in(converted.proto) == converted.report.opset == 10
    assert any(f"opset raised from {opset} to 10" in n for n in converted.report.notes)
    assert [o.quantized for o in converted.report.layers] == [True] * 4
    close(converted, model, {"i": IDS}, 2 * INT8)
    assert opset_in(model) == opset  # the caller's model is as it was


@pytest.mark.parametrize("opset", [1, 6, 27])
def test_opsets_outside_the_range_are_refused(tmp_path: Path, opset: int) -> None:
    with pytest.raises(ModelError, match=f"opset {opset}.*7 to 26"):
        convert(network(opset), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_that_calls_the_domain_ai_onnx(tmp_path: Path) -> None:
    """`ai.onnx` is the long name of the standard domain."""
    model = build([node("MatMul", ["x", "w"], ["y"])], X, ["y"], W)
    model.opset_import[0].domain = "ai.onnx"
    converted = convert(model, tmp_path)
    assert converted.report.layers[0].quantized
    close(converted, model, {"x": values(9, K)})


# --- names ---------------------------------------------------------------------------------------


def test_empty_and_duplicate_node_names(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name=""),
        node("MatMul", ["a", "w"], ["b"], name="same"),
        node("MatMul", ["b", "w"], ["c"], name="same"),
        node("Relu", ["c"], ["y"], name=""),
    ]
    model = build(nodes, X, ["y"], {"w": weight(K, K, spread=False)})
    converted = convert(model, tmp_path)
    names = [o.layer.name for o in converted.report.layers]
    assert len(set(names)) == 3 and all(names)
    model.graph.node[2].name = "other"  # ONNX Runtime refuses the float model as it is
    close(converted, model, {"x": values(9, K)}, PER_TENSOR)
    model.graph.node[2].name = "same"
    made = [n.name for n in converted.proto.graph.node if n.op_type == "MatMulIntegerToFloat"]
    assert len(set(made)) == 3
    second = convert(model, tmp_path, nodes_to_exclude=[names[2]])
    assert [o.quantized for o in second.report.layers] == [True, True, False]


def test_nodes_of_two_bodies_may_share_a_name(tmp_path: Path) -> None:
    branches = {
        f"{which}_branch": body([node("MatMul", ["x", "w"], [which], name="same")], [which])
        for which in ("then", "else")
    }
    model = build([node("If", ["c"], ["y"], **branches)], {**X, "c": (BOOL, [])}, ["y"], W)
    converted = convert(model, tmp_path)
    products = [n for n in walk(converted.proto.graph) if n.op_type == "MatMulIntegerToFloat"]
    assert [n.name for n in products] == ["same", "same"]
    assert len({o.layer.name for o in converted.report.layers}) == 2
    for c in (True, False):
        close(converted, model, {"x": values(9, K), "c": np.array(c)})


def test_tensors_already_called_as_ours_would_be(tmp_path: Path) -> None:
    taken = "x_quantized x_abs x_range x_ratio x_scale w_quantized w_scale w_zero_point y_per_row"
    nodes: list[Any] = [node("MatMul", ["x", "w"], ["y"])]
    outputs = ["y"]
    for i, name in enumerate(taken.split()):
        nodes.append(node("Mul", ["x", "octavo_float32_0"], [name]))
        nodes.append(node("Add", [name, "y"], [f"out{i}"], name=f"{name}/{i}"))
        outputs.append(f"out{i}")
    stored = {**W, "octavo_float32_0": np.array(2, np.float32)}
    model = build(nodes, X, outputs, stored)
    for recipe in ("int8", "int8-per-tensor", "int8-block"):
        converted = convert(model, tmp_path, recipe=recipe)
        close(converted, model, {"x": values(9, K)}, PER_TENSOR * 3)
        made = [o for n in converted.proto.graph.node for o in n.output]
        made += [i.name for i in converted.proto.graph.initializer]
        assert len(made) == len(set(made))
        assert set(taken.split()) <= set(made)


def test_names_taken_only_inside_a_body(tmp_path: Path) -> None:
    """A constant of ours in the main graph must not be hidden by a body's value of that name."""
    branches = {
        "then_branch": body(
            [node("Neg", ["x"], ["w_quantized"]), node("MatMul", ["w_quantized", "w"], ["t"])],
            ["t"],
        ),
        "else_branch": body([node("MatMul", ["x", "w"], ["w_scale"])], ["w_scale"]),
    }
    model = build([node("If", ["c"], ["y"], **branches)], {**X, "c": (BOOL, [])}, ["y"], W)
    converted = convert(model, tmp_path)
    for c in (True, False):
        close(converted, model, {"x": values(9, K), "c": np.array(c)})


def test_node_names_survive(tmp_path: Path) -> None:
    """Each product keeps the name of the layer it stands for, everything else keeps its own."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"),
        node("Tanh", ["a"], ["b"], name="between"),
        node("Gemm", ["b", "w", "bias"], ["c"], name="second", transB=1),
        node("Relu", ["c"], ["y"], name="last"),
    ]
    model = build(nodes, X, ["y"], {**W, "bias": values(K)})
    converted = convert(model, tmp_path)
    assert {"first", "between", "second", "last"} <= {n.name for n in converted.proto.graph.node}
    excluded = convert(model, tmp_path, nodes_to_exclude=["sec*"])
    assert next(n for n in excluded.proto.graph.node if n.name == "second").op_type == "Gemm"


# --- inputs and outputs --------------------------------------------------------------------------


def test_an_output_that_is_also_read(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["y"]),
        node("Relu", ["y"], ["r"]),
        node("MatMul", ["y", "w"], ["z"]),
    ]
    outputs = {n: (FLOAT, ["m", K]) for n in ("y", "r", "z")}
    model = build(nodes, X, outputs, {"w": weight(K, K, spread=False)})
    converted = convert(model, tmp_path)
    assert [o.name for o in converted.proto.graph.output] == ["y", "r", "z"]
    assert list(converted.proto.graph.output) == list(model.graph.output)
    close(converted, model, {"x": values(9, K)})


def test_the_same_output_twice_and_an_input_as_output(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Identity", ["x"], ["copy"])]
    model = build(nodes, X, ["y", "copy"], W)
    converted = convert(model, tmp_path)
    x = values(9, K)
    close(converted, model, {"x": x})
    assert np.array_equal(run(converted.path, {"x": x})[1], x)


def test_unused_outputs_and_layers(tmp_path: Path) -> None:
    """An LSTM of whose outputs one is read, a layer that nobody reads, and unread inputs."""
    nodes = [
        node("LSTM", ["x", "w", "r"], ["y", "y_h", "y_c"], hidden_size=16),
        node("MatMul", ["y_h", "m"], ["z"]),
        node("MatMul", ["y_c", "m"], ["unread"]),
    ]
    stored = {
        "w": weight(1, 64, 20, spread=False),
        "r": weight(1, 64, 16, spread=False),
        "m": weight(16, 64, spread=False),
    }
    inputs = {"x": (FLOAT, [5, 3, 20]), "ignored": (FLOAT, [2])}
    model = build(nodes, inputs, ["z"], stored)
    converted = convert(model, tmp_path)
    feeds = {"x": values(5, 3, 20), "ignored": values(2)}
    close(converted, model, feeds, PER_TENSOR)
    assert [i.name for i in converted.proto.graph.input] == ["x", "ignored"]


# --- quantized already ---------------------------------------------------------------------------


def test_quantized_models_are_refused(tmp_path: Path) -> None:
    model = build(
        [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["y"])],
        X,
        ["y"],
        {**W, "v": weight(K, K, seed=8)},
    )
    once = convert(model, tmp_path, nodes_to_exclude=["y_node"])
    with pytest.raises(AlreadyQuantizedError, match=r"quantized already.*allow_quantized"):
        convert(once.proto, tmp_path)
    twice = convert(once.proto, tmp_path, allow_quantized=True)
    assert twice.ops.count("MatMulIntegerToFloat") == 2
    assert "MatMul" not in twice.ops
    close(twice, model, {"x": values(9, K)}, 2 * INT8)
    first = [n for n in once.proto.graph.node if n.op_type == "MatMulIntegerToFloat"]
    again = [n for n in twice.proto.graph.node if n.name == first[0].name]
    assert again == first  # what was quantized is as it was


@pytest.mark.parametrize("place", ["body", "qdq"])
def test_quantized_in_another_form(tmp_path: Path, place: str) -> None:
    if place == "body":
        once = convert(if_model("inside", "only inside"), tmp_path).proto
    else:
        model = build([node("MatMul", ["x", "w"], ["y"])], X, ["y"], W)
        once = convert(model, tmp_path, quant_format="qdq").proto
    with pytest.raises(AlreadyQuantizedError):
        convert(once, tmp_path)
    with pytest.raises(NothingQuantizedError):
        convert(once, tmp_path, allow_quantized=True)


# --- what is not ours ----------------------------------------------------------------------------


def test_machine_learning_operators_stay(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Scaler", ["h"], ["s"], domain=ML, offset=[0.5], scale=[2.0]),
        node(
            "LinearClassifier",
            ["s"],
            ["label", "score"],
            domain=ML,
            coefficients=[0.1] * K + [-0.1] * K,
            intercepts=[0.0, 0.1],
            classlabels_ints=[0, 1],
            post_transform="SOFTMAX",
        ),
    ]
    outputs = {"score": (FLOAT, None)}
    model = build(nodes, X, outputs, {"w": weight(K, K, spread=False)}, domains=[ML])
    converted = convert(model, tmp_path)
    assert converted.ops[-2:] == ["Scaler", "LinearClassifier"]
    close(converted, model, {"x": values(9, K)}, PER_TENSOR)


def test_a_matmul_of_another_domain_is_not_ours(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 17)]
    fake = helper.make_function(
        "mine", "MatMul", ["a", "b"], ["c"], [node("Add", ["a", "b"], ["c"])], imports
    )
    nodes = [node("MatMul", ["x", "w"], ["h"], domain="mine"), node("MatMul", ["h", "w"], ["y"])]
    model = build(nodes, {"x": (FLOAT, [K, K])}, ["y"], W, functions=[fake], domains=["mine"])
    converted = convert(model, tmp_path)
    assert [o.layer.op for o in converted.report.layers if o.quantized] == ["MatMul"]
    assert "Add" in converted.ops
    close(converted, model, {"x": values(K, K)}, PER_TENSOR)


def test_optional_and_sequence_values_stay(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("SequenceConstruct", ["h", "x"], ["seq"]),
        node("ConcatFromSequence", ["seq"], ["cat"], axis=-1),
        node("Optional", ["cat"], ["opt"]),
        node("OptionalGetElement", ["opt"], ["y"]),
        node("Clip", ["y", "", "top"], ["z"]),
    ]
    model = build(nodes, X, ["y", "z"], {**W, "top": np.array(1.0, np.float32)})
    converted = convert(model, tmp_path)
    assert converted.ops[-5:] == [n.op_type for n in nodes[1:]]
    close(converted, model, {"x": values(9, K)})


def test_sparse_initializers_stay(tmp_path: Path) -> None:
    """A sparse tensor is no weight of ours; the dense layer beside it is quantized."""
    numbers = numpy_helper.from_array(np.array([2.0, -3.0], np.float32), "s")
    places = numpy_helper.from_array(np.array([1, 40], np.int64), "s_indices")
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "s"], ["y"])]
    model = build(nodes, X, ["y"], W)
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(numbers, places, [K, K]))
    try:
        converted = convert(model, tmp_path)
    except ModelError as error:
        assert "sparse" in str(error)  # refused by name is as good
        return
    assert "MatMul" in converted.ops
    close(converted, model, {"x": values(9, K)})


def test_the_standard_attention_is_not_the_fused_one(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Attention", ["q", "x", "x"], ["y"], q_num_heads=4, kv_num_heads=4),
    ]
    inputs = {"x": (FLOAT, [2, 6, K])}
    model = build(
        nodes, inputs, {"y": (FLOAT, [2, 6, K])}, {"w": weight(K, K, spread=False)}, opset=23, ir=10
    )
    converted = convert(model, tmp_path)
    attention = converted.proto.graph.node[-1]
    assert (attention.op_type, attention.domain) == ("Attention", "")
    assert attention == model.graph.node[-1]
    assert [o.layer.op for o in converted.report.layers] == ["MatMul"]
    close(converted, model, {"x": values(2, 6, K)}, PER_TENSOR)


# --- value_info ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "right", "stale rank", "stale size", "symbols"])
def test_value_info_of_any_kind(tmp_path: Path, kind: str) -> None:
    """Shapes that a model states of inner values may be wrong, as far as ONNX Runtime minds."""
    nodes = [
        node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        node("MatMul", ["x", "wt"], ["h"]),
        node("Relu", ["h"], ["a"]),
        node("Gemm", ["a", "v", "b"], ["y"], transB=1),
    ]
    stored = {"w": weight(48, K, axis=0), "v": weight(24, 48, axis=0), "b": values(24)}
    model = build(nodes, X, ["y"], stored)
    shapes: dict[str, dict[str, Any]] = {
        "missing": {},
        "right": {"wt": [K, 48], "h": ["m", 48], "a": ["m", 48]},
        "stale rank": {"h": ["m", 1, 48], "a": ["m", 1, 48]},
        "stale size": {"h": [1, 48], "a": [3, 48]},
        "symbols": {"wt": ["p", "q"], "h": ["r", "s"], "a": [None, None]},
    }
    for name, shape in shapes[kind].items():
        model.graph.value_info.append(helper.make_tensor_value_info(name, FLOAT, shape))
    converted = convert(model, tmp_path, recipe="int8", verify=False)
    assert [o.quantized for o in converted.report.layers] == [True, True]
    assert sum(a.size for a in integer_tensors(converted).values()) == 48 * K + 24 * 48
    float_model = onnx.ModelProto()
    float_model.CopyFrom(model)
    del float_model.graph.value_info[:]
    close(converted, float_model, {"x": values(9, K)}, PER_TENSOR)


@pytest.mark.parametrize("op", ["MatMul", "Gather", "LSTM"])
@pytest.mark.parametrize("kind", ["flipped", "another rank"])
def test_value_info_of_a_weight_is_not_trusted(tmp_path: Path, op: str, kind: str) -> None:
    """What a model states of a weight behind a chain may be wrong too."""
    shape = {"MatMul": [K, 48], "Gather": [512, 48], "LSTM": [1, 64, K]}[op]
    w = weight(*shape, spread=False)
    nodes: list[Any] = [node("Reshape", ["flat", "shape"], ["w"])]
    stored: dict[str, Any] = {"flat": w.ravel(), "shape": np.array(shape, np.int64)}
    inputs: dict[str, Any] = X
    if op == "MatMul":
        nodes.append(node("MatMul", ["x", "w"], ["y"]))
        feeds = {"x": values(9, K)}
    elif op == "Gather":
        nodes.append(node("Gather", ["w", "i"], ["y"]))
        inputs, feeds = {"i": (INT64, ["n"])}, {"i": np.arange(512, dtype=np.int64)}
    else:
        nodes.append(node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16))
        stored["r"] = weight(1, 64, 16, spread=False)
        inputs, feeds = {"x": (FLOAT, ["t", "b", K])}, {"x": values(5, 3, K)}
    model = build(nodes, inputs, ["y"], stored)
    wrong = shape[::-1] if kind == "flipped" else [2, 2, *shape]
    model.graph.value_info.append(helper.make_tensor_value_info("w", FLOAT, wrong))
    converted = convert(model, tmp_path)
    assert all(o.quantized for o in converted.report.layers)
    assert converted.report.layers[0].layer.weights[0][1] == tuple(shape)
    close(converted, model, feeds, PER_TENSOR)


# --- nothing to do -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["no weights", "two activations", "only Conv", "excluded"])
def test_nothing_to_quantize_is_an_error(tmp_path: Path, kind: str) -> None:
    nodes, inputs, stored, options = {
        "no weights": ([node("Relu", ["x"], ["y"])], X, {}, {}),
        "two activations": (
            [node("MatMul", ["x", "z"], ["y"])],
            {**X, "z": (FLOAT, [K, 4])},
            {},
            {},
        ),
        "only Conv": (
            [node("Conv", ["x", "w"], ["y"])],
            {"x": (FLOAT, [1, 8, 8, 8])},
            {"w": weight(16, 8, 3, 3)},
            {},
        ),
        "excluded": ([node("MatMul", ["x", "w"], ["y"])], X, W, {"nodes_to_exclude": ["*"]}),
    }[kind]
    model = build(nodes, inputs, ["y"], stored)
    why = "it has no layer that holds" if kind == "no weights" else "no layer would be quantized"
    with pytest.raises(NothingQuantizedError, match=why):
        quantize_dynamic(model, tmp_path / "out.onnx", **options)
    assert not list(tmp_path.iterdir())
    converted = convert(model, tmp_path, allow_nothing=True, **options)
    assert converted.ops == [n.op_type for n in nodes]
    assert MS not in {n.domain for n in converted.proto.graph.node}
