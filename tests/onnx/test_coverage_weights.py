"""Where weights hide: behind chains of nodes, shared, tied, as graph inputs, in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from octavo.onnx.constants import MOVES
from tests.onnx.rules.support import (
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
    values,
    weight,
)

ROWS, INPUTS, OUTPUTS = 24, 32, 48
STEPS, BATCH, FEATURES, HIDDEN = 7, 3, 20, 24
VOCABULARY, WIDTH = 512, 40

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
    converted: Converted, model: onnx.ModelProto, feeds: dict[str, Array], bound: float = INT8
) -> None:
    """Every output within `bound` of the float model's, each channel by its own size."""
    check_valid(converted.proto)
    for expected, actual in zip(run(model, feeds), run(converted.path, feeds), strict=True):
        assert actual.dtype == expected.dtype
        wide = expected.astype(np.float32)
        assert_close(actual.astype(np.float32), wide, bound, channel_sizes(wide))


def stored_once(converted: Converted, *arrays: Array) -> None:
    """The int8 tensors have the elements of `arrays`, each once."""
    found = sorted(a.size for a in integer_tensors(converted).values())
    assert found == sorted(a.size for a in arrays)


def only_scales_are_float(converted: Converted, most: int) -> None:
    """At most `most` float numbers in initializers, and none in Constant nodes."""
    assert float_elements(converted) <= most
    held = [
        int(np.prod(a.t.dims))
        for n in converted.proto.graph.node
        for a in n.attribute
        if n.op_type == "Constant" and a.name == "value"
    ]
    assert sum(held) <= 8


def half_exact(array: Array) -> Array:
    """Numbers that float16 holds exactly, so that a Cast changes nothing."""
    return np.asarray(array.astype(np.float16), np.float32)


# --- chains: each makes `name` with the numbers of `array` --------------------------------------


def direct(array: Array, name: str) -> Chain:
    return [], {name: array}


def constant(array: Array, name: str) -> Chain:
    return [node("Constant", [], [name], value=numpy_helper.from_array(array))], {}


def identity(array: Array, name: str) -> Chain:
    return [node("Identity", [f"{name}_0"], [name])], {f"{name}_0": array}


def transpose(array: Array, name: str) -> Chain:
    perm = list(range(array.ndim))[::-1]
    return [node("Transpose", [f"{name}_0"], [name], perm=perm)], {f"{name}_0": array.T}


def transpose_default(array: Array, name: str) -> Chain:
    return [node("Transpose", [f"{name}_0"], [name])], {f"{name}_0": array.T}


def cast(array: Array, name: str) -> Chain:
    return [node("Cast", [f"{name}_0"], [name], to=FLOAT)], {f"{name}_0": array.astype(np.float16)}


def slice_(array: Array, name: str) -> Chain:
    more = np.concatenate([values(*array.shape, seed=50), array, array * 3])
    bounds = {f"{name}_from": [len(array)], f"{name}_to": [2 * len(array)], f"{name}_axes": [0]}
    nodes = [node("Slice", [f"{name}_0", *bounds], [name])]
    return nodes, {f"{name}_0": more, **{k: np.array(v, np.int64) for k, v in bounds.items()}}


def concat_last(array: Array, name: str) -> Chain:
    parts = np.split(array, [5], axis=-1)
    stored = {f"{name}_{i}": np.ascontiguousarray(p) for i, p in enumerate(parts)}
    return [node("Concat", list(stored), [name], axis=-1)], stored


def concat_gates(array: Array, name: str) -> Chain:
    parts = np.split(array, 4, axis=-2)
    stored = {f"{name}_{i}": np.ascontiguousarray(p) for i, p in enumerate(parts)}
    return [node("Concat", list(stored), [name], axis=-2)], stored


def unsqueeze(array: Array, name: str) -> Chain:
    zero = np.array([0], np.int64)
    if array.shape[0] == 1:
        nodes = [node("Unsqueeze", [f"{name}_0", f"{name}_axes"], [name])]
        return nodes, {f"{name}_0": array[0], f"{name}_axes": zero}
    nodes = [
        node("Unsqueeze", [f"{name}_0", f"{name}_axes"], [f"{name}_1"]),
        node("Squeeze", [f"{name}_1", f"{name}_axes"], [name]),
    ]
    return nodes, {f"{name}_0": array, f"{name}_axes": zero}


def reshape(array: Array, name: str) -> Chain:
    shape = np.array([*array.shape[:-1], -1], np.int64)
    nodes = [node("Reshape", [f"{name}_0", f"{name}_shape"], [name])]
    return nodes, {f"{name}_0": array.ravel(), f"{name}_shape": shape}


def split(array: Array, name: str) -> Chain:
    both = np.concatenate([array, array[::-1] * 2], axis=-1)
    sizes = np.array([array.shape[-1]] * 2, np.int64)
    nodes = [node("Split", [f"{name}_0", f"{name}_sizes"], [name, f"{name}_rest"], axis=-1)]
    return nodes, {f"{name}_0": both, f"{name}_sizes": sizes}


def long_chain(array: Array, name: str) -> Chain:
    """Constant in float16, Cast, Unsqueeze, Concat, Reshape, Transpose, Identity."""
    flipped = np.ascontiguousarray(array.T).astype(np.float16)
    parts = np.split(flipped, [3])
    n = name
    nodes, pieces = [], []
    for i, part in enumerate(parts):
        nodes += [
            node("Constant", [], [f"{n}_h{i}"], value=numpy_helper.from_array(part)),
            node("Cast", [f"{n}_h{i}"], [f"{n}_f{i}"], to=FLOAT),
            node("Unsqueeze", [f"{n}_f{i}", f"{n}_axes"], [f"{n}_u{i}"]),
        ]
        pieces.append(f"{n}_u{i}")
    perm = list(range(array.ndim))[::-1]
    nodes += [
        node("Concat", pieces, [f"{n}_c"], axis=1),
        node("Reshape", [f"{n}_c", f"{n}_shape"], [f"{n}_r"]),
        node("Transpose", [f"{n}_r"], [f"{n}_t"], perm=perm),
        node("Identity", [f"{n}_t"], [n]),
    ]
    shape = np.array(flipped.shape, np.int64)
    return nodes, {f"{n}_axes": np.array([0], np.int64), f"{n}_shape": shape}


CHAINS = [
    direct,
    constant,
    identity,
    transpose,
    transpose_default,
    cast,
    slice_,
    concat_last,
    concat_gates,
    unsqueeze,
    reshape,
    split,
    long_chain,
]
chains = pytest.mark.parametrize("chain", CHAINS, ids=lambda c: c.__name__.strip("_"))
CHAIN_TYPES = {"Identity", "Cast", "Slice", "Concat", "Unsqueeze", "Split", "Constant"}


@chains
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gemm-transB"])
def test_linear_behind_a_chain(tmp_path: Path, op: str, chain: Callable[..., Chain]) -> None:
    w = half_exact(weight(INPUTS, OUTPUTS))
    held = np.ascontiguousarray(w.T) if op == "Gemm-transB" else w
    nodes, stored = chain(held, "w")
    attributes = {"transB": 1} if op == "Gemm-transB" else {}
    layer = node(op.split("-", maxsplit=1)[0], ["x", "w"], ["y"], **attributes)
    model = build([*nodes, layer], {"x": (FLOAT, ["m", INPUTS])}, ["y"], stored)
    converted = convert(model, tmp_path)
    compare(converted, model, {"x": values(ROWS, INPUTS)})
    stored_once(converted, w)
    only_scales_are_float(converted, OUTPUTS + 8)
    assert not CHAIN_TYPES & set(converted.ops)
    # A weight that is stored in 16 bits takes no more than those.
    held = converted.report.layers[0].bytes_before
    ops = {n.op_type for n in nodes}
    assert held == (w.nbytes // 2 if "Cast" in ops <= MOVES else w.nbytes)


@chains
def test_lookup_behind_a_chain(tmp_path: Path, chain: Callable[..., Chain]) -> None:
    table = half_exact(weight(VOCABULARY, WIDTH, axis=0))
    nodes, stored = chain(table, "table")
    layer = node("Gather", ["table", "i"], ["y"])
    model = build([*nodes, layer], {"i": (INT64, ["b", "s"])}, ["y"], stored)
    converted = convert(model, tmp_path)
    ids = np.arange(VOCABULARY, dtype=np.int64).reshape(2, -1)
    compare(converted, model, {"i": ids})
    stored_once(converted, table)
    only_scales_are_float(converted, VOCABULARY + 8)


def lstm_model(
    chain: Callable[..., Chain] = direct, *, twice: bool = False
) -> tuple[onnx.ModelProto, Array, Array]:
    """One LSTM, or two in turn over the same W and R."""
    inputs = HIDDEN if twice else FEATURES
    w = half_exact(weight(1, 4 * HIDDEN, inputs, seed=5, spread=False) * np.float32(3))
    r = half_exact(weight(1, 4 * HIDDEN, HIDDEN, seed=6, spread=False) * np.float32(3))
    w_nodes, w_stored = chain(w, "w")
    r_nodes, r_stored = chain(r, "r")
    layers = [node("LSTM", ["x", "w", "r"], ["y", "", "y_c"], hidden_size=HIDDEN)]
    outputs = ["y", "y_c"]
    if twice:
        layers += [
            node("Squeeze", ["y", "axis"], ["x2"]),
            node("LSTM", ["x2", "w", "r"], ["z", "z_h"], hidden_size=HIDDEN),
        ]
        outputs += ["z", "z_h"]
        r_stored["axis"] = np.array([1], np.int64)
    model = build(
        [*w_nodes, *r_nodes, *layers],
        {"x": (FLOAT, ["t", "b", inputs])},
        outputs,
        {**w_stored, **r_stored},
    )
    return model, w, r


@chains
def test_lstm_behind_a_chain(tmp_path: Path, chain: Callable[..., Chain]) -> None:
    model, w, r = lstm_model(chain)
    converted = convert(model, tmp_path)
    compare(converted, model, {"x": values(STEPS, BATCH, FEATURES)}, PER_TENSOR)
    stored_once(converted, w, r)
    only_scales_are_float(converted, 2 * 4 * HIDDEN + 8)


def test_a_weight_times_a_number_is_a_chain_too(tmp_path: Path) -> None:
    w = weight(INPUTS, OUTPUTS)
    nodes = [node("Mul", ["w0", "half"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    stored = {"w0": w, "half": np.array(0.5, np.float32)}
    model = build(nodes, {"x": (FLOAT, ["m", INPUTS])}, ["y"], stored)
    converted = convert(model, tmp_path)
    compare(converted, model, {"x": values(ROWS, INPUTS)})
    stored_once(converted, w)


def test_a_chain_that_feeds_a_float_layer_is_left_as_it_is(tmp_path: Path) -> None:
    w = weight(INPUTS, OUTPUTS)
    nodes = [
        node("Transpose", ["w0"], ["w"]),
        node("Concat", ["w", "w"], ["v"], axis=1),
        node("MatMul", ["x", "w"], ["y"]),
        node("MatMul", ["x", "v"], ["z"]),
    ]
    model = build(nodes, {"x": (FLOAT, ["m", INPUTS])}, ["y", "z"], {"w0": w.T})
    converted = convert(model, tmp_path, nodes_to_exclude=["z_node"])
    compare(converted, model, {"x": values(ROWS, INPUTS)})
    assert {"Transpose", "Concat", "MatMul"} <= set(converted.ops)
    assert "w0" in {i.name for i in converted.proto.graph.initializer}
    stored_once(converted, w)


def test_a_weight_that_is_also_an_output_stays(tmp_path: Path) -> None:
    w = weight(INPUTS, OUTPUTS)
    outputs = {"y": (FLOAT, None), "w": (FLOAT, [INPUTS, OUTPUTS])}
    model = build(
        [node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ["m", INPUTS])}, outputs, {"w": w}
    )
    converted = convert(model, tmp_path)
    x = values(ROWS, INPUTS)
    compare(converted, model, {"x": x})
    assert np.array_equal(run(converted.path, {"x": x})[1], w)


# --- shared and tied ----------------------------------------------------------------------------


def two_layers(
    first: Any, second: Any, stored: dict[str, Any], more: Sequence[Any] = ()
) -> onnx.ModelProto:
    return build([*more, first, second], {"x": (FLOAT, ["m", INPUTS])}, ["y", "z"], stored)


@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor", "int8-block", "int8-accurate"])
def test_two_gemms_share_a_transposed_weight(tmp_path: Path, recipe: str) -> None:
    w = weight(INPUTS, INPUTS, axis=0, spread=recipe != "int8-per-tensor")
    stored = {"w": w, "b": values(INPUTS, seed=8), "c": values(INPUTS, seed=9)}
    model = two_layers(
        node("Gemm", ["x", "w", "b"], ["y"], transB=1),
        node("Gemm", ["y", "w", "c"], ["z"], transB=1, alpha=0.5),
        stored,
    )
    converted = convert(model, tmp_path, recipe=recipe)
    compare(converted, model, {"x": values(ROWS, INPUTS)}, PER_TENSOR)
    stored_once(converted, w)
    first, second = converted.report.layers
    assert first.layer.shares_with == ("z_node",)
    assert (second.bytes_before, second.bytes_after) == (0, 0)
    if recipe == "int8":
        only_scales_are_float(converted, 4 * INPUTS + 8)


def test_three_forms_of_the_same_orientation_share_scales(tmp_path: Path) -> None:
    """x @ W, Gemm with W, and Gemm with transB over Transpose(W) all have outputs along axis 1."""
    w = weight(INPUTS, OUTPUTS)
    nodes = [
        node("Transpose", ["w"], ["wt"]),
        node("MatMul", ["x", "w"], ["y"]),
        node("Gemm", ["x", "w"], ["z"]),
        node("Gemm", ["x", "wt"], ["v"], transB=1),
    ]
    model = build(nodes, {"x": (FLOAT, ["m", INPUTS])}, ["y", "z", "v"], {"w": w})
    converted = convert(model, tmp_path)
    compare(converted, model, {"x": values(ROWS, INPUTS)})
    stored_once(converted, w)
    only_scales_are_float(converted, OUTPUTS + 8)
    assert not any(o.notes for o in converted.report.layers)


def test_two_lstms_share_w_and_r(tmp_path: Path) -> None:
    model, w, r = lstm_model(twice=True)
    converted = convert(model, tmp_path)
    compare(converted, model, {"x": values(STEPS, BATCH, HIDDEN)}, PER_TENSOR)
    stored_once(converted, w, r)
    assert converted.ops.count("DynamicQuantizeLSTM") == 2


@pytest.mark.parametrize("head", ["MatMul", "Gemm"])
def test_a_table_tied_to_the_output_layer(tmp_path: Path, head: str) -> None:
    table = weight(VOCABULARY, WIDTH, axis=0)
    nodes = [node("Gather", ["table", "i"], ["e"]), node("Tanh", ["e"], ["t"])]
    if head == "MatMul":
        nodes += [node("Transpose", ["table"], ["tt"]), node("MatMul", ["t", "tt"], ["y"])]
    else:
        nodes += [node("Gemm", ["t", "table"], ["y"], transB=1)]
    outputs = {"y": (FLOAT, ["n", VOCABULARY]), "e": (FLOAT, ["n", WIDTH])}
    model = build(nodes, {"i": (INT64, ["n"])}, outputs, {"table": table})
    converted = convert(model, tmp_path)
    ids = np.arange(VOCABULARY, dtype=np.int64)
    compare(converted, model, {"i": ids})
    stored_once(converted, table)
    only_scales_are_float(converted, VOCABULARY + 8)
    assert [o.quantized for o in converted.report.layers] == [True, True]
    assert not any("one scale" in n for o in converted.report.layers for n in o.notes)


def test_a_table_used_the_other_way_round_gets_one_scale(tmp_path: Path) -> None:
    """e @ table: outputs along the table's columns, which no scale a row serves."""
    table = weight(VOCABULARY, WIDTH, spread=False)
    nodes = [
        node("Gather", ["table", "i"], ["e"]),
        node("MatMul", ["p", "table"], ["y"]),
    ]
    inputs = {"i": (INT64, ["n"]), "p": (FLOAT, ["m", VOCABULARY])}
    model = build(nodes, inputs, ["e", "y"], {"table": table})
    converted = convert(model, tmp_path)
    ids = np.arange(VOCABULARY, dtype=np.int64)
    compare(converted, model, {"i": ids, "p": values(ROWS, VOCABULARY)})
    stored_once(converted, table)
    for outcome in converted.report.layers:
        assert any("one scale for the whole" in n for n in outcome.notes)


def test_a_matrix_used_both_ways_round_gets_one_scale(tmp_path: Path) -> None:
    w = weight(INPUTS, INPUTS, spread=False)
    model = two_layers(
        node("MatMul", ["x", "w"], ["y"]),
        node("MatMul", ["x", "wt"], ["z"]),
        {"w": w},
        [node("Transpose", ["w"], ["wt"])],
    )
    converted = convert(model, tmp_path)
    compare(converted, model, {"x": values(ROWS, INPUTS)})
    stored_once(converted, w)
    only_scales_are_float(converted, 8)
    for outcome in converted.report.layers:
        assert any("one scale for the whole weight" in n for n in outcome.notes)


def test_a_weight_shared_with_an_excluded_layer(tmp_path: Path) -> None:
    w = weight(INPUTS, INPUTS)
    model = two_layers(
        node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["x", "w"], ["z"]), {"w": w}
    )
    converted = convert(model, tmp_path, nodes_to_exclude=["z_node"])
    x = values(ROWS, INPUTS)
    compare(converted, model, {"x": x})
    stored_once(converted, w)
    assert [i.name for i in converted.proto.graph.initializer].count("w") == 1
    assert np.allclose(run(converted.path, {"x": x})[1], x @ w, atol=1e-5)  # still float
    outcome = converted.outcome("z_node")
    assert not outcome.quantized and outcome.reason


def test_an_excluded_layer_does_not_cost_the_other_its_scales(tmp_path: Path) -> None:
    """The transposed use is float, so the remaining layer keeps a scale per channel."""
    w = weight(INPUTS, INPUTS)
    model = two_layers(
        node("MatMul", ["x", "w"], ["y"]),
        node("MatMul", ["x", "wt"], ["z"]),
        {"w": w},
        [node("Transpose", ["w"], ["wt"])],
    )
    converted = convert(model, tmp_path, nodes_to_exclude=["z_node"])
    compare(converted, model, {"x": values(ROWS, INPUTS)})
    assert converted.outcome("y_node").notes == ()


def test_shared_by_a_linear_layer_and_a_graph_body(tmp_path: Path) -> None:
    """One tensor serves the main graph and both branches of an If."""
    w = weight(INPUTS, INPUTS)
    branches = {
        f"{which}_branch": helper.make_graph(
            [node("MatMul", [source, "w"], [which])],
            which,
            [],
            [helper.make_tensor_value_info(which, FLOAT, None)],
        )
        for which, source in (("then", "x"), ("else", "y"))
    }
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("If", ["c"], ["z"], **branches)]
    inputs = {"x": (FLOAT, ["m", INPUTS]), "c": (TensorProto.BOOL, [])}
    model = build(nodes, inputs, ["y", "z"], {"w": w})
    converted = convert(model, tmp_path)
    for choice in (True, False):
        feeds = {"x": values(ROWS, INPUTS), "c": np.array(choice)}
        compare(converted, model, feeds, INT8 * (1 if choice else 2))
    stored_once(converted, w)
    only_scales_are_float(converted, INPUTS + 8)


# --- initializers that are also graph inputs -----------------------------------------------------


@pytest.mark.parametrize("version", [3, 8])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "LSTM", "Gather"])
def test_initializers_that_are_graph_inputs(tmp_path: Path, op: str, version: int) -> None:
    if op == "LSTM":
        model, *arrays = lstm_model()
        feeds = {"x": values(STEPS, BATCH, FEATURES)}
    elif op == "Gather":
        arrays = [weight(VOCABULARY, WIDTH, axis=0)]
        inputs = {"i": (INT64, ["n"])}
        model = build([node("Gather", ["w", "i"], ["y"])], inputs, ["y"], {"w": arrays[0]})
        feeds = {"i": np.arange(VOCABULARY, dtype=np.int64)}
    else:
        arrays = [weight(INPUTS, OUTPUTS)]
        inputs = {"x": (FLOAT, ["m", INPUTS])}
        model = build([node(op, ["x", "w"], ["y"])], inputs, ["y"], {"w": arrays[0]})
        feeds = {"x": values(ROWS, INPUTS)}
    names = {i.name for i in model.graph.initializer}
    for i in model.graph.initializer:
        info = helper.make_tensor_value_info(i.name, i.data_type, list(i.dims))
        model.graph.input.append(info)
    model.ir_version = version
    if op == "Gemm":
        model.opset_import[0].version = 11  # before, its C was required
    elif version == 3:
        model.opset_import[0].version = 10
    check_valid(model)
    converted = convert(model, tmp_path, verify=True)
    assert converted.report.verification.status == "passed"
    compare(converted, model, feeds, PER_TENSOR if op == "LSTM" else INT8)
    stored_once(converted, *arrays)
    left = {i.name for i in converted.proto.graph.input}
    assert set(feeds) <= left and not names & left
    note = next(n for n in converted.report.notes if "graph inputs" in n)
    assert all(name in note for name in names)


def test_a_graph_input_with_a_default_that_no_layer_reads_stays(tmp_path: Path) -> None:
    w = weight(INPUTS, OUTPUTS)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Mul", ["h", "factor"], ["y"])]
    inputs = {"x": (FLOAT, ["m", INPUTS]), "factor": (FLOAT, [1])}
    model = build(nodes, inputs, ["y"], {"w": w, "factor": np.array([2], np.float32)})
    converted = convert(model, tmp_path)
    x = values(ROWS, INPUTS)
    compare(converted, model, {"x": x})
    compare(converted, model, {"x": x, "factor": np.array([-3], np.float32)})
    assert not converted.report.notes


# --- 16 bits --------------------------------------------------------------------------------------


def small_network(dtype: Any, code: int) -> onnx.ModelProto:
    """Gather, MatMul and Gemm with a bias over weights of `dtype`; float32 outside."""
    stored: dict[str, Any] = {
        "table": weight(VOCABULARY, WIDTH, axis=0, spread=False),
        "w": weight(WIDTH, OUTPUTS, seed=3, spread=False),
        "v": weight(INPUTS, OUTPUTS, seed=4, axis=0, spread=False),
        "b": values(INPUTS, seed=9),
    }
    stored = {
        k: helper.make_tensor(k, code, a.shape, a.astype(dtype).tobytes(), raw=True)
        for k, a in stored.items()
    }
    nodes = [
        node("Gather", ["table", "i"], ["e"]),
        node("MatMul", ["e", "w"], ["h"]),
        node("Gemm", ["h", "v", "b"], ["g"], transB=1, alpha=0.5),
        node("Cast", ["g"], ["y"], to=FLOAT),
    ]
    return build(nodes, {"i": (INT64, ["n"])}, {"y": (FLOAT, ["n", INPUTS])}, stored)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_in_16_bits(tmp_path: Path, kind: str) -> None:
    import ml_dtypes

    dtype, code = {"float16": (np.float16, FLOAT16), "bfloat16": (ml_dtypes.bfloat16, BFLOAT16)}[
        kind
    ]
    model = small_network(dtype, code)
    twin = small_network(np.float32, FLOAT)
    if kind == "bfloat16":  # the same numbers in float32
        for ours, theirs in zip(twin.graph.initializer, model.graph.initializer, strict=True):
            array = numpy_helper.to_array(theirs).astype(np.float32)
            ours.CopyFrom(numpy_helper.from_array(array, ours.name))
    converted = convert(model, tmp_path)
    assert [o.quantized for o in converted.report.layers] == [True] * 3
    assert {i.name for i in converted.proto.graph.initializer if i.data_type == code} == {"b"}
    assert sum(a.size for a in integer_tensors(converted).values()) == (
        VOCABULARY * WIDTH + WIDTH * OUTPUTS + INPUTS * OUTPUTS
    )
    ids = np.arange(VOCABULARY, dtype=np.int64)
    # the activations are rounded to 16 bits between layers: 8 bits of mantissa in bfloat16
    bound = 2 * INT8
    [expected] = run(twin, {"i": ids})
    if kind == "float16":
        [float16] = run(model, {"i": ids})
        assert_close(float16, expected, 2e-3, channel_sizes(expected))
        expected = float16
    [actual] = run(converted.path, {"i": ids})
    assert_close(actual, expected, bound, channel_sizes(expected))


def test_a_float16_graph_keeps_its_types(tmp_path: Path) -> None:
    w = weight(INPUTS, OUTPUTS, spread=False).astype(np.float16)
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    model = build(
        nodes, {"x": (FLOAT16, ["m", INPUTS])}, {"y": (FLOAT16, ["m", OUTPUTS])}, {"w": w}
    )
    converted = convert(model, tmp_path)
    compare(converted, model, {"x": values(ROWS, INPUTS).astype(np.float16)})
    assert converted.proto.graph.output[0].type.tensor_type.elem_type == FLOAT16


def test_a_float16_lstm(tmp_path: Path) -> None:
    model, w, r = lstm_model()
    for i in model.graph.initializer:
        i.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(i).astype(np.float16), i.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = FLOAT16
    converted = convert(model, tmp_path)
    stored_once(converted, w, r)
    x = values(STEPS, BATCH, FEATURES).astype(np.float16)
    twin, *_ = lstm_model()
    expected = run(twin, {"x": x.astype(np.float32)})
    for e, a in zip(expected, run(converted.path, {"x": x}), strict=True):
        assert a.dtype == np.float16
        assert_close(a.astype(np.float32), e, PER_TENSOR)
