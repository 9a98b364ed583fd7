"""Where weights hide: behind chains of nodes, shared, tied, as graph inputs, in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.graphs import (
    BFLOAT16,
    FLOAT,
    FLOAT16,
    INT8,
    INT64,
    PER_TENSOR,
    Array,
    Converted,
    assert_close,
    build,
    convert,
    float_elements,
    integer_tensors,
    node,
    run,
    text,
    values,
    weight,
)

ROWS, INPUTS, OUTPUTS = 24, 32, 48
STEPS, BATCH, FEATURES, HIDDEN = 7, 3, 20, 24
VOCABULARY, WIDTH = 512, 40
X = f"float[m, {INPUTS}] x"
FEED = {"x": values(ROWS, INPUTS)}
IDS = {"i": np.arange(VOCABULARY, dtype=np.int64)}
Chain = tuple[list[Any], dict[str, Any]]


def channel_sizes(expected: Array) -> Array:
    """Root mean square of each number along the last axis, so that no channel hides another."""
    squares = np.square(np.asarray(expected, np.float64))
    found = np.sqrt(squares.reshape(-1, expected.shape[-1]).mean(axis=0))
    return np.where(found > 0, found, 1.0)


def check_valid(proto: onnx.ModelProto) -> None:
    """ONNX's checker accepts the model; it insists on a shape for outputs of unknown rank."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for output in copy.graph.output:
        output.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(copy)


def compare(
    converted: Converted,
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    bound: float = INT8,
    **bounds: float,
) -> None:
    """Every output is within its bound of the float model's, each channel by its own size."""
    check_valid(converted.proto)
    names = [o.name for o in model.graph.output]
    pairs = zip(names, run(model, feeds), run(converted.path, feeds), strict=True)
    for name, expected, actual in pairs:
        assert actual.dtype == expected.dtype
        wide = expected.astype(np.float32)
        near = bounds.get(name, bound)
        assert_close(actual.astype(np.float32), wide, near, channel_sizes(wide))


def stored_once(converted: Converted, *arrays: Array) -> None:
    """The int8 tensors have the elements of `arrays`, each once."""
    found = sorted(a.size for a in integer_tensors(converted).values())
    assert found == sorted(a.size for a in arrays)


def only_scales_are_float(converted: Converted, most: int) -> None:
    """At most `most` float numbers are in initializers, and none in Constant nodes."""
    assert float_elements(converted) <= most
    constants = [n for n in converted.proto.graph.node if n.op_type == "Constant"]
    held = [int(np.prod(a.t.dims)) for n in constants for a in n.attribute if a.name == "value"]
    assert sum(held) <= 8


def half_exact(array: Array) -> Array:
    """Numbers that float16 holds exactly, so that a Cast changes nothing."""
    return np.asarray(array.astype(np.float16), np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def link(op: str, name: str, stored: Mapping[str, Array], **attributes: Any) -> Chain:
    """One node that makes `name` of stored arrays, which are called after it."""
    held = {f"{name}_{key}": array for key, array in stored.items()}
    return [node(op, list(held), [name], **attributes)], held


def sliced(array: Array, name: str) -> Chain:
    n, more = len(array), np.concatenate([values(*array.shape, seed=50), array, array * 3])
    return link("Slice", name, {"0": more, "from": ints(n), "to": ints(2 * n), "axes": ints(0)})


def joined(array: Array, name: str, cuts: Any, axis: int) -> Chain:
    parts = enumerate(np.split(array, cuts, axis=axis))
    return link("Concat", name, {str(i): part for i, part in parts}, axis=axis)


def unsqueezed(array: Array, name: str) -> Chain:
    inner = array[0] if array.shape[0] == 1 else array
    nodes, stored = link("Unsqueeze", name, {"0": inner, "axes": ints(0)})
    if inner is array:
        nodes[0].output[0], nodes[0].name = f"{name}_1", f"{name}_1_node"
        nodes.append(node("Squeeze", [f"{name}_1", f"{name}_axes"], [name]))
    return nodes, stored


def split(array: Array, name: str) -> Chain:
    both = np.concatenate([array, array[::-1] * 2], axis=-1)
    nodes, stored = link("Split", name, {"0": both, "sizes": ints(*[array.shape[-1]] * 2)}, axis=-1)
    nodes[0].output.append(f"{name}_rest")
    return nodes, stored


def long_chain(array: Array, name: str) -> Chain:
    """Constant in float16, Cast, Unsqueeze, Concat, Reshape, Transpose, Identity."""
    flipped = np.ascontiguousarray(array.T).astype(np.float16)
    nodes = []
    for i, part in enumerate(np.split(flipped, [3])):
        nodes += [
            node("Constant", [], [f"{name}_h{i}"], value=numpy_helper.from_array(part)),
            node("Cast", [f"{name}_h{i}"], [f"{name}_f{i}"], to=FLOAT),
            node("Unsqueeze", [f"{name}_f{i}", f"{name}_axes"], [f"{name}_u{i}"]),
        ]
    nodes += [
        node("Concat", [f"{name}_u0", f"{name}_u1"], [f"{name}_c"], axis=1),
        node("Reshape", [f"{name}_c", f"{name}_shape"], [f"{name}_r"]),
        node("Transpose", [f"{name}_r"], [f"{name}_t"]),
        node("Identity", [f"{name}_t"], [name]),
    ]
    return nodes, {f"{name}_axes": ints(0), f"{name}_shape": ints(*flipped.shape)}


CHAINS: dict[str, Callable[[Array, str], Chain]] = {
    "direct": lambda a, n: ([], {n: a}),
    "constant": lambda a, n: ([node("Constant", [], [n], value=numpy_helper.from_array(a))], {}),
    "identity": lambda a, n: link("Identity", n, {"0": a}),
    "transpose": lambda a, n: link("Transpose", n, {"0": a.T}, perm=list(range(a.ndim))[::-1]),
    "transpose-default": lambda a, n: link("Transpose", n, {"0": a.T}),
    "cast": lambda a, n: link("Cast", n, {"0": a.astype(np.float16)}, to=FLOAT),
    "slice": sliced,
    "concat-last": lambda a, n: joined(a, n, [5], -1),
    "concat-gates": lambda a, n: joined(a, n, 4, -2),
    "unsqueeze": unsqueezed,
    "reshape": lambda a, n: link("Reshape", n, {"0": a.ravel(), "to": ints(*a.shape[:-1], -1)}),
    "split": split,
    "long": long_chain,
    "number": lambda a, n: link("Mul", n, {"0": a * 2, "half": np.array(0.5, np.float32)}),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_layers_behind_a_chain(tmp_path: Path, chain: str) -> None:
    """The chain goes, and its numbers are stored once in 8 bits."""
    weights = {
        "w": half_exact(weight(INPUTS, OUTPUTS)),
        "v": half_exact(weight(OUTPUTS, INPUTS, axis=0)),
        "table": half_exact(weight(VOCABULARY, WIDTH, axis=0)),
        "lw": half_exact(weight(1, 4 * HIDDEN, FEATURES, seed=5, spread=False) * np.float32(3)),
        "lr": half_exact(weight(1, 4 * HIDDEN, HIDDEN, seed=6, spread=False) * np.float32(3)),
    }
    chained: list[Any] = []
    stored: dict[str, Any] = {}
    for name, array in weights.items():
        nodes, kept = CHAINS[chain](array, name)
        chained, stored = chained + nodes, stored | kept
    layers = [
        node("MatMul", ["x", "w"], ["y"]),
        node("Gemm", ["x", "v"], ["z"], transB=1),
        node("Gather", ["table", "i"], ["e"]),
        node("LSTM", ["s", "lw", "lr"], ["h", "", "c"], hidden_size=HIDDEN),
    ]
    inputs = {
        "x": (FLOAT, ["m", INPUTS]),
        "i": (INT64, ["n"]),
        "s": (FLOAT, ["t", "b", FEATURES]),
    }
    model = build([*chained, *layers], inputs, ["y", "z", "e", "h", "c"], stored)
    converted = convert(model, tmp_path)
    feeds = FEED | IDS | {"s": values(STEPS, BATCH, FEATURES)}
    compare(converted, model, feeds, h=PER_TENSOR, c=PER_TENSOR)
    stored_once(converted, *weights.values())
    only_scales_are_float(converted, 2 * OUTPUTS + VOCABULARY + 2 * 4 * HIDDEN + 32)
    assert not {n.name for n in chained} & {n.name for n in converted.proto.graph.node}
    # A weight that is stored in 16 bits takes no more than those.
    kept_bytes = weights["w"].nbytes // (2 if chain == "cast" else 1)
    assert converted.outcome("y_node").bytes_before == kept_bytes


def test_a_chain_that_feeds_a_float_layer_is_left_as_it_is(tmp_path: Path) -> None:
    w = weight(INPUTS, OUTPUTS)
    body = """w = Transpose (w0) v = Concat <axis = 1> (w, w) y = MatMul (x, w)
        [float] z = MatMul (x, v)"""
    model = text(body, X, "float[] y, float[] z", {"w0": w.T})
    converted = convert(model, tmp_path, nodes_to_exclude=["float"])
    compare(converted, model, FEED)
    assert {"Transpose", "Concat", "MatMul"} <= set(converted.ops)
    assert "w0" in {i.name for i in converted.proto.graph.initializer}
    stored_once(converted, w)


def test_a_weight_that_is_also_an_output_stays(tmp_path: Path) -> None:
    w = weight(INPUTS, OUTPUTS)
    outputs = f"float[] y, float[{INPUTS}, {OUTPUTS}] w"
    model = text("y = MatMul (x, w)", X, outputs, {"w": w})
    converted = convert(model, tmp_path)
    compare(converted, model, FEED)
    assert np.array_equal(run(converted.path, FEED)[1], w)


def test_parts_of_one_split_are_weights_of_their_own(tmp_path: Path) -> None:
    both = weight(INPUTS, 2 * OUTPUTS, spread=False)
    body = "w, v = Split <axis = 1> (both, sizes) y = MatMul (x, w) z = MatMul (x, v)"
    stored = {"both": both, "sizes": ints(OUTPUTS, OUTPUTS)}
    model = text(body, X, "float[] y, float[] z", stored)
    converted = convert(model, tmp_path)
    compare(converted, model, FEED)
    stored_once(converted, *np.split(both, 2, axis=1))


RECIPES = ["int8", "int8-per-tensor", "int8-block", "int8-accurate"]
YZ = "float[] y, float[] z"


@pytest.mark.parametrize("recipe", RECIPES)
def test_two_gemms_share_a_transposed_weight(tmp_path: Path, recipe: str) -> None:
    w = weight(INPUTS, INPUTS, axis=0, spread=recipe != "int8-per-tensor")
    stored = {"w": w, "b": values(INPUTS, seed=8), "c": values(INPUTS, seed=9)}
    body = """[first] y = Gemm <transB = 1> (x, w, b)
        [second] z = Gemm <transB = 1, alpha = 0.5> (y, w, c)"""
    model = text(body, X, YZ, stored)
    converted = convert(model, tmp_path, recipe=recipe)
    compare(converted, model, FEED, PER_TENSOR)
    stored_once(converted, w)
    first, second = converted.report.layers
    assert first.layer.shares_with == ("second",)
    assert (second.bytes_before, second.bytes_after) == (0, 0)
    if recipe == "int8":
        only_scales_are_float(converted, 4 * INPUTS + 8)


@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor"])
def test_two_lstms_share_w_and_r(tmp_path: Path, recipe: str) -> None:
    w, r = (weight(1, 4 * HIDDEN, HIDDEN, seed=s, spread=False) * np.float32(3) for s in (5, 6))
    lstm = f"LSTM <hidden_size = {HIDDEN}>"
    body = f"y, , yc = {lstm} (x, w, r) s = Squeeze (y, axis) z, zh = {lstm} (s, w, r)"
    outputs = "float[] y, float[] yc, float[] z, float[] zh"
    stored = {"w": w, "r": r, "axis": ints(1)}
    model = text(body, f"float[t, b, {HIDDEN}] x", outputs, stored)
    converted = convert(model, tmp_path, recipe=recipe)
    compare(converted, model, {"x": values(STEPS, BATCH, HIDDEN)}, PER_TENSOR)
    stored_once(converted, w, r)
    assert converted.ops.count("DynamicQuantizeLSTM") == 2


def test_three_forms_of_the_same_orientation_share_scales(tmp_path: Path) -> None:
    """x @ W, Gemm with W, and Gemm with transB over Transpose(W) all have outputs along axis 1."""
    w = weight(INPUTS, OUTPUTS)
    body = """wt = Transpose (w) y = MatMul (x, w) z = Gemm (x, w)
        v = Gemm <transB = 1> (x, wt)"""
    model = text(body, X, f"{YZ}, float[] v", {"w": w})
    converted = convert(model, tmp_path)
    compare(converted, model, FEED)
    stored_once(converted, w)
    only_scales_are_float(converted, OUTPUTS + 8)
    assert not any(o.notes for o in converted.report.layers)


def one_scale_is_noted(converted: Converted) -> None:
    for outcome in converted.report.layers:
        assert any("one scale for the whole" in n for n in outcome.notes)


BOTH_WAYS = "wt = Transpose (w) y = MatMul (x, w) [turned] z = MatMul (x, wt)"


def test_a_matrix_used_both_ways_round_gets_one_scale(tmp_path: Path) -> None:
    w = weight(INPUTS, INPUTS, spread=False)
    model = text(BOTH_WAYS, X, YZ, {"w": w})
    converted = convert(model, tmp_path)
    compare(converted, model, FEED)
    stored_once(converted, w)
    only_scales_are_float(converted, 8)
    one_scale_is_noted(converted)


def test_an_excluded_layer_does_not_cost_the_other_its_scales(tmp_path: Path) -> None:
    """The transposed use is float, so the remaining layer keeps a scale per channel."""
    model = text(BOTH_WAYS, X, YZ, {"w": weight(INPUTS, INPUTS)})
    converted = convert(model, tmp_path, nodes_to_exclude=["turned"])
    compare(converted, model, FEED)
    assert converted.report.quantized[0].notes == ()


def test_a_weight_shared_with_an_excluded_layer(tmp_path: Path) -> None:
    w = weight(INPUTS, INPUTS)
    body = "y = MatMul (x, w) [float] z = MatMul (x, w)"
    converted = convert(text(body, X, YZ, {"w": w}), tmp_path, nodes_to_exclude=["float"])
    compare(converted, text(body, X, YZ, {"w": w}), FEED)
    stored_once(converted, w)
    assert [i.name for i in converted.proto.graph.initializer].count("w") == 1
    assert np.allclose(run(converted.path, FEED)[1], FEED["x"] @ w, atol=1e-5)  # still float
    outcome = converted.outcome("float")
    assert not outcome.quantized and outcome.reason


def test_shared_by_a_linear_layer_and_a_graph_body(tmp_path: Path) -> None:
    """One tensor serves the main graph and both branches of an If."""
    w = weight(INPUTS, INPUTS)
    body = """y = MatMul (x, w)
        z = If (c) <then_branch = then () => (float[] t) { t = MatMul (x, w) },
                    else_branch = else () => (float[] e) { e = MatMul (y, w) }>"""
    model = text(body, f"{X}, bool c", YZ, {"w": w})
    converted = convert(model, tmp_path)
    for choice in (True, False):
        feeds = FEED | {"c": np.array(choice)}
        compare(converted, model, feeds, INT8 * (1 if choice else 2))
    stored_once(converted, w)
    only_scales_are_float(converted, INPUTS + 8)


@pytest.mark.parametrize("version", [3, 8])
def test_initializers_that_are_graph_inputs(tmp_path: Path, version: int) -> None:
    stored = {
        "w": weight(INPUTS, OUTPUTS),
        "v": weight(INPUTS, OUTPUTS, seed=3),
        "c": values(OUTPUTS),
        "table": weight(VOCABULARY, WIDTH, axis=0),
        "lw": weight(1, 4 * HIDDEN, FEATURES, seed=5, spread=False) * np.float32(3),
        "lr": weight(1, 4 * HIDDEN, HIDDEN, seed=6, spread=False) * np.float32(3),
    }
    body = f"""y = MatMul (x, w) z = Gemm (x, v, c) e = Gather (table, i)
        h = LSTM <hidden_size = {HIDDEN}> (s, lw, lr)"""
    inputs = f"{X}, int64[n] i, float[t, b, {FEATURES}] s"
    outputs = f"{YZ}, float[] e, float[] h"
    model = text(body, inputs, outputs, stored, opset=10 if version == 3 else 17)
    for i in model.graph.initializer:
        info = helper.make_tensor_value_info(i.name, i.data_type, list(i.dims))
        model.graph.input.append(info)
    model.ir_version = version
    check_valid(model)
    converted = convert(model, tmp_path, verify=True)
    assert converted.report.verification.status == "passed"
    feeds = FEED | IDS | {"s": values(STEPS, BATCH, FEATURES)}
    compare(converted, model, feeds, h=PER_TENSOR)
    bias = stored.pop("c")
    stored_once(converted, *stored.values())
    assert bias.size == OUTPUTS
    left = {i.name for i in converted.proto.graph.input}
    assert set(feeds) <= left and not stored.keys() & left
    note = next(n for n in converted.report.notes if "graph inputs" in n)
    assert all(name in note for name in stored)


def test_a_graph_input_with_a_default_that_no_layer_reads_stays(tmp_path: Path) -> None:
    stored = {"w": weight(INPUTS, OUTPUTS), "factor": np.array([2], np.float32)}
    body, inputs = "h = MatMul (x, w) y = Mul (h, factor)", f"{X}, float[1] factor"
    model = text(body, inputs, weights=stored)
    converted = convert(model, tmp_path)
    compare(converted, model, FEED)
    compare(converted, model, FEED | {"factor": np.array([-3], np.float32)})
    assert not converted.report.notes


def small_network(dtype: Any, code: int) -> onnx.ModelProto:
    """Gather, MatMul and Gemm with a bias over weights of `dtype`; float32 outside."""
    stored: dict[str, Any] = {
        "table": weight(VOCABULARY, WIDTH, axis=0, spread=False),
        "w": weight(WIDTH, OUTPUTS, seed=3, spread=False),
        "v": weight(INPUTS, OUTPUTS, seed=4, axis=0, spread=False),
        "b": values(INPUTS, seed=9),
    }
    for name, array in stored.items():
        data = array.astype(dtype).tobytes()
        stored[name] = helper.make_tensor(name, code, array.shape, data, raw=True)
    body = """e = Gather (table, i) h = MatMul (e, w)
        g = Gemm <transB = 1, alpha = 0.5> (h, v, b) y = Cast <to = 1> (g)"""
    return text(body, "int64[n] i", f"float[n, {INPUTS}] y", stored)


@pytest.mark.parametrize(
    ("dtype", "code", "recipe"),
    [
        (np.float16, FLOAT16, "int8"),
        (np.float16, FLOAT16, "int8-per-tensor"),
        (ml_dtypes.bfloat16, BFLOAT16, "int8"),
    ],
)
def test_weights_in_16_bits(tmp_path: Path, dtype: Any, code: int, recipe: str) -> None:
    model, twin = small_network(dtype, code), small_network(np.float32, FLOAT)
    for ours, theirs in zip(twin.graph.initializer, model.graph.initializer, strict=True):
        array = numpy_helper.to_array(theirs).astype(np.float32)  # the same numbers
        ours.CopyFrom(numpy_helper.from_array(array, ours.name))
    converted = convert(model, tmp_path, recipe=recipe)
    assert [o.quantized for o in converted.report.layers] == [True] * 3
    assert {i.name for i in converted.proto.graph.initializer if i.data_type == code} >= {"b"}
    assert sum(a.size for a in integer_tensors(converted).values()) == (
        VOCABULARY * WIDTH + WIDTH * OUTPUTS + INPUTS * OUTPUTS
    )
    [expected], [actual] = run(twin, IDS), run(converted.path, IDS)
    # The activations are rounded to 16 bits between layers: 8 bits of mantissa in bfloat16.
    bound = PER_TENSOR if recipe == "int8-per-tensor" else 2 * INT8
    assert_close(actual, expected, bound, channel_sizes(expected))


@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor"])
def test_a_float16_graph_keeps_its_types(tmp_path: Path, recipe: str) -> None:
    w = weight(INPUTS, OUTPUTS, spread=False).astype(np.float16)
    inputs, outputs = f"float16[m, {INPUTS}] x", f"float16[m, {OUTPUTS}] y"
    model = text("y = MatMul (x, w)", inputs, outputs, {"w": w})
    converted = convert(model, tmp_path, recipe=recipe)
    assert not {"MatMul"} & set(converted.ops)
    compare(converted, model, {"x": FEED["x"].astype(np.float16)}, 2 * INT8)
    assert converted.proto.graph.output[0].type.tensor_type.elem_type == FLOAT16
