"""Which convolutions of a network target native leaves float by default."""

from __future__ import annotations

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
from tests.graphs import BOOL, INT8, values, weight
from tests.native_target.forms import agrees, branch, convert, nodes_of, ours, spelt

C = 64
STORED = {
    "w": weight(C, C, 3, 3, axis=0),
    "p": weight(C, C, 1, 1, axis=0),
    "d": weight(C, 1, 3, 3, axis=0),
    "s": weight(3, C, 3, 3),
    "m": weight(C, C),
    "axes": np.array([2, 3]),
    "w1": weight(C, C, 3),
}


def conv(name: str, x: str, y: str, w: str = "w", more: str = ",pads:1/1/1/1") -> str:
    return f"{y}=Conv({x},{w},name:{name}{more})"


def pointwise(name: str, x: str, y: str) -> str:
    return conv(name, x, y, "p", "")


def depthwise(name: str, x: str, y: str) -> str:
    return conv(name, x, y, "d", f",pads:1/1/1/1,group:{C}")


def model(parts: Any, outputs: Any = ("y",), shape: Any = (1, C, 12, 12)) -> onnx.ModelProto:
    """A network of statements, or of nodes."""
    nodes = "; ".join(parts) if isinstance(parts[0], str) else parts
    return spelt(nodes, {"x": shape}, STORED, outputs)


def decisions(made: onnx.ModelProto, **options: Any) -> dict[str, Decision]:
    return {d.layer.name: d for d in inspect(made, target="native", **options).decisions}


def left_float(*given: Any) -> dict[str, str]:
    """The reasons of those layers of a `model` that are float, by name."""
    made = given[0] if isinstance(given[0], onnx.ModelProto) else model(*given)
    return {n: d.reason for n, d in decisions(made).items() if d.scheme.is_float}


CHAIN = [conv("a", "x", "1"), "2=Relu(1)", conv("b", "2", "3"), conv("c", "3", "y")]
SQUARE = (1, C, 12, C)
"""An image whose rows a layer `m` takes."""
POOLED = ["3=ReduceMean(2,axes:2/3,keepdims:0)", "y=MatMul(3,m,name:behind)"]
NETWORKS: dict[str, tuple[Any, ...]] = {
    "a chain": ({"a": FIRST, "c": LAST}, CHAIN),
    # Two transforms of one signal; heads of different lengths.
    "all that read the input and all that end": (
        {"real": FIRST, "imaginary": FIRST, "short": LAST, "long": LAST},
        [
            conv("real", "x", "1"),
            "square=Mul(x,x)",
            conv("imaginary", "square", "2"),
            "3=Add(1,2)",
            conv("body", "3", "4"),
            conv("short", "4", "y1"),
            conv("neck", "4", "5"),
            conv("long", "5", "y2"),
        ],
        ["y1", "y2"],
    ),
    # A linear layer before makes a convolution no first one; one behind leaves it the last.
    "layers of other kinds before and behind": (
        {"b": LAST},
        ["0=MatMul(x,m,name:before)", conv("a", "0", "1"), conv("b", "1", "2"), *POOLED],
        ["y"],
        SQUARE,
    ),
    "the only one between linear layers": (
        {},
        ["0=MatMul(x,m)", conv("a", "0", "1"), "y=MatMul(1,m)"],
        ["y"],
        SQUARE,
    ),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_the_first_and_the_last(network: str) -> None:
    expected, *given = NETWORKS[network]
    assert left_float(*given) == expected


def test_the_only_one_worth_it_behind_a_small_one() -> None:
    """A classifier of two convolutions: there is nothing else to gain from."""
    nodes = [depthwise("small", "x", "1"), conv("b", "1", "2"), *POOLED]
    assert set(left_float(nodes)) == {"small"}


@pytest.mark.parametrize(("linear", "expected"), [(3, {"a": FIRST, "b": LAST}), (4, {"a": FIRST})])
def test_the_stem_of_a_network_of_linear_layers_has_no_last(
    linear: int, expected: dict[str, str]
) -> None:
    """Convolutions a, b as of an audio model, and so many linear layers behind them."""
    layers = [f"v{i + 1}=MatMul(v{i},m)" for i in range(linear)]
    nodes = [conv("a", "x", "1"), conv("b", "1", "v0"), *layers, f"y=Identity(v{linear})"]
    assert left_float(nodes, ["y"], SQUARE) == expected


def test_separable_ones_and_gates() -> None:
    """Through activations, and through the product with a gate."""
    nodes = [
        conv("a", "x", "1"),
        depthwise("d1", "1", "2"),
        "3=Relu(2)",
        pointwise("p1", "3", "4"),
        pointwise("plain", "4", "5"),
        depthwise("d2", "5", "6"),
        "7=GlobalAveragePool(6)",
        pointwise("squeeze", "7", "8"),
        "8r=Relu(8)",
        pointwise("excite", "8r", "8e"),
        "9=Sigmoid(8e)",
        "10=Mul(6,9)",
        pointwise("p2", "10", "11"),
        conv("dense", "11", "12"),
        conv("last", "12", "y"),
    ]
    found = left_float(nodes)
    assert {n for n, reason in found.items() if reason == SEPARABLE} == {"p1", "p2"}
    assert {n for n, reason in found.items() if reason == GATE} == {"squeeze", "excite"}
    assert found["a"] == FIRST and found["last"] == LAST
    assert not {"plain", "dense"} & found.keys()


def test_what_stays_float_anyway_does_not_make_another_last() -> None:
    """The convolution that ends the network is too small; the last that would be int8 is meant."""
    found = left_float([*CHAIN[:3], conv("c", "3", "4"), conv("small", "4", "y", "s")])
    assert found["c"] == LAST and "3 outputs" in found["small"]
    assert "b" not in found


@pytest.mark.parametrize(
    ("axes", "expected"),
    [(1, {"a": FIRST, **dict.fromkeys("bcde", SIGNAL)}), (2, {"a": FIRST, "e": LAST})],
)
def test_what_makes_a_raw_signal(axes: int, expected: dict[str, str]) -> None:
    """Conv a, b, c -> ConvTranspose -> d, e, over so many axes."""
    w, pads = ("w1", ",pads:1/1") if axes == 1 else ("w", ",pads:1/1/1/1")
    names = ["a", "b", "c", "up", "d", "e"]
    places = ["x", *map(str, range(1, 6)), "y"]
    nodes = [conv(name, places[i], places[i + 1], w, pads) for i, name in enumerate(names)]
    nodes[3] = f"4=ConvTranspose(3,{w},name:up)"
    found = left_float(nodes, ["y"], [1, C, *[12] * axes])
    assert found.pop("up")  # there is no rule for it
    assert found == expected


def test_subgraphs_are_part_of_the_way() -> None:
    """If(flag) { Conv a, Conv b } behind nothing and before Conv c, Conv d."""

    then = branch("then", f"{conv('a', 'x', '1')}; {conv('b', '1', 'then')}")
    other = branch("same", "same=Identity(x)")
    choice = helper.make_node("If", ["flag"], ["0"], then_branch=then, else_branch=other)
    made = model([choice, *nodes_of(f"{conv('c', '0', '2')}; {conv('d', '2', 'y')}")])
    made.graph.input.append(helper.make_tensor_value_info("flag", BOOL, []))
    assert left_float(made) == {"a": FIRST, "d": LAST}


ASKED: dict[str, Any] = {
    "by type": {"op_types_to_quantize": ["Conv"]},
    "by name": {"nodes_to_quantize": ["a", "b", "c"]},
    "by a rule": {"recipe": Recipe("own", Scheme(), (Rule(Scheme(), kind=Kind.CONV),))},
}


@pytest.mark.parametrize("how", ASKED)
def test_whoever_asks_gets_them(tmp_path: Path, how: str) -> None:
    made = model(CHAIN)
    done = convert(made, tmp_path, **ASKED[how])
    assert len(ours(done)) == 3 and not done.report.left_float
    agrees(made, done, {"x": values(1, C, 12, 12)}, 3 * INT8)


def test_portable_files_have_another_reason() -> None:
    for decision in inspect(model(CHAIN)).decisions:
        assert decision.scheme.is_float
        assert decision.reason not in (FIRST, GATE, LAST, SEPARABLE, SIGNAL)


def test_a_rule_for_one_changes_no_others() -> None:
    """It is followed; a search that takes layers away one by one must not change others."""
    one = preset("int8").with_rules_first(Rule(Scheme(), name="a"))
    without = preset("int8").with_rules_first(Rule(FLOAT_SCHEME, name="c", reason="mine"))
    for recipe, expected in ((one, [False, False, True]), (without, [True, False, True])):
        found = decisions(model(CHAIN), recipe=recipe).values()
        assert [d.scheme.is_float for d in found] == expected
    assert decisions(model(CHAIN), recipe=without)["c"].reason == "mine"
