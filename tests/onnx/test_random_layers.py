"""Layers that share inputs, in random graphs: what is fused, grouped and joined stays right.

Every value is [rows, WIDTH] (or has batches in front). Steps read any value that came before them,
so that layers share inputs at several depths, sums read what other layers share, and values in the
middle are outputs too. A branch of an If holds steps of its own, which read the values outside.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper

from octavo.onnx import convert_target, session
from tests.graphs import BOOL, FLOAT, Array, build, convert, node, normal, run

WIDTH = 16
WEIGHTS = 6
EXAMPLES = 25 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 10  # as many in `make test-all`
WAYS: dict[str, dict[str, Any]] = {
    "native": {"target": "native"},
    "native-accurate": {"target": "native", "recipe": "int8-accurate"},
    "portable": {},
    "portable-any-cpu": {"cpu": "any"},
    "per-tensor": {"recipe": "int8-per-tensor"},
    "qdq": {"quant_format": "qdq"},
}
# Our rounding and the yardstick's are two draws of about the same noise, of few numbers each.
TIMES, AND = 6.0, 0.01


@dataclass(frozen=True)
class Step:
    """One value, made of those with the numbers `reads`, counted back from the newest."""

    op: str
    reads: tuple[int, ...]
    weight: int = 0
    bias: str = ""
    branches: tuple[tuple[Step, ...], tuple[Step, ...]] = ((), ())


@dataclass(frozen=True)
class Layers:
    """A graph: its steps, and which of their values are outputs beside the last."""

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    batched: bool


BACK = st.integers(0, 3)
LAYER = st.builds(
    Step,
    st.just("MatMul"),
    st.tuples(BACK),
    st.integers(0, WEIGHTS - 1),
    st.sampled_from(["", "", "last", "first"]),
)
ACTIVATION = st.builds(
    Step, st.sampled_from(["Relu", "Tanh", "Sigmoid", "Identity", "Neg"]), st.tuples(BACK)
)
SUM = st.builds(Step, st.just("Add"), st.tuples(BACK, BACK))
PLAIN = st.one_of(LAYER, LAYER, LAYER, ACTIVATION, SUM)
BODIES = st.lists(PLAIN, min_size=1, max_size=4).map(tuple)
CHOICE = st.builds(Step, st.just("If"), st.just(()), branches=st.tuples(BODIES, BODIES))
LAYERS = st.builds(
    Layers,
    st.lists(st.one_of(PLAIN, PLAIN, PLAIN, CHOICE), min_size=2, max_size=10).map(tuple),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.booleans(),
)


def feeds(graph: Layers, choice: bool, rows: int) -> dict[str, Array]:
    shape = (2, rows, WIDTH) if graph.batched else (rows, WIDTH)
    return {"x": normal(*shape, seed=rows), "choice": np.array(choice)}


def model(graph: Layers, rounded: str = "") -> onnx.ModelProto:
    """The graph as ONNX; `rounded`: by "row" or "tensor", what every layer multiplies.

    Layers that chose the same number share weights and biases.
    """
    weights: dict[str, Any] = {"most": np.float32(127), "least": np.float32(1e-30)}
    for i in range(WEIGHTS):
        w = normal(WIDTH, WIDTH, seed=i) / np.float32(np.sqrt(WIDTH))
        weights[f"w{i}"] = rounded_weight(w, rounded) if rounded else w
        weights[f"b{i}"] = normal(WIDTH, seed=WEIGHTS + i)
    nodes = list(nodes_of(graph.steps, ["x"], "v", rounded))
    read = {i for n in all_of(nodes) for i in n.input}
    inputs: dict[str, Any] = {"x": (FLOAT, ["b", "n", WIDTH] if graph.batched else ["n", WIDTH])}
    inputs["choice"] = (BOOL, [])
    kept = {name: array for name, array in weights.items() if name in read}
    return build(nodes, inputs, outputs_of(graph), kept)


def outputs_of(graph: Layers) -> list[str]:
    """The names of the outputs: of values nobody else reads, and of some that are read."""
    made = [f"v{i}" for i in range(len(graph.steps))]
    read = {i for n in all_of(nodes_of(graph.steps, ["x"], "v")) for i in n.input}
    chosen = {f"v{i % len(made)}" for i in graph.outputs}
    return [name for name in made if name in chosen or name not in read]


def nodes_of(
    steps: Sequence[Step], names: list[str], prefix: str, rounded: str = ""
) -> Iterator[onnx.NodeProto]:
    """`names`: what the steps may read, oldest first; theirs are added."""
    for i, step in enumerate(steps):
        out = f"{prefix}{i}"
        reads = [names[-1 - back % len(names)] for back in step.reads]
        if step.op == "MatMul":
            made = f"{out}_product" if step.bias else out
            if rounded:
                yield from rounding(reads[0], f"{out}_rounded", rounded)
                reads = [f"{out}_rounded"]
            yield node("MatMul", [*reads, f"w{step.weight}"], [made])
            if step.bias:
                operands = [made, f"b{step.weight}"]
                yield node("Add", operands[:: 1 if step.bias == "last" else -1], [out])
        elif step.op == "If":
            then, other = (
                body_of(branch, list(names), f"{out}_{which}_", rounded)
                for which, branch in zip(("then", "else"), step.branches, strict=True)
            )
            yield node("If", ["choice"], [out], then_branch=then, else_branch=other)
        else:
            yield node(step.op, reads, [out])
        names.append(out)


def rounding(x: str, out: str, by: str) -> list[onnx.NodeProto]:
    """127 steps on each side of 0, for the largest number of a row or of all."""
    axes: dict[str, Any] = {"axes": [-1]} if by == "row" else {}
    names = [f"{out}_{i}" for i in range(6)]
    return [
        node("Abs", [x], names[:1]),
        node("ReduceMax", names[:1], names[1:2], keepdims=1, **axes),
        node("Max", [names[1], "least"], names[2:3]),
        node("Div", [names[2], "most"], names[3:4]),
        node("Div", [x, names[3]], names[4:5]),
        node("Round", names[4:5], names[5:]),
        node("Mul", [names[5], names[3]], [out]),
    ]


def rounded_weight(w: Array, by: str) -> Array:
    step = np.abs(w).max(axis=0 if by == "row" else None) / np.float32(127)
    return np.asarray(np.round(w / step) * step, np.float32)


def body_of(steps: Sequence[Step], names: list[str], prefix: str, rounded: str) -> onnx.GraphProto:
    nodes = list(nodes_of(steps, names, prefix, rounded))
    read = {i for n in nodes for i in n.input}
    # A branch gives one value: its last. Others that nobody reads are summed into it.
    last = names[-1]
    loose = [name for i in range(len(steps) - 1) if (name := f"{prefix}{i}") not in read]
    for i, name in enumerate(loose):
        nodes.append(node("Add", [last, name], [f"{prefix}sum{i}"]))
        last = f"{prefix}sum{i}"
    info = helper.make_tensor_value_info(last, FLOAT, None)
    return helper.make_graph(nodes, prefix, [], [info])


def all_of(nodes: Any) -> Iterator[onnx.NodeProto]:
    for each in nodes:
        yield each
        for attribute in each.attribute:
            yield from all_of(attribute.g.node)


def layer(reads: int, weight: int) -> Step:
    return Step("MatMul", (reads,), weight)


RELU = Step("Relu", (1,))
GROUPS_OF_GROUPS = Layers(
    (layer(0, 0), layer(1, 1), RELU, RELU, layer(1, 2), layer(2, 3), layer(2, 4), layer(3, 5)),
    (),
    False,
)


def is_near(path: Path, graph: Layers, rounded: str, choice: bool, rows: int) -> None:
    """The outputs are those of the float model, as nearly as rounding its operands gives them."""
    proto, yardstick, x = model(graph), model(graph, rounded), feeds(graph, choice, rows)
    runner = session(path)
    assert [o.name for o in runner.get_outputs()] == outputs_of(graph)
    for y, exact, near in zip(runner.run(None, x), run(proto, x), run(yardstick, x), strict=True):
        assert y.shape == exact.shape
        bound = TIMES * np.linalg.norm(near - exact) + AND * np.linalg.norm(exact)
        assert np.linalg.norm(y - exact) <= bound


@pytest.mark.sweep(2)
@pytest.mark.parametrize("way", WAYS)
@given(graph=LAYERS)
@example(graph=GROUPS_OF_GROUPS)
@settings(max_examples=EXAMPLES, deadline=None)
def test_random_layers(way: str, graph: Layers) -> None:
    rounded = "row" if way.startswith(("native", "portable")) else "tensor"
    with tempfile.TemporaryDirectory() as folder:
        done = convert(model(graph), Path(folder), allow_nothing=True, **WAYS[way])
        for choice, rows in ((True, 3), (False, 5)):
            is_near(done.path, graph, rounded, choice, rows)


@pytest.mark.parametrize("first,then", [("native", "portable"), ("portable", "native")])
@given(graph=LAYERS)
@example(graph=GROUPS_OF_GROUPS)
@settings(max_examples=EXAMPLES, deadline=None)
def test_random_layers_for_the_other_target(first: str, then: str, graph: Layers) -> None:
    """The same integers, in another form: the outputs are those of the first file, nearly."""
    if not any(step.op == "MatMul" for step in graph.steps):
        return  # nothing to turn, or in branches alone
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = convert(model(graph), folder, target=first)
        convert_target(done.path, folder / "other.onnx", to=then, verify=False)
        is_near(folder / "other.onnx", graph, "row", True, 4)
