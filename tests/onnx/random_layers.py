"""Random graphs of layers, activations and sums, in float and with operands that are rounded.

Every value is [rows, WIDTH] (or has batches in front). Steps read any value that came before them,
so that layers share inputs at several depths, sums read what other layers share, and values in the
middle are outputs too. A branch of an If holds steps of its own, which read the values outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.graphs import BOOL, FLOAT, Array, build, node

WIDTH = 16
WEIGHTS = 6
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Identity", "Neg")


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


def layers() -> st.SearchStrategy[Layers]:
    """Graphs of up to ten steps."""
    return st.builds(
        Layers,
        st.lists(_steps(), min_size=2, max_size=10).map(tuple),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.booleans(),
    )


def _steps() -> st.SearchStrategy[Step]:
    plain = _plain_steps()
    bodies = st.lists(plain, min_size=1, max_size=4).map(tuple)
    choice = st.builds(Step, st.just("If"), st.just(()), branches=st.tuples(bodies, bodies))
    return st.one_of(plain, plain, plain, choice)


def _plain_steps() -> st.SearchStrategy[Step]:
    back = st.integers(0, 3)
    layer = st.builds(
        Step,
        st.just("MatMul"),
        st.tuples(back),
        st.integers(0, WEIGHTS - 1),
        st.sampled_from(["", "", "last", "first"]),
    )
    activation = st.builds(Step, st.sampled_from(ACTIVATIONS), st.tuples(back))
    summed = st.builds(Step, st.just("Add"), st.tuples(back, back))
    return st.one_of(layer, layer, layer, activation, summed)


def stored() -> dict[str, Array]:
    """The weights and biases; layers that chose the same number share them."""
    random = np.random.default_rng(7)
    found: dict[str, Array] = {}
    for i in range(WEIGHTS):
        square = random.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
        found[f"w{i}"] = square.astype(np.float32)
        found[f"b{i}"] = random.standard_normal(WIDTH).astype(np.float32)
    return found


def feeds(graph: Layers, choice: bool, rows: int) -> dict[str, Array]:
    """What a run is given."""
    shape = (2, rows, WIDTH) if graph.batched else (rows, WIDTH)
    x = np.random.default_rng(rows).standard_normal(shape).astype(np.float32)
    return {"x": x, "choice": np.array(choice)}


def model(graph: Layers, rounded: str = "") -> onnx.ModelProto:
    """The graph as ONNX; `rounded`: by "row" or "tensor", what every layer multiplies."""
    weights = stored() | {"most": np.float32(127), "least": np.float32(1e-30)}
    if rounded:
        weights |= {f"w{i}": _round(weights[f"w{i}"], rounded) for i in range(WEIGHTS)}
    nodes = list(_nodes(graph.steps, ["x"], "v", rounded))
    read = {i for n in _all(nodes) for i in n.input}
    inputs: dict[str, Any] = {"x": (FLOAT, ["b", "n", WIDTH] if graph.batched else ["n", WIDTH])}
    inputs["choice"] = (BOOL, [])
    kept = {name: array for name, array in weights.items() if name in read}
    return build(nodes, inputs, outputs_of(graph), kept)


def outputs_of(graph: Layers) -> list[str]:
    """The names of the outputs: of values nobody else reads, and of some that are read."""
    made = [f"v{i}" for i in range(len(graph.steps))]
    read = {i for n in _all(_nodes(graph.steps, ["x"], "v")) for i in n.input}
    chosen = {f"v{i % len(made)}" for i in graph.outputs}
    return [name for name in made if name in chosen or name not in read]


def _source(names: Sequence[str], back: int) -> str:
    return names[-1 - back % len(names)]


def _nodes(
    steps: Sequence[Step], names: list[str], prefix: str, rounded: str = ""
) -> Iterator[onnx.NodeProto]:
    """`names`: what the steps may read, oldest first; theirs are added."""
    for i, step in enumerate(steps):
        out = f"{prefix}{i}"
        reads = [_source(names, back) for back in step.reads]
        if step.op == "MatMul":
            made = f"{out}_product" if step.bias else out
            if rounded:
                yield from _rounding(reads[0], f"{out}_rounded", rounded)
                reads = [f"{out}_rounded"]
            yield node("MatMul", [*reads, f"w{step.weight}"], [made])
            if step.bias:
                operands = [made, f"b{step.weight}"]
                yield node("Add", operands[:: 1 if step.bias == "last" else -1], [out])
        elif step.op == "If":
            bodies = [
                _body(branch, list(names), f"{out}_{which}_", rounded)
                for which, branch in zip(("then", "else"), step.branches, strict=True)
            ]
            yield node("If", ["choice"], [out], then_branch=bodies[0], else_branch=bodies[1])
        else:
            yield node(step.op, reads, [out])
        names.append(out)


def _rounding(x: str, out: str, by: str) -> list[onnx.NodeProto]:
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


def _round(w: Array, by: str) -> Array:
    step = np.abs(w).max(axis=0 if by == "row" else None) / np.float32(127)
    return np.asarray(np.round(w / step) * step, np.float32)


def _body(steps: Sequence[Step], names: list[str], prefix: str, rounded: str) -> onnx.GraphProto:
    nodes = list(_nodes(steps, names, prefix, rounded))
    read = {i for n in nodes for i in n.input}
    # A branch gives one value: its last. Others that nobody reads are summed into it.
    last, loose = (
        names[-1],
        [f"{prefix}{i}" for i in range(len(steps) - 1) if f"{prefix}{i}" not in read],
    )
    for i, name in enumerate(loose):
        nodes.append(node("Add", [last, name], [f"{prefix}sum{i}"]))
        last = f"{prefix}sum{i}"
    info = helper.make_tensor_value_info(last, FLOAT, None)
    return helper.make_graph(nodes, prefix, [], [info])


def _all(nodes: Any) -> Iterator[onnx.NodeProto]:
    for each in nodes:
        yield each
        for attribute in each.attribute:
            yield from _all(attribute.g.node)
