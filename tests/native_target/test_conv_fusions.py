"""Activations behind convolutions in the native target: one node, and the same function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.activation import ACTIVATIONS
from tests.graphs import (
    EXACT,
    FLOAT,
    FLOAT16,
    INT8,
    Array,
    assert_close,
    build,
    node,
    values,
    weight,
)
from tests.graphs import run as run_float
from tests.native_target.forms import attributes, ours, run
from tests.native_target.forms import convert_convolutions as convert

SHAPE = (24, 16, 3, 3)
REFERENCES = {rule.name: rule.reference for rule in ACTIVATIONS}

Tail = Callable[[str], Sequence[onnx.NodeProto]]
"""Nodes from a convolution's output to "y"."""


def model(tail: Tail, *, opset: int = 21, dtype: int = FLOAT, **window: Any) -> onnx.ModelProto:
    """Conv(x, w, b) and `tail` behind it; its constants are "half", "one", "root", ..."""
    kind = np.float16 if dtype == FLOAT16 else np.float32
    numbers = {"half": 0.5, "one": 1.0, "root": 2**0.5, "alpha": 1.702}
    constants = {
        "w": weight(*SHAPE, axis=0, spread=False).astype(kind),
        "b": values(SHAPE[0]).astype(kind),
        "channels": values(SHAPE[0], 1, 1).astype(kind),
        **{name: np.array(number, kind) for name, number in numbers.items()},
    }
    behind = tail("c")
    read = {name for n in behind for name in n.input}
    used = {k: v for k, v in constants.items() if k in ("w", "b") or k in read}
    return build(
        [node("Conv", ["x", "w", "b"], ["c"], **window), *behind],
        {"x": (dtype, ["batch", 16, "h", "width"])},
        {"y": (dtype, None)},
        used,
        opset=opset,
    )


def one(op: str, domain: str = "", **options: Any) -> Tail:
    return lambda c: [node(op, [c], ["y"], domain=domain, **options)]


def by_sigmoid(c: str) -> Sequence[onnx.NodeProto]:
    return [node("Sigmoid", [c], ["s"]), node("Mul", ["s", c], ["y"])]


def by_erf(c: str) -> Sequence[onnx.NodeProto]:
    return [
        node("Div", [c, "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Mul", [c, "a"], ["m"]),
        node("Mul", ["m", "half"], ["y"]),
    ]


FORMS: dict[str, tuple[str, Tail]] = {
    "relu": ("relu", one("Relu")),
    "tanh": ("tanh", one("Tanh")),
    "sigmoid": ("sigmoid", one("Sigmoid")),
    "gelu": ("gelu", one("Gelu")),
    "gelu with erf": ("gelu", by_erf),
    "gelu with tanh": ("gelu_tanh", one("Gelu", approximate="tanh")),
    "fast gelu": ("gelu_tanh", one("FastGelu", "com.microsoft")),
    "silu": ("silu", by_sigmoid),
    "quick gelu": ("silu", one("QuickGelu", "com.microsoft", alpha=1.0)),
}


def image(batch: int = 2) -> Array:
    return values(batch, 16, 9, 7)


@pytest.mark.parametrize("form", FORMS)
def test_an_activation_is_one_with_the_convolution(tmp_path: Path, form: str) -> None:
    name, tail = FORMS[form]
    done, alone = convert(model(tail), tmp_path), convert(model(one("Identity")), tmp_path)
    (layer,) = done.proto.graph.node
    assert layer.op_type == "Conv" and layer.domain == "ai.octavo"
    assert attributes(layer)["activation"].decode() == name
    (y,), (before,) = run(done, {"x": image()}), run(alone, {"x": image()})
    assert_close(y, REFERENCES[name](before).astype(np.float32), EXACT)
    assert_close(y, run_float(model(tail), {"x": image()})[0], INT8)


def test_relu_changes_no_bit(tmp_path: Path) -> None:
    done, alone = convert(model(one("Relu")), tmp_path), convert(model(one("Identity")), tmp_path)
    (y,), (before,) = run(done, {"x": image()}), run(alone, {"x": image()})
    assert np.array_equal(y, np.maximum(before, 0.0))


def test_the_window_stays(tmp_path: Path) -> None:
    window = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 3]}
    for given in (window, {"auto_pad": "SAME_LOWER", "strides": [2, 3]}):
        proto = model(by_sigmoid, **given)
        done = convert(proto, tmp_path)
        (layer,) = done.proto.graph.node
        said = attributes(layer)
        assert {k: said[k] for k in given if k != "auto_pad"} == {
            k: v for k, v in given.items() if k != "auto_pad"
        }
        assert_close(run(done, {"x": image()})[0], run_float(proto, {"x": image()})[0], INT8)


def test_what_another_node_reads_stays_apart(tmp_path: Path) -> None:
    def tail(c: str) -> Sequence[onnx.NodeProto]:
        return [node("Relu", [c], ["r"]), node("Sub", ["r", c], ["y"])]

    done = convert(model(tail), tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "Relu", "Sub"]
    assert attributes(ours(done)[0])["activation"] == b"none"
    assert_close(run(done, {"x": image()})[0], run_float(model(tail), {"x": image()})[0], INT8)


@pytest.mark.parametrize(
    "tail",
    [
        lambda c: [node("Clip", [c, "half", "one"], ["y"])],
        one("LeakyRelu", alpha=0.1),
        one("QuickGelu", "com.microsoft", alpha=1.702),
        lambda c: [node("Mul", [c, "channels"], ["p"]), node("Relu", ["p"], ["y"])],
    ],
    ids=["clip", "leaky relu", "another alpha", "a factor a channel"],
)
def test_other_functions_are_left_alone(tmp_path: Path, tail: Tail) -> None:
    proto = model(tail)
    done = convert(proto, tmp_path)
    kinds = [n.op_type for n in proto.graph.node]
    assert [n.op_type for n in done.proto.graph.node] == kinds
    assert attributes(ours(done)[0])["activation"] == b"none"
    assert_close(run(done, {"x": image()})[0], run_float(proto, {"x": image()})[0], INT8)


def test_a_node_takes_one_activation(tmp_path: Path) -> None:
    def tail(c: str) -> Sequence[onnx.NodeProto]:
        return [node("Relu", [c], ["r"]), node("Tanh", ["r"], ["y"])]

    done = convert(model(tail), tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "Tanh"]
    assert_close(run(done, {"x": image()})[0], run_float(model(tail), {"x": image()})[0], INT8)


def test_float16_models_keep_it_behind_the_cast(tmp_path: Path) -> None:
    """The convolution's outputs are rounded to float16 before the activation reads them."""
    done = convert(model(one("Relu"), dtype=FLOAT16), tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Cast", "Conv", "Cast", "Relu"]
    (y,) = run(done, {"x": image().astype(np.float16)})
    assert y.dtype == np.float16 and (y >= 0).all()
