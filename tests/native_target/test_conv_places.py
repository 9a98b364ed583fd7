"""Which convolutions of a network target native leaves float by default."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from octavo.onnx import inspect
from octavo.onnx.plan.conv_places import FIRST, GATE, LAST, SEPARABLE, SIGNAL
from octavo.recipe import FLOAT as FLOAT_SCHEME
from octavo.recipe import Decision, Kind, Recipe, Rule, Scheme, preset
from tests.graphs import FLOAT, INT8, build, error, node, values, weight
from tests.graphs import run as run_float
from tests.native_target.forms import convert, ours, run

C = 64
IMAGE = (FLOAT, [1, C, 12, 12])


REASONS = (FIRST, GATE, LAST, SEPARABLE, SIGNAL)


def conv(name: str, x: str, y: str, w: str = "w", **options: Any) -> onnx.NodeProto:
    return node("Conv", [x, w], [y], name=name, pads=[1, 1, 1, 1], **options)


def pointwise(name: str, x: str, y: str) -> onnx.NodeProto:
    return node("Conv", [x, "p"], [y], name=name)


def depthwise(name: str, x: str, y: str) -> onnx.NodeProto:
    return conv(name, x, y, "d", group=C)


def model(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)) -> onnx.ModelProto:
    read = {name for n in nodes for name in n.input} | {"w", "p"}
    weights = {
        "w": weight(C, C, 3, 3, axis=0),
        "p": weight(C, C, 1, 1, axis=0),
        "d": weight(C, 1, 3, 3, axis=0),
        "m": weight(C, C),
        "axes": np.array([2, 3]),
    }
    used = {k: v for k, v in weights.items() if k in read}
    return build(list(nodes), {"x": IMAGE}, list(outputs), used)


def decisions(made: onnx.ModelProto, **options: Any) -> dict[str, Decision]:
    return {d.layer.name: d for d in inspect(made, target="native", **options).decisions}


def left_float(made: onnx.ModelProto) -> dict[str, str]:
    """The reasons of those that are float, by name."""
    return {n: d.reason for n, d in decisions(made).items() if d.scheme.is_float}


CHAIN = [conv("a", "x", "1"), node("Relu", ["1"], ["2"]), conv("b", "2", "3"), conv("c", "3", "y")]


def test_the_first_and_the_last_of_a_chain() -> None:
    assert left_float(model(CHAIN)) == {"a": FIRST, "c": LAST}


def test_all_that_read_the_input_and_all_that_end() -> None:
    """Two transforms of one signal; heads of different lengths."""
    nodes = [
        conv("real", "x", "1"),
        node("Mul", ["x", "x"], ["square"]),
        conv("imaginary", "square", "2"),
        node("Add", ["1", "2"], ["3"]),
        conv("body", "3", "4"),
        conv("short", "4", "y1"),
        conv("neck", "4", "5"),
        conv("long", "5", "y2"),
    ]
    expected = {"real": FIRST, "imaginary": FIRST, "short": LAST, "long": LAST}
    assert left_float(model(nodes, ["y1", "y2"])) == expected


def test_layers_of_other_kinds_before_and_behind() -> None:
    """A linear layer before makes a convolution no first one; one behind leaves it the last."""
    nodes = [
        node("MatMul", ["x", "m"], ["0"], name="m_before"),
        conv("a", "0", "1"),
        conv("b", "1", "2"),
        node("ReduceMean", ["2"], ["3"], axes=[2, 3], keepdims=0),
        node("MatMul", ["3", "m"], ["y"], name="m_behind"),
    ]
    made = model(nodes)
    made.graph.input[0].type.tensor_type.shape.dim[3].dim_value = C
    assert left_float(made) == {"b": LAST}


def test_the_only_convolution_between_linear_layers_is_neither() -> None:
    nodes = [
        node("MatMul", ["x", "m"], ["0"]),
        conv("a", "0", "1"),
        node("MatMul", ["1", "m"], ["y"]),
    ]
    made = model(nodes)
    made.graph.input[0].type.tensor_type.shape.dim[3].dim_value = C
    assert left_float(made) == {}


def test_the_only_one_worth_it_behind_a_small_one() -> None:
    """A classifier of two convolutions: there is nothing else to gain from."""
    nodes = [
        depthwise("small", "x", "1"),
        conv("b", "1", "2"),
        node("ReduceMean", ["2"], ["3"], axes=[2, 3], keepdims=0),
        node("MatMul", ["3", "m"], ["y"], name="dense"),
    ]
    assert set(left_float(model(nodes))) == {"small"}


def encoder(linear: int) -> onnx.ModelProto:
    """Conv a, b as of an audio model, and so many linear layers behind them."""
    nodes = [conv("a", "x", "1"), conv("b", "1", "v0")]
    for i in range(linear):
        nodes.append(node("MatMul", [f"v{i}", "m"], [f"v{i + 1}"], name=f"m{i}"))
    nodes[-1].output[0] = "y"
    made = model(nodes)
    made.graph.input[0].type.tensor_type.shape.dim[3].dim_value = C
    return made


def test_the_stem_of_a_network_of_linear_layers_has_no_last() -> None:
    assert left_float(encoder(3)) == {"a": FIRST, "b": LAST}
    assert left_float(encoder(4)) == {"a": FIRST}


def test_separable_ones_and_gates() -> None:
    """Through activations, and through the product with a gate."""
    nodes = [
        conv("a", "x", "1"),
        depthwise("d1", "1", "2"),
        node("Relu", ["2"], ["3"]),
        pointwise("p1", "3", "4"),
        pointwise("plain", "4", "5"),
        depthwise("d2", "5", "6"),
        node("GlobalAveragePool", ["6"], ["7"]),
        pointwise("squeeze", "7", "8"),
        node("Relu", ["8"], ["8r"]),
        pointwise("excite", "8r", "8e"),
        node("Sigmoid", ["8e"], ["9"]),
        node("Mul", ["6", "9"], ["10"]),
        pointwise("p2", "10", "11"),
        conv("dense", "11", "12"),
        conv("last", "12", "y"),
    ]
    found = left_float(model(nodes))
    assert {n for n, reason in found.items() if reason == SEPARABLE} == {"p1", "p2"}
    assert {n for n, reason in found.items() if reason == GATE} == {"squeeze", "excite"}
    assert found["a"] == FIRST and found["last"] == LAST
    assert not {"plain", "dense"} & found.keys()


def test_what_stays_float_anyway_does_not_make_another_last() -> None:
    """The convolution that ends the network is too small; the last that would be int8 is meant."""
    small = weight(3, C, 3, 3)
    made = model([*CHAIN[:3], conv("c", "3", "4"), conv("small", "4", "y", "s")])
    made.graph.initializer.append(onnx.numpy_helper.from_array(small, "s"))
    found = left_float(made)
    assert found["c"] == LAST and "3 outputs" in found["small"]
    assert "b" not in found


def vocoder(axes: int) -> onnx.ModelProto:
    """Conv a, b, c -> ConvTranspose -> d, e, over `axes` axes."""
    size = [3] * axes
    nodes = []
    for i, name in enumerate(["a", "b", "c", "up", "d", "e"]):
        op, pads = ("ConvTranspose", 0) if name == "up" else ("Conv", 1)
        y = "y" if name == "e" else str(i + 1)
        x = "x" if i == 0 else str(i)
        nodes.append(node(op, [x, "w"], [y], name=name, pads=[pads] * (2 * axes)))
    return build(nodes, {"x": (FLOAT, [1, C, *[12] * axes])}, ["y"], {"w": weight(C, C, *size)})


def test_what_makes_a_raw_signal() -> None:
    found = left_float(vocoder(1))
    assert found.pop("up")  # there is no rule for it
    assert found == {"a": FIRST, **dict.fromkeys("bcde", SIGNAL)}
    pictures = left_float(vocoder(2))
    assert pictures.pop("up") and pictures == {"a": FIRST, "e": LAST}


def in_a_branch() -> onnx.ModelProto:
    """If(flag) { Conv a, Conv b } behind nothing and before Conv c, Conv d."""
    then = helper.make_graph(
        [conv("a", "x", "1"), conv("b", "1", "out")],
        "then",
        [],
        [helper.make_tensor_value_info("out", FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["same"])],
        "else",
        [],
        [helper.make_tensor_value_info("same", FLOAT, None)],
    )
    branch = helper.make_node("If", ["flag"], ["0"], then_branch=then, else_branch=other)
    made = model([branch, conv("c", "0", "2"), conv("d", "2", "y")])
    made.graph.input.append(helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, []))
    return made


def test_subgraphs_are_part_of_the_way() -> None:
    assert left_float(in_a_branch()) == {"a": FIRST, "d": LAST}


ASKED = {
    "by type": {"op_types_to_quantize": ["Conv"]},
    "by name": {"nodes_to_quantize": ["a", "b", "c"]},
    "by a rule": {"recipe": Recipe("own", Scheme(), (Rule(Scheme(), kind=Kind.CONV),))},
}


@pytest.mark.parametrize("how", ASKED)
def test_whoever_asks_gets_them(tmp_path: Path, how: str) -> None:
    made = model(CHAIN)
    done = convert(made, tmp_path, **ASKED[how])
    assert len(ours(done)) == 3 and not done.report.left_float
    x = values(1, C, 12, 12)
    assert error(run(done, {"x": x})[0], run_float(made, {"x": x})[0]) < 3 * INT8


def test_a_rule_for_one_is_followed_and_the_others_stay() -> None:
    one = preset("int8").with_rules_first(Rule(Scheme(), name="a"))
    found = decisions(model(CHAIN), recipe=one)
    assert [d.scheme.is_float for d in found.values()] == [False, False, True]


def test_portable_files_have_another_reason() -> None:
    for decision in inspect(model(CHAIN)).decisions:
        assert decision.scheme.is_float and decision.reason not in (
            FIRST,
            GATE,
            LAST,
            SEPARABLE,
            SIGNAL,
        )


def test_that_one_is_float_makes_no_other_the_last() -> None:
    """A search that takes layers away one by one must not change others."""
    without = preset("int8").with_rules_first(Rule(FLOAT_SCHEME, name="c", reason="mine"))
    found = decisions(model(CHAIN), recipe=without)
    assert found["c"].reason == "mine" and not found["b"].scheme.is_float
