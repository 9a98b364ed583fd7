"""ai.octavo.Linear and GroupedLinear: the core's bits, the float64 reference, shapes, refusals."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from octavo.onnx import custom_ops_library
from tests.core.layers import packed, random_layer, random_rows
from tests.core.statement import ACTIVATIONS, Layer, assert_same_bits
from tests.native_target.support import grouped_model, linear_model, model_of, opened, run
from tests.onnx.references.linear import reference_native as reference

threads = pytest.mark.parametrize("threads", [1, 2], ids=["one-thread", "two-threads"])
groupings = pytest.mark.parametrize("group", [0, 128], ids=["rows", "groups"])
weights = pytest.mark.parametrize("affine", [False, True], ids=["symmetric", "affine"])


def stated(layer: Layer, x: np.ndarray) -> np.ndarray:
    """The operator's own float64 statement, with its activation."""
    n = layer.q.shape[0]
    zero = np.zeros(n) if layer.zero is None else layer.zero
    bias = np.zeros(n) if layer.bias is None else layer.bias
    y = reference(x, layer.q, layer.scale, zero, bias, layer.group)
    return np.asarray(ACTIVATIONS[layer.activation](y))


def assert_near(y: np.ndarray, expected: np.ndarray, layer: Layer, x: np.ndarray) -> None:
    """Within a step of one input: where an integer lies between two, float32 may take either."""
    assert y.dtype == np.float32 and y.shape == expected.shape
    zero = np.zeros((len(layer.q), 1)) if layer.zero is None else layer.zero[:, None]
    largest = np.abs((layer.q - zero) * layer.scale[:, None].astype(np.float64)).max(axis=1)
    flat = np.asarray(x, np.float64).reshape(-1, x.shape[-1])
    step = (np.maximum(flat.max(axis=1), 0) - np.minimum(flat.min(axis=1), 0)) / 255
    # A few such inputs in a row, and float32's rounding of a sum of K products.
    room = 3 + x.shape[-1] * 255 * 2.0**-22
    bound = room * step[:, None] * largest + 1e-5 * (1 + np.abs(expected.reshape(-1, len(layer.q))))
    distance = np.abs(y.astype(np.float64) - expected).reshape(-1, len(layer.q))
    assert (distance <= bound).all(), float((distance / bound).max())
    # Nearly all outputs have no such input: then the two agree but for float32's rounding.
    size = np.sqrt(np.square(expected).mean())
    assert np.sqrt(np.square(y - expected).mean()) <= 2e-4 * size + 1e-6


# --- numbers --------------------------------------------------------------------------------------


@threads
@groupings
@weights
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1),
        (3, 5, 7),
        (7, 300, 33),
        (2, 1000, 17),
        (40, 64, 16),
        (150, 256, 96),
        (2, 33_000, 5),
    ],
    ids=lambda s: "x".join(map(str, s)),
)
def test_linear_has_the_bits_of_the_core(
    shape: tuple[int, int, int], affine: bool, group: int, threads: int
) -> None:
    m, k, n = shape
    layer = random_layer(n, k, group=group, affine=affine)
    x = random_rows(m, k)
    (y,) = run(linear_model(layer, ["m", k]), {"x": x}, threads)
    assert_same_bits(y, packed(layer)(x))


@groupings
@weights
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear_computes_its_reference(activation: str, affine: bool, group: int) -> None:
    layer = random_layer(37, 150, group=group, affine=affine, activation=activation)
    x = np.random.default_rng(5).standard_normal((19, 150)).astype(np.float32)
    (y,) = run(linear_model(layer, ["m", 150]), {"x": x})
    assert_near(y, stated(layer, x), layer, x)
    assert_same_bits(y, packed(layer)(x))


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_any_rank(rank: int) -> None:
    layer = random_layer(20, 35)
    x = random_rows(6, 35).reshape(1, 2, 3, 35)
    while x.ndim > rank:
        x = x[0]
    dims = [f"d{i}" for i in range(rank - 1)]
    (y,) = run(linear_model(layer, [*dims, 35]), {"x": x})
    assert_same_bits(y, packed(layer)(x))


@pytest.mark.parametrize("shape", [(0, 35), (2, 0, 35), (0, 3, 35)])
@pytest.mark.parametrize("with_residual", [False, True])
def test_no_rows(shape: tuple[int, ...], with_residual: bool) -> None:
    layer = random_layer(20, 35)
    dims = [f"d{i}" for i in range(len(shape) - 1)]
    model = linear_model(layer, [*dims, 35], [*dims, 20] if with_residual else None)
    feeds = {"x": np.empty(shape, np.float32)}
    if with_residual:
        feeds["residual"] = np.empty((*shape[:-1], 20), np.float32)
    (y,) = run(model, feeds)
    assert y.shape == (*shape[:-1], 20)


@threads
@groupings
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "-inf"])
def test_a_row_that_is_not_finite_spoils_itself_alone(bad: float, group: int, threads: int) -> None:
    layer = random_layer(33, 300, group=group, activation="gelu")
    session = opened(linear_model(layer, ["m", 300]), threads)
    x = random_rows(9, 300)
    before = session.run(None, {"x": x})[0]
    x[4, 17] = bad
    after = session.run(None, {"x": x})[0]
    rest = [i for i in range(9) if i != 4]
    assert np.isnan(after[4]).all()
    assert_same_bits(after[rest], before[rest])


# --- residuals ------------------------------------------------------------------------------------


@threads
@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_a_residual_of_the_outputs_shape_has_the_bits_of_the_core(
    activation: str, threads: int
) -> None:
    layer = random_layer(33, 64, activation=activation)
    x, residual = random_rows(50, 64), random_rows(50, 33)
    model = linear_model(layer, ["m", 64], ["m", 33])
    (y,) = run(model, {"x": x, "residual": residual}, threads)
    assert_same_bits(y, packed(layer)(x, residual))


@pytest.mark.parametrize(
    ("rows", "residual"),
    [
        ((4, 6), ()),
        ((4, 6), (1,)),
        ((4, 6), (33,)),
        ((4, 6), (6, 1)),
        ((4, 6), (1, 6, 33)),
        ((4, 6), (4, 1, 33)),
        ((4, 1), (4, 6, 33)),
        ((6,), (4, 6, 33)),
        ((6,), (5, 1, 6, 1)),
        ((), (3, 33)),
        ((1, 1), (7, 2, 5, 33)),
        ((0, 6), (1, 6, 33)),
        ((4, 1), (4, 0, 33)),
    ],
    ids=str,
)
def test_a_residual_broadcasts_as_numpy_does(
    rows: tuple[int, ...], residual: tuple[int, ...]
) -> None:
    layer = random_layer(33, 20, activation="relu")
    x = np.random.default_rng(1).standard_normal((*rows, 20)).astype(np.float32)
    r = np.random.default_rng(2).standard_normal(residual).astype(np.float32)
    model = linear_model(
        layer,
        [*(f"d{i}" for i in range(len(rows))), 20],
        [f"r{i}" for i in range(len(residual))],
    )
    (y,) = run(model, {"x": x, "residual": r})
    assert_same_bits(y, np.asarray(packed(layer)(x) + r))


def test_a_residual_of_one_output_enlarges_it() -> None:
    layer = random_layer(1, 20)
    x, r = random_rows(6, 20), random_rows(6, 9)
    (y,) = run(linear_model(layer, ["m", 20], ["m", 9]), {"x": x, "residual": r})
    assert_same_bits(y, packed(layer)(x) + r)


def test_a_residual_that_does_not_fit_is_named() -> None:
    session = opened(linear_model(random_layer(33, 20), ["m", 20], ["r", "c"]))
    feeds = {"x": random_rows(4, 20), "residual": random_rows(3, 33)}
    with pytest.raises(Exception, match=r"'dense'.*\[3, 33\].*\[4, 33\]"):
        session.run(None, feeds)


@pytest.mark.parametrize("shape", [(4, 21), (20, 4), ()], ids=str)
def test_an_input_of_another_width_is_named(shape: tuple[int, ...]) -> None:
    dims = [f"d{i}" for i in range(len(shape))]
    session = opened(linear_model(random_layer(33, 20), dims))
    with pytest.raises(Exception, match=r"'dense'.*X has shape.*has to be 20"):
        session.run(None, {"x": np.zeros(shape, np.float32)})


# --- several layers over one input ----------------------------------------------------------------


@threads
@groupings
@weights
def test_grouped_layers_have_the_bits_of_each(affine: bool, group: int, threads: int) -> None:
    layers = [
        random_layer(n, 150, group=group, affine=affine, activation=activation, seed=n)
        for n, activation in ((48, "none"), (17, "silu"), (1, "tanh"))
    ]
    x = random_rows(21, 150).reshape(3, 7, 150)
    found = run(grouped_model(layers, ["b", "s", 150]), {"x": x}, threads)
    for y, layer in zip(found, layers, strict=True):
        assert_same_bits(y, packed(layer)(x))


def test_one_word_is_the_activation_of_all_layers() -> None:
    layers = [random_layer(n, 20, activation="relu", seed=n) for n in (5, 6)]
    model = grouped_model(layers, ["m", 20])
    attribute(model, "activation", "relu")
    for y, layer in zip(run(model, {"x": random_rows(3, 20)}), layers, strict=True):
        assert_same_bits(y, packed(layer)(random_rows(3, 20)))


# --- inference of shapes --------------------------------------------------------------------------


def output_shapes(model: onnx.ModelProto) -> list[list[Any]]:
    return [o.shape for o in opened(model).get_outputs()]


@pytest.mark.parametrize(
    ("x", "residual", "y"),
    [
        (["b", "s", 20], None, ["b", "s", 33]),
        ([2, "s", 20], None, [2, "s", 33]),
        ([20], None, [33]),
        (["b", "s", 20], ["b", "s", 33], ["b", "s", 33]),
        (["b", "s", 20], [1, "s", 33], ["b", "s", 33]),
        (["s", 20], ["b", "s", 33], ["b", "s", 33]),
        ([1, 20], ["b", 33], ["b", 33]),
        (["b", 20], [7, 33], [7, 33]),
    ],
    ids=str,
)
def test_outputs_keep_the_names_of_their_dimensions(
    x: list[Any], residual: list[Any] | None, y: list[Any]
) -> None:
    assert output_shapes(linear_model(random_layer(33, 20), x, residual)) == [y]


def test_a_dimension_that_may_be_either_is_nobodys() -> None:
    (shape,) = output_shapes(linear_model(random_layer(33, 20), ["a", 20], ["b", 33]))
    assert shape[1] == 33 and shape[0] not in ("a", "b")


def test_outputs_of_several_layers_have_shapes() -> None:
    layers = [random_layer(n, 20) for n in (5, 6)]
    assert output_shapes(grouped_model(layers, ["b", 20])) == [["b", 5], ["b", 6]]


def test_shapes_reach_what_follows() -> None:
    """The outputs of a stock operator behind the node have shapes, too."""
    model = linear_model(random_layer(33, 20), ["b", "s", 20])
    model.graph.node.append(helper.make_node("Transpose", ["y"], ["z"], perm=[2, 1, 0]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", 1, None))
    assert output_shapes(model) == [[33, "s", "b"]]


# --- refusals -------------------------------------------------------------------------------------


def attribute(model: onnx.ModelProto, name: str, value: Any) -> None:
    """Sets an attribute of the first node; None takes it away."""
    node = model.graph.node[0]
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def constant(model: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    (tensor,) = [i for i in model.graph.initializer if i.name == name]
    tensor.CopyFrom(numpy_helper.from_array(array, name))


def refusal(model: onnx.ModelProto) -> str:
    """What ONNX Runtime says when it opens the model; the test fails where it does."""
    with pytest.raises(Exception) as caught:
        opened(model)
    return str(caught.value)


Change = Callable[[onnx.ModelProto], None]


def sets(name: str, value: Any) -> Change:
    return lambda model: attribute(model, name, value)


def puts(name: str, array: Any) -> Change:
    return lambda model: constant(model, name, array)


SCALES = np.full(33, 0.5, np.float32)


def with_one(value: float) -> np.ndarray:
    scales = SCALES.copy()
    scales[7] = value
    return scales


LINEAR_REFUSALS: dict[str, tuple[Change, str]] = {
    "no-N": (sets("N", None), "the attribute N is missing"),
    "no-K": (sets("K", None), "the attribute K is missing"),
    "no-checksum": (sets("checksum", None), "the attribute checksum is missing"),
    "N-is-text": (sets("N", "33"), "the attribute N is missing"),
    "N-is-0": (sets("N", 0), "the attribute N is 0, not in 1"),
    "N-is-negative": (sets("N", -33), "the attribute N is -33, not in 1"),
    "N-is-huge": (sets("N", 1 << 40), f"the attribute N is {1 << 40}, not in 1"),
    "another-N": (sets("N", 49), "W has shape [3, 5, 16, 4]; the attributes say [4, 5, 16, 4]"),
    "N-of-as-many-blocks": (sets("N", 34), "W_scale has shape [33]; the attributes say [34]"),
    "another-K": (sets("K", 24), "W has shape [3, 5, 16, 4]; the attributes say [3, 6, 16, 4]"),
    "another-group": (sets("group_size", 64), "group_size is 64; it is 0 (one scale a row) or 128"),
    "unknown-weight-format": (
        sets("weight_format", "int4"),
        "weights are in the format 'int4', which this release of Octavo does not know (it knows "
        "int8, int4-32, int4-32-affine, ",
    ),
    "unknown-activation": (
        sets("activation", "elu"),
        "the activation 'elu' is unknown; there are none, relu, gelu, gelu_tanh, silu, tanh, "
        "sigmoid",
    ),
    "two-activations": (sets("activation", "relu tanh"), "activation holds 2 words for 1 layers"),
    "another-checksum": (sets("checksum", 5), "W does not hold what was written"),
    "W-of-rank-3": (
        puts("W", np.zeros((3, 5, 64), np.int8)),
        "W has shape [3, 5, 64]; the attributes say [3, 5, 16, 4]",
    ),
    "W-of-rank-9": (puts("W", np.zeros((1,) * 9, np.int8)), "W has 9 dimensions; at most 8"),
    "W-is-empty": (puts("W", np.zeros((0, 5, 16, 4), np.int8)), "W has shape [0, 5, 16, 4]"),
    "scale-of-0": (puts("W_scale", with_one(0.0)), "W_scale[7] is 0.0"),
    "negative-scale": (puts("W_scale", with_one(-0.5)), "W_scale[7] is -0.5"),
    "scale-is-nan": (puts("W_scale", with_one(np.nan)), "W_scale[7] is nan"),
    "scale-is-infinite": (puts("W_scale", with_one(np.inf)), "W_scale[7] is inf"),
    "few-scales": (puts("W_scale", SCALES[:5]), "W_scale has shape [5]; the attributes say [33]"),
    "zero-points": (
        puts("W_zero_point", np.zeros((33, 1), np.int8)),
        "W_zero_point has shape [33, 1]; the attributes say [33]",
    ),
    "bias": (puts("B", SCALES[:1]), "B has shape [1]; the attributes say [33]"),
}


@pytest.mark.parametrize("case", LINEAR_REFUSALS)
def test_a_wrong_linear_node_is_refused_by_name(case: str) -> None:
    model = linear_model(random_layer(33, 20), ["m", 20])
    change, message = LINEAR_REFUSALS[case]
    change(model)
    found = refusal(model)
    assert message in found and "node 'dense' (ai.octavo.Linear)" in found, found


@pytest.mark.parametrize("name", ["W", "W_scale", "W_zero_point", "B"])
def test_what_has_to_be_constant_is_named(name: str) -> None:
    """As an input of the graph, as an output of a node, and from an outer graph."""
    model = linear_model(random_layer(33, 20), ["m", 20])
    fed = onnx.ModelProto()
    fed.CopyFrom(model)
    (tensor,) = [i for i in fed.graph.initializer if i.name == name]
    fed.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    fed.graph.initializer.remove(tensor)
    computed = onnx.ModelProto()
    computed.CopyFrom(model)
    computed.graph.node[0].input[list(model.graph.node[0].input).index(name)] = "made"
    made = helper.make_node("Mul" if tensor.data_type == 1 else "Identity", [name], ["made"])
    if tensor.data_type == 1:  # of something that no optimizer can know
        made.input.append("one")
        computed.graph.input.append(helper.make_tensor_value_info("one", 1, [1]))
    else:
        computed.graph.input.append(
            helper.make_tensor_value_info("flag", tensor.data_type, tensor.dims)
        )
        made = helper.make_node("Where", ["is", name, "flag"], ["made"])
        computed.graph.input.append(helper.make_tensor_value_info("is", 9, [1]))
        computed.graph.node.insert(0, helper.make_node("Identity", ["is"], ["is_too"]))
    computed.graph.node.insert(0, made)
    for changed in (fed, computed):
        found = refusal(changed)
        assert f"{name} is computed or comes from another graph" in found, found
        assert "node 'dense' (ai.octavo.Linear)" in found


def test_constants_of_an_outer_graph() -> None:
    """This release of ONNX Runtime finds them; 1.17 does not, so that no file has such."""
    layer = random_layer(33, 20)
    inner = linear_model(layer, ["m", 20])
    branch = helper.make_graph(
        list(inner.graph.node), "branch", [], [helper.make_tensor_value_info("y", 1, None)]
    )
    node = helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)
    model = model_of([node], {"x": ["m", 20]}, {"z": None}, {})
    model.graph.initializer.extend(inner.graph.initializer)
    model.graph.input.append(helper.make_tensor_value_info("c", 9, []))
    x = random_rows(4, 20)
    (y,) = run(model, {"x": x, "c": np.array(True)})
    assert_same_bits(y, packed(layer)(x))


GROUPED_REFUSALS: dict[str, tuple[Change, str]] = {
    "no-N": (sets("N", None), "the attributes N and checksum list 0 and 2 layers"),
    "no-checksum": (sets("checksum", None), "list 2 and 0 layers"),
    "one-N": (sets("N", [5]), "list 1 and 2 layers"),
    "three-N": (sets("N", [5, 6, 7]), "list 3 and 2 layers; there are 2 outputs, and 9 inputs"),
    "N-is-0": (sets("N", [5, 0]), "the attribute N holds 0, not in 1"),
    "N-is-negative": (sets("N", [-5, 6]), "the attribute N holds -5, not in 1"),
    "another-N": (sets("N", [6, 6]), "W_scale has shape [5]; the attributes say [6]"),
    "no-K": (sets("K", None), "the attribute K is missing"),
    "another-K": (sets("K", 28), "W has shape [1, 5, 16, 4]; the attributes say [1, 7, 16, 4]"),
    "another-checksum": (sets("checksum", [1, 2]), "W does not hold what was written"),
    "activations": (sets("activation", "relu relu relu"), "activation holds 3 words for 2 layers"),
    "no-activation-known": (sets("activation", "relu elu"), "the activation 'elu' is unknown"),
    "another-group": (sets("group_size", 32), "group_size is 32"),
    "W-is-uint8": (puts("1_W", np.zeros((1, 5, 16, 4), np.uint8)), "W is uint8; it has to be int8"),
    "scale-is-float64": (puts("0_W_scale", np.ones(5)), "W_scale is another type; it has to be"),
    "scale-of-0": (puts("0_W_scale", np.zeros(5, np.float32)), "W_scale[0] is 0.0"),
    "bias-is-int": (puts("1_B", np.zeros(6, np.int32)), "B is int32; it has to be float32"),
}


@pytest.mark.parametrize("case", GROUPED_REFUSALS)
def test_a_wrong_grouped_node_is_refused_by_name(case: str) -> None:
    model = grouped_model([random_layer(n, 20) for n in (5, 6)], ["m", 20])
    change, message = GROUPED_REFUSALS[case]
    change(model)
    found = refusal(model)
    assert message in found and "node 'qkv' (ai.octavo.GroupedLinear)" in found, found


def test_too_few_inputs_are_refused() -> None:
    grouped = grouped_model([random_layer(n, 20) for n in (5, 6)], ["m", 20])
    del grouped.graph.node[0].input[-1]
    assert "8 inputs where four a layer and X are wanted" in refusal(grouped)
    linear = linear_model(random_layer(33, 20), ["m", 20])
    del linear.graph.node[0].input[-1]
    assert "dense" in refusal(linear)


def test_a_node_without_name_is_called_so() -> None:
    model = linear_model(random_layer(33, 20), ["m", 20])
    model.graph.node[0].name = ""
    attribute(model, "activation", "elu")
    assert "(ai.octavo.Linear): the activation 'elu' is unknown" in refusal(model)


def test_an_optional_input_that_is_named_but_empty_is_none() -> None:
    layer = random_layer(33, 20)
    model = linear_model(layer, ["m", 20])
    model.graph.node[0].input.append("")
    (y,) = run(model, {"x": random_rows(4, 20)})
    assert_same_bits(y, packed(layer)(random_rows(4, 20)))


def test_the_library_exports_one_function() -> None:
    """Hosts of any language load it: its C++ library must not meet theirs."""
    found = subprocess.run(
        ["nm", "-D", "--defined-only", custom_ops_library()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[-1] for line in found.stdout.splitlines()] == ["RegisterCustomOps"]


def test_without_the_library_onnxruntime_says_what_it_lacks() -> None:
    model = linear_model(random_layer(33, 20), ["m", 20])
    with pytest.raises(Exception, match=r"ai\.octavo"):
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_layers_of_zero_weight_and_bias_alone() -> None:
    layer = replace(random_layer(16, 20), q=np.zeros((16, 20), np.int8))
    (y,) = run(linear_model(layer, ["m", 20]), {"x": random_rows(4, 20)})
    assert_same_bits(y, np.broadcast_to(layer.bias, (4, 16)).astype(np.float32))
