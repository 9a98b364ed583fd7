"""Every operator with axes that are huge, 0 and negative gives an error or an output: no crash.

A tensor without elements takes no bytes, so that a file of a hundred may state any sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from octavo.ir import DOMAIN
from tests.core.layers import random_layer
from tests.graphs import BOOL, FLOAT, INT32, INT64, build, node, normal
from tests.native_target.nodes import REFUSALS, dense_model, grouped_model, opened, stored
from tests.native_target.nodes import linear_model as linear
from tests.native_target.recurrent_layers import Layer, native
from tests.native_target.test_conv_op import layer as convolution
from tests.native_target.test_embedding_op import Table

Sizes = Mapping[str, int]
Axes = tuple[str | int, ...]
KINDS = {"positions": INT64, "lengths": INT32, "total": INT32, "mask": BOOL}
LARGE, HUGE = 1 << 39, 1 << 62  # what one tensor may have, and what none may
FEW = 10_000
PAIRS = [(0, 0), (0, LARGE), (LARGE, 0), (0, HUGE), (HUGE, 0), (-1, 0)]


@dataclass(frozen=True)
class Operator:
    """A node whose inputs have these axes; those of one name are the same size."""

    model: Callable[[Path], onnx.ModelProto]
    inputs: dict[str, Axes]
    outputs: tuple[Axes, ...]
    sizes: dict[str, int]
    numbers: dict[str, int] = field(default_factory=dict)
    """What inputs hold that are not float32; 0 by default."""

    def shapes(self, sizes: Sizes) -> dict[str, list[int]]:
        return {name: sized(axes, sizes) for name, axes in self.inputs.items()}


def sized(axes: Axes, sizes: Sizes) -> list[int]:
    return [axis if isinstance(axis, int) else sizes[axis] for axis in axes]


def of(op: str, names: Iterable[str], outputs: int = 1, **more: Any) -> Any:
    """The maker of a model of one node without constants."""
    typed = {name: (KINDS.get(name, FLOAT), None) for name in names}
    outs = [f"y{i}" for i in range(outputs)]
    made = node(op, list(typed), outs, name="layer", domain=DOMAIN, **more)
    if outputs > 1:
        made.attribute.append(helper.make_attribute("outputs", outputs))
    return lambda _: build([made], typed, outs, domains=(DOMAIN,))


def gated(_: Path) -> onnx.ModelProto:
    layers = [stored(random_layer(9, 6, seed=i)) for i in range(2)]
    return dense_model("GatedLinear", layers, {"x": None}, {"y": (FLOAT, None)}, K=6)


def conv(_: Path) -> onnx.ModelProto:
    held, given = convolution(normal(6, 4, 3, 3), pads=[1, 1, 1, 1])
    made = node("Conv", ["X", *held], ["y"], name="layer", domain=DOMAIN, **given)
    return build([made], {"X": (FLOAT, None)}, ["y"], held, domains=(DOMAIN,))


def embedding(_: Path) -> onnx.ModelProto:
    table = Table(7, 6)
    held = table.constants()
    names = ["indices", *held]
    made = node("Embedding", names, ["y"], name="layer", domain=DOMAIN, **table.attributes())
    return build([made], {"indices": (INT64, None)}, ["y"], held, domains=(DOMAIN,))


def recurrent(kind: str, *outs: str, **more: Any) -> Callable[[Path], onnx.ModelProto]:
    return lambda folder: native(Layer(kind, 4, 5, outs=outs, **more), folder).proto


def heads(last: str, *more: str) -> dict[str, Axes]:
    outside: dict[str, Axes] = {"Q": ("b", "h", "s", "d"), "K": ("b", "h", "t", "d")}
    return outside | {"V": ("b", "h", "t", last)} | dict.fromkeys(more, ("b", "h", "s", "t"))


STATE: Axes = (1, "b", 5)
ALL_STATES = {"X": ("t", "b", 4), "sequence_lens": ("b",), "initial_h": STATE, "initial_c": STATE}
ROWS: dict[str, Axes] = {"Q": ("b", "s", 8), "K": ("b", "t", 4), "V": ("b", "t", 4)}
CACHED: dict[str, Axes] = {
    **{"Q": ("b", "s", 8), "lengths": ("b",), "total": (), "key": ("b", "s", 4)},
    **{"value": ("b", "s", 4), "past_key": ("b", 1, "p", 4), "past_value": ("b", 1, "p", 4)},
    **{"cos": ("n", 2), "sin": ("n", 2), "positions": ("b", "s"), "bias": ("b", 2, "s", 4)},
    "sinks": (2,),
}
QUERIES = {"b": 2, "h": 2, "s": 3, "t": 3, "d": 4, "e": 5}
PRESENT: Axes = ("b", 1, "present", 4)
OUTSIDE: Axes = ("b", "h", "s", "e")
OPERATORS = {
    "Linear": Operator(
        lambda _: linear(random_layer(9, 6), None, None), {"x": ("a", "b", 6)}, (("a", "b", 9),),
        {"a": 2, "b": 3},
    ),
    "Linear with a residual": Operator(
        lambda _: dense_model(
            "Linear", [stored(random_layer(9, 6))], {"x": None, "residual": None},
            {"y": (FLOAT, None)}, K=6,
        ),
        {"x": ("a", "b", 6), "residual": ("a", "b", 9)}, (("a", "b", 9),), {"a": 2, "b": 3},
    ),
    "GroupedLinear": Operator(
        lambda _: grouped_model([random_layer(9, 6), random_layer(5, 6)], None),
        {"x": ("a", "b", 6)}, (("a", "b", 9), ("a", "b", 5)), {"a": 2, "b": 3},
    ),
    "GatedLinear": Operator(gated, {"x": ("a", "b", 6)}, (("a", "b", 9),), {"a": 2, "b": 3}),
    "MatMul": Operator(
        of("MatMul", "AB"), {"A": ("a", "b", "m", "k"), "B": ("a", "b", "k", "n")},
        (("a", "b", "m", "n"),), {"a": 2, "b": 3, "m": 4, "k": 5, "n": 3},
    ),
    "MatMul transposed": Operator(
        of("MatMul", "AB", transpose_b=1), {"A": ("a", "m", "k"), "B": ("n", "k")},
        (("a", "m", "n"),), {"a": 2, "m": 4, "k": 5, "n": 3},
    ),
    "Norm": Operator(
        of("Norm", ["X", "weight", "bias"]),
        {"X": ("a", "b", "n"), "weight": ("n",), "bias": ("n",)}, (("a", "b", "n"),),
        {"a": 2, "b": 3, "n": 4},
    ),
    "Rotary": Operator(
        of("Rotary", ["X", "cos", "sin"]),
        {"X": ("b", "h", "s", "d"), "cos": ("b", 1, "s", "d"), "sin": ("b", 1, "s", "d")},
        (("b", "h", "s", "d"),), {"b": 2, "h": 2, "s": 3, "d": 4},
    ),
    "Rotary of rows": Operator(
        of("Rotary", ["X", "cos", "sin", "positions"], heads=2),
        {"X": ("b", "s", 8), "cos": ("n", 2), "sin": ("n", 2), "positions": ("b", "s")},
        (("b", "s", 8),), {"b": 2, "s": 3, "n": 5},
    ),
    "Rotary from a place": Operator(
        of("Rotary", ["X", "cos", "sin", "positions"], heads=2, turned=4),
        {"X": ("b", "s", 8), "cos": ("n", 2), "sin": ("n", 2), "positions": (1,)},
        (("b", "s", 8),), {"b": 2, "s": 3, "n": 5},
    ),
    "Conv": Operator(
        conv, {"X": ("b", 4, "h", "w")}, (("b", 6, "h", "w"),), {"b": 2, "h": 5, "w": 4},
    ),
    "Embedding": Operator(
        embedding, {"indices": ("a", "b")}, (("a", "b", 6),), {"a": 2, "b": 3},
    ),
    "LSTM": Operator(
        recurrent("lstm", "Y", "Y_h", "Y_c", steps=2, batch=2, lengths=(1, 1),
                  states=("initial_h", "initial_c")),
        ALL_STATES, (("t", 1, "b", 5), STATE, STATE), {"t": 2, "b": 2}, {"sequence_lens": 1},
    ),
    "GRU": Operator(
        recurrent("gru", "Y"), {"X": ("t", "b", 4)}, (("t", 1, "b", 5),), {"t": 2, "b": 2},
    ),
    "RNN, batch first": Operator(
        recurrent("tanh", "Y", layout=1), {"X": ("b", "t", 4)}, (("b", "t", 1, 5),),
        {"t": 2, "b": 2},
    ),
    "Attention": Operator(
        of("Attention", heads("e"), heads=0, layouts=[2] * 4), heads("e"), (OUTSIDE,), QUERIES,
    ),
    "Attention with all that acts on it": Operator(
        of(
            "Attention", heads("e", "bias", "mask"), heads=0, layouts=[2] * 4,
            given="bias mask", causal=2, window=2, hidden=1, guard=2,
        ),
        heads("e", "bias", "mask"), (OUTSIDE,), QUERIES, {"mask": 1},
    ),
    "Attention of rows": Operator(
        of("Attention", ROWS, heads=2, groups=2, shape=[-2, -1, 8]), ROWS, (("b", "s", 8),),
        {"b": 2, "s": 3, "t": 3},
    ),
    "CachedAttention": Operator(
        of("CachedAttention", CACHED, 3, heads=2, kv_heads=1,
           given=" ".join(list(CACHED)[3:])),
        CACHED, (("b", "s", 8), PRESENT, PRESENT), {"b": 2, "s": 1, "p": 4, "n": 5},
        {"lengths": 3, "total": 4},
    ),
}  # fmt: skip
every_operator = pytest.mark.parametrize("name", OPERATORS)


def stating(
    operator: Operator, model: onnx.ModelProto, shapes: Mapping[str, list[int]]
) -> onnx.ModelProto:
    """The model, in which tensors of these shapes are stored in the places of its inputs."""
    given = onnx.ModelProto()
    given.CopyFrom(model)
    kinds = {i.name: i.type.tensor_type.elem_type for i in given.graph.input}
    del given.graph.input[:]
    for name, dims in shapes.items():
        dtype = helper.tensor_dtype_to_np_dtype(kinds[name])
        count = int(np.prod(dims, dtype=object))
        count = count if 0 <= count < FEW else 0  # then ONNX Runtime misses bytes
        number = operator.numbers.get(name, 0)
        array = normal(count) if dtype == np.float32 else np.full(count, number, dtype)
        held = TensorProto(name=name, dims=dims, data_type=kinds[name], raw_data=array.tobytes())
        given.graph.initializer.append(held)
    for output in given.graph.output:
        output.type.tensor_type.ClearField("shape")
    return given


def results(operator: Operator, model: onnx.ModelProto, shapes: Mapping[str, list[int]]) -> Any:
    """What the node makes of tensors of these shapes; None where they are refused."""
    try:
        return opened(stating(operator, model, shapes)).run(None, {})
    except REFUSALS:
        return None


def pairs(names: Any) -> Iterator[dict[Any, int]]:
    """Each one at 0, and every two at each pair of sizes."""
    yield from ({name: 0} for name in names)
    for two, values in product(combinations(names, 2), PAIRS):
        yield dict(zip(two, values, strict=True))


@every_operator
def test_axes_of_all_inputs(tmp_path: Path, name: str) -> None:
    """What runs has the shape that is stated, and finite numbers; 0 alone is refused or runs."""
    operator = OPERATORS[name]
    model = operator.model(tmp_path)
    for changed in ({}, *pairs(operator.sizes)):
        sizes = operator.sizes | changed
        found = results(operator, model, operator.shapes(sizes))
        assert found is not None or changed, name
        for y, axes in zip(found or (), operator.outputs, strict=bool(found)):
            present = max(sizes.get("p", 0), operator.numbers.get("total", 0))
            assert list(y.shape) == sized(axes, sizes | {"present": present}), changed
            assert np.isfinite(y).all(), changed


@every_operator
def test_axes_of_one_input(tmp_path: Path, name: str) -> None:
    operator = OPERATORS[name]
    model = operator.model(tmp_path)
    for changed_input, axes in operator.inputs.items():
        for changed in pairs(range(len(axes))):
            shapes = operator.shapes(operator.sizes)
            for axis, size in changed.items():
                shapes[changed_input][axis] = size
            for y in results(operator, model, shapes) or ():
                assert y.size < FEW, (changed_input, changed)


@every_operator
def test_attributes(tmp_path: Path, name: str) -> None:
    """Whole numbers, over inputs that fit and over inputs without elements."""
    operator = OPERATORS[name]
    model = operator.model(tmp_path)
    empty = dict.fromkeys(operator.sizes, 0)
    for attribute in model.graph.node[0].attribute:
        before = attribute.i
        if attribute.type != onnx.AttributeProto.INT:
            continue
        for number, sizes in product((0, -1, 2**31 - 1, HUGE, -HUGE), (operator.sizes, empty)):
            attribute.i = number
            for y in results(operator, model, operator.shapes(sizes)) or ():
                assert y.size < FEW, (attribute.name, number)
        attribute.i = before


def test_the_error_says_what_is_allowed(tmp_path: Path) -> None:
    operator = OPERATORS["MatMul"]
    message = r"node 'layer' \(ai.octavo.MatMul\): A has shape .*at most 1099511627776 elements"
    model = operator.model(tmp_path)
    shapes = operator.shapes(operator.sizes | {"a": 1 << 30, "b": 1 << 30, "k": 0})
    with pytest.raises(REFUSALS, match=message):
        opened(stating(operator, model, shapes)).run(None, {})
