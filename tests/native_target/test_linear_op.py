"""ai.octavo.Linear and GroupedLinear: the core's bits, the float64 statement, shapes, refusals."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper

from octavo.onnx import custom_ops_library
from tests.core.layers import packed, random_layer, random_rows
from tests.core.statement import ACTIVATIONS, assert_same_bits, assert_states, quantize_rows
from tests.graphs import FLOAT, normal
from tests.native_target.nodes import (
    REFUSALS,
    Change,
    grouped_model,
    linear_model,
    opened,
    puts,
    sets,
)


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], threads: int = 1) -> Any:
    return opened(model, threads).run(None, feeds)


@given(
    m=st.integers(0, 40),
    k=st.integers(1, 300),
    n=st.integers(1, 70),
    group=st.sampled_from([0, 128]),
    affine=st.booleans(),
    activation=st.sampled_from(list(ACTIVATIONS)),
    added=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
@example(2, 33_000, 5, 0, True, "none", False, 1)
@example(150, 256, 96, 128, True, "gelu", True, 2)
@example(0, 35, 20, 0, False, "none", True, 1)
@settings(max_examples=25, deadline=None)
def test_linear_has_the_bits_of_the_core_and_states_the_definition(
    m: int, k: int, n: int, group: int, affine: bool, activation: str, added: bool, threads: int
) -> None:
    layer = random_layer(n, k, group=group, affine=affine, activation=activation)
    x, residual = random_rows(m, k), random_rows(m, n) if added else None
    model = linear_model(layer, ["m", k], ["m", n] if added else None)
    (y,) = run(model, {"x": x} | ({"residual": residual} if added else {}), threads)
    assert_same_bits(y, packed(layer)(x, residual))
    assert_states(y, layer(*quantize_rows(x, group), residual))


@pytest.mark.parametrize("shape", [(35,), (1, 2, 3, 35), (2, 0, 35)], ids=str)
def test_inputs_of_any_rank(shape: tuple[int, ...]) -> None:
    layer = random_layer(20, 35)
    x = random_rows(int(np.prod(shape[:-1])), 35).reshape(shape)
    (y,) = run(linear_model(layer, [*(f"d{i}" for i in range(len(shape) - 1)), 35]), {"x": x})
    assert_same_bits(y, packed(layer)(x))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_spoils_itself_alone(bad: float) -> None:
    session = opened(linear_model(random_layer(33, 300, group=128, activation="gelu"), None), 2)
    x = random_rows(9, 300)
    before = session.run(None, {"x": x})[0]
    x[4, 17] = bad
    after = session.run(None, {"x": x})[0]
    assert np.isnan(after[4]).all()
    assert_same_bits(np.delete(after, 4, 0), np.delete(before, 4, 0))


RESIDUALS = [
    *(((4, 6), shape) for shape in [(), (1,), (6, 1), (1, 6, 33), (4, 1, 33)]),
    *(((4, 1), shape) for shape in [(4, 6, 33), (4, 0, 33)]),
    *[((6,), (5, 1, 6, 1)), ((), (3, 33)), ((1, 1), (7, 2, 5, 33)), ((0, 6), (1, 6, 33))],
    ((6,), (6, 9)),  # one output, enlarged
]


@pytest.mark.parametrize(("rows", "residual"), RESIDUALS, ids=str)
def test_a_residual_broadcasts_as_numpy_does(
    rows: tuple[int, ...], residual: tuple[int, ...]
) -> None:
    layer = random_layer(1 if 9 in residual else 33, 20, activation="relu")
    x, r = normal(*rows, 20), np.asarray(normal(*residual, seed=1), np.float32)
    dims = [f"r{i}" for i in range(len(residual))]
    model = linear_model(layer, [*(f"d{i}" for i in range(len(rows))), 20], dims)
    (y,) = run(model, {"x": x, "residual": r})
    assert_same_bits(y, np.asarray(packed(layer)(x) + r))


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": (4, 20), "residual": (3, 33)}, r"'dense'.*\[3, 33\].*\[4, 33\]"),
        ({"x": (4, 21), "residual": (4, 33)}, r"'dense'.*X has shape \[4, 21\].* 20"),
        ({"x": (20, 4), "residual": (4, 33)}, r"'dense'.*X has shape \[20, 4\].* 20"),
        ({"x": (), "residual": (4, 33)}, r"'dense'.*X has shape \[\].* 20"),
    ],
    ids=str,
)
def test_inputs_that_do_not_fit_are_named(feeds: dict[str, tuple[int, ...]], message: str) -> None:
    model = linear_model(random_layer(33, 20), [None] * len(feeds["x"]), [None, None])
    with pytest.raises(REFUSALS, match=message):
        run(model, {n: np.zeros(shape, np.float32) for n, shape in feeds.items()})


@pytest.mark.parametrize(("group", "affine"), [(0, False), (128, True)])
def test_grouped_layers_have_the_bits_of_each(group: int, affine: bool) -> None:
    layers = [
        random_layer(n, 150, group=group, affine=affine, activation=activation, seed=n)
        for n, activation in ((48, "none"), (17, "silu"), (1, "tanh"))
    ]
    x = random_rows(21, 150).reshape(3, 7, 150)
    found = run(grouped_model(layers, ["b", "s", 150]), {"x": x}, 2)
    for y, layer in zip(found, layers, strict=True):
        assert_same_bits(y, packed(layer)(x))


def test_one_word_is_the_activation_of_all_layers() -> None:
    layers = [random_layer(n, 20, activation="relu", seed=n) for n in (5, 6)]
    model = grouped_model(layers, ["m", 20])
    sets("activation", "relu")(model)
    for y, layer in zip(run(model, {"x": random_rows(3, 20)}), layers, strict=True):
        assert_same_bits(y, packed(layer)(random_rows(3, 20)))


def output_shapes(model: onnx.ModelProto) -> list[list[Any]]:
    return [o.shape for o in opened(model).get_outputs()]


def test_outputs_keep_the_names_of_their_dimensions() -> None:
    """A dimension that may be either is nobody's; a stock operator behind the node has shapes."""
    rows: list[tuple[Any, Any, Any]] = [
        (["b", "s", 20], None, ["b", "s", 33]),
        ([20], None, [33]),
        (["b", "s", 20], [1, "s", 33], ["b", "s", 33]),
        (["s", 20], ["b", "s", 33], ["b", "s", 33]),
        ([1, 20], ["b", 33], ["b", 33]),
        (["b", 20], [7, 33], [7, 33]),
    ]
    for x, residual, y in rows:
        assert output_shapes(linear_model(random_layer(33, 20), x, residual)) == [y]
    (shape,) = output_shapes(linear_model(random_layer(33, 20), ["a", 20], ["b", 33]))
    assert shape[1] == 33 and shape[0] not in ("a", "b")
    layers = [random_layer(n, 20) for n in (5, 6)]
    assert output_shapes(grouped_model(layers, ["b", 20])) == [["b", 5], ["b", 6]]
    model = linear_model(random_layer(33, 20), ["b", "s", 20])
    model.graph.node.append(helper.make_node("Transpose", ["y"], ["z"], perm=[2, 1, 0]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", FLOAT, None))
    assert output_shapes(model) == [[33, "s", "b"]]


def pops(model: onnx.ModelProto) -> None:
    del model.graph.node[0].input[-1]


def scales(value: float) -> np.ndarray:
    return np.where(np.arange(33) == 7, value, 0.5).astype(np.float32)


LINEAR: dict[str, tuple[Change, str]] = {
    "no-N": (sets("N", None), "N is missing"),
    "no-K": (sets("K", None), "K is missing"),
    "no-checksum": (sets("checksum", None), "checksum is missing"),
    "N-is-text": (sets("N", "33"), "N is missing"),
    "N-is-0": (sets("N", 0), "N is 0, not in 1"),
    "N-is-negative": (sets("N", -33), "N is -33, not in 1"),
    "N-is-huge": (sets("N", 1 << 40), f"N is {1 << 40}, not in 1"),
    "another-N": (sets("N", 49), "W has shape [3, 5, 16, 4]; the attributes say [4, 5, 16, 4]"),
    "N-of-as-many-blocks": (sets("N", 34), "W_scale has shape [33]; the attributes say [34]"),
    "another-K": (sets("K", 24), "W has shape [3, 5, 16, 4]; the attributes say [3, 6, 16, 4]"),
    "another-group": (sets("group_size", 64), "group_size is 64"),
    "unknown-weight-format": (sets("weight_format", "int4"), "format 'int4'"),
    "unknown-activation": (sets("activation", "elu"), "activation 'elu' is unknown"),
    "two-activations": (sets("activation", "relu tanh"), "2 words for 1 layers"),
    "another-checksum": (sets("checksum", 5), "W does not hold what was written"),
    "W-of-rank-3": (puts("W", np.zeros((3, 5, 64), np.int8)), "W has shape [3, 5, 64]"),
    "W-of-rank-9": (puts("W", np.zeros((1,) * 9, np.int8)), "W has 9 dimensions"),
    "W-is-empty": (puts("W", np.zeros((0, 5, 16, 4), np.int8)), "W has shape [0, 5, 16, 4]"),
    "scale-of-0": (puts("W_scale", scales(0.0)), "W_scale[7] is 0.0"),
    "negative-scale": (puts("W_scale", scales(-0.5)), "W_scale[7] is -0.5"),
    "scale-is-nan": (puts("W_scale", scales(np.nan)), "W_scale[7] is nan"),
    "scale-is-infinite": (puts("W_scale", scales(np.inf)), "W_scale[7] is inf"),
    "few-scales": (puts("W_scale", scales(1)[:5]), "W_scale has shape [5]"),
    "zero-points": (puts("W_zero_point", np.zeros((33, 1), np.int8)), "W_zero_point has shape"),
    "bias": (puts("B", np.ones(1, np.float32)), "B has shape [1]; the attributes say [33]"),
}
GROUPED: dict[str, tuple[Change, str]] = {
    "no-N": (sets("N", None), "N and checksum list 0 and 2 layers"),
    "no-checksum": (sets("checksum", None), "2 and 0 layers"),
    "one-N": (sets("N", [5]), "1 and 2 layers"),
    "three-N": (sets("N", [5, 6, 7]), "3 and 2 layers; there are 2 outputs, and 9 inputs"),
    "N-is-0": (sets("N", [5, 0]), "N holds 0, not in 1"),
    "N-is-negative": (sets("N", [-5, 6]), "N holds -5, not in 1"),
    "another-N": (sets("N", [6, 6]), "W_scale has shape [5]; the attributes say [6]"),
    "activations": (sets("activation", "relu relu relu"), "3 words for 2 layers"),
    "W-is-uint8": (puts("1_W", np.zeros((1, 5, 16, 4), np.uint8)), "W is uint8; it has to be int8"),
    "scale-is-float64": (puts("0_W_scale", np.ones(5)), "W_scale is another type"),
    "bias-is-int": (puts("1_B", np.zeros(6, np.int32)), "B is int32; it has to be float32"),
    "too-few-inputs": (pops, "8 inputs"),
}


@pytest.mark.parametrize("case", LINEAR)
def test_a_wrong_linear_node_is_refused_by_name(case: str) -> None:
    change, message = LINEAR[case]
    refuses(linear_model(random_layer(33, 20), ["m", 20]), change, message, "dense")


@pytest.mark.parametrize("case", GROUPED)
def test_a_wrong_grouped_node_is_refused_by_name(case: str) -> None:
    change, message = GROUPED[case]
    model = grouped_model([random_layer(n, 20) for n in (5, 6)], ["m", 20])
    refuses(model, change, message, "node 'dense' (ai.octavo.GroupedLinear)")


def refuses(model: onnx.ModelProto, change: Change, *said: str) -> None:
    change(model)
    with pytest.raises(REFUSALS) as caught:
        opened(model)
    assert all(text in str(caught.value) for text in said), caught.value


def test_other_refusals() -> None:
    """Too few inputs, no name of the node, and a session without the operators."""
    model = linear_model(random_layer(33, 20), ["m", 20])
    with pytest.raises(Exception, match=r"ai\.octavo"):
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    model.graph.node[0].name = ""
    refuses(model, sets("activation", "elu"), "(ai.octavo.Linear): the activation 'elu'")
    refuses(linear_model(random_layer(33, 20), ["m", 20]), pops, "dense")


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", ["W", "W_scale", "W_zero_point", "B"])
def test_what_has_to_be_constant_is_named(name: str, computed: bool) -> None:
    """As an input of the graph, and as an output of a node."""
    model = linear_model(random_layer(33, 20), ["m", 20])
    (tensor,) = [i for i in model.graph.initializer if i.name == name]
    model.graph.initializer.remove(tensor)
    fed = helper.make_tensor_value_info("fed", tensor.data_type, tensor.dims)
    model.graph.input.append(fed)
    op = "Neg" if computed else "Identity"  # which ONNX Runtime removes
    model.graph.node.insert(0, helper.make_node(op, ["fed"], [name]))
    with pytest.raises(REFUSALS, match=rf"'dense' \(ai.octavo.Linear\): {name} is computed"):
        opened(model)


def test_an_optional_input_that_is_named_but_empty_is_none() -> None:
    layer = random_layer(33, 20)
    model = linear_model(layer, ["m", 20])
    model.graph.node[0].input.append("")
    (y,) = run(model, {"x": random_rows(4, 20)})
    assert_same_bits(y, packed(layer)(random_rows(4, 20)))


def test_the_library_exports_one_function() -> None:
    """Hosts of any language load it: its C++ library must not meet theirs."""
    command = ["nm", "-D", "--defined-only", custom_ops_library()]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in found.splitlines()] == ["RegisterCustomOps"]
