"""Stacks of layers in which it is known which ones int8 ruins, and a labelled task for them.

A layer is LayerNorm, a product with bias, and a residual around tanh; the last one is the readout,
fitted by ridge regression. One input channel of a bad layer is scaled `factor` times in its weights
and divided by it in the LayerNorm before: the float model is the same function, and int8 is left
with that one channel, which its input has lost. `spread` is milder, in every layer.

    h -> LayerNorm(gain, shift) -> MatMul(w) + b -> z -> z + s tanh(z)          s falls with depth
         gain[c], shift[c] / factor   w[c, :] * factor                          in a bad layer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.zoo.sessions import Float32, Int64, Session

if TYPE_CHECKING:
    import torch

WIDTH, CLASSES = 64, 10
FITTED, TESTED = 2000, 2000
SEPARATION = 0.62  # distance of the classes' centres from 0, in standard deviations a coordinate
FACTOR = 1000.0
EPSILON = 1e-5
_RIDGE = 0.01
_BEND = 0.6  # what tanh adds, over all layers together


@dataclass(frozen=True)
class Layer:
    """`gain`, `shift`: [WIDTH] of the LayerNorm before; `weight` [WIDTH, outputs], `bias`."""

    gain: Float32
    shift: Float32
    weight: Float32
    bias: Float32

    def scaled(self, channel: int, factor: float) -> Layer:
        """The same function, with `channel` of the weights `factor` times as large."""
        gain, shift, weight = self.gain.copy(), self.shift.copy(), self.weight.copy()
        gain[channel] /= np.float32(factor)
        shift[channel] /= np.float32(factor)
        weight[channel] *= np.float32(factor)
        return Layer(gain, shift, weight, self.bias)


@dataclass(frozen=True)
class Stack:
    """The layers, the readout last, and where the bad ones are."""

    layers: tuple[Layer, ...]
    bad: tuple[int, ...] = ()

    @property
    def bad_names(self) -> tuple[str, ...]:
        """The bad layers' names in the ONNX model."""
        return tuple(name_of(i) for i in self.bad)

    @property
    def bend(self) -> float:
        """The weight of tanh."""
        return float(_BEND / np.sqrt(len(self.layers)))


def name_of(index: int) -> str:
    """A layer's name in the ONNX model; the module's is `INDEX.linear`."""
    return f"layer{index:03d}"


@lru_cache
def healthy(layers: int, seed: int = 0) -> Stack:
    """`layers` of them, the readout included; all int8 loses next to nothing."""
    random = np.random.RandomState(1000 * seed + layers)
    hidden = []
    for _ in range(layers - 1):
        hidden.append(_layer(_rotation(random), random.standard_normal(WIDTH) * 0.05))
    blank = Stack((*hidden, _layer(np.zeros((WIDTH, CLASSES)), np.zeros(CLASSES))))
    return Stack((*hidden, _readout(blank)))


def planted(layers: int, seed: int, count: int = 1, factor: float = FACTOR) -> Stack:
    """`count` bad layers at places, and with channels, that `seed` says."""
    random = np.random.RandomState(seed)
    bad = tuple(sorted(random.choice(layers, count, replace=False).tolist()))
    return _damaged(healthy(layers), bad, factor, random)


def spread(layers: int, seed: int, factor: float) -> Stack:
    """Every layer has a channel that is scaled by a moderate `factor`."""
    random = np.random.RandomState(seed)
    return _damaged(healthy(layers), tuple(range(layers)), factor, random)


def _damaged(
    stack: Stack, bad: tuple[int, ...], factor: float, random: np.random.RandomState
) -> Stack:
    channels = random.randint(0, WIDTH, len(stack.layers))
    layers = list(stack.layers)
    for i in bad:
        layers[i] = layers[i].scaled(channels[i], factor)
    return Stack(tuple(layers), bad)


def _layer(weight: np.ndarray[Any, Any], bias: np.ndarray[Any, Any]) -> Layer:
    ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    return Layer(ones, zeros, weight.astype(np.float32), bias.astype(np.float32))


def _rotation(random: np.random.RandomState) -> np.ndarray[Any, Any]:
    """Keeps the mean, which LayerNorm takes away: hundreds of others would lose the classes."""
    ones = np.ones((WIDTH, 1)) / WIDTH**0.5
    basis, _ = np.linalg.qr(np.hstack([ones, np.eye(WIDTH)[:, 1:]]))
    turned, _ = np.linalg.qr(random.standard_normal((WIDTH - 1, WIDTH - 1)))
    rest = basis[:, 1:]
    return np.asarray(ones @ ones.T + rest @ turned @ rest.T)


def _readout(stack: Stack) -> Layer:
    """Ridge regression on the normalized input of the last layer, whose coordinates sum to 0."""
    x, labels = task(fitted=True)
    for layer in stack.layers[:-1]:
        z = _normalized(x, layer) @ layer.weight + layer.bias
        x = z + np.float32(stack.bend) * np.tanh(z)
    x = _normalized(x, stack.layers[-1])
    wanted = np.eye(CLASSES, dtype=np.float32)[labels] - np.float32(1 / CLASSES)
    x64 = x.astype(np.float64)
    weight = np.linalg.solve(x64.T @ x64 + _RIDGE * len(x) * np.eye(WIDTH), x64.T @ wanted)
    return _layer(weight, np.zeros(CLASSES))


def _normalized(x: Float32, layer: Layer) -> Float32:
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.float32(EPSILON))
    return np.asarray(centred / deviation * layer.gain + layer.shift, np.float32)


@lru_cache
def task(fitted: bool = False) -> tuple[Float32, Int64]:
    """Inputs [n, WIDTH] and labels [n]: points around a centre for each class, evenly many."""
    random = np.random.RandomState(7)
    centres = random.standard_normal((CLASSES, WIDTH)) * SEPARATION
    parts = []
    for count in (FITTED, TESTED):
        labels = np.arange(count, dtype=np.int64) % CLASSES
        points = centres[labels] + random.standard_normal((count, WIDTH))
        parts.append((points.astype(np.float32), labels))
    return parts[0] if fitted else parts[1]


def evaluate(model: Session | torch.nn.Module) -> float:
    """Accuracy on the labelled task, of a session or a module."""
    x, labels = task()
    return float((_scores(model, x).argmax(axis=1) == labels).mean())


def _scores(model: Session | torch.nn.Module, x: Float32) -> Float32:
    if isinstance(model, Session):
        return np.asarray(model.run(None, {"x": x})[0])
    import torch

    with torch.inference_mode():
        return np.asarray(model(torch.from_numpy(x)).numpy())


def write_onnx(stack: Stack, path: Path) -> Path:
    """The stack as an ONNX file: `x` [rows, WIDTH] to `scores` [rows, CLASSES]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights = [], [numpy_helper.from_array(np.asarray(stack.bend, np.float32), "bend")]

    def node(op: str, inputs: Sequence[str], output: str, name: str = "", **given: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=name or output, **given))
        return output

    def constant(values: Float32, name: str) -> str:
        weights.append(numpy_helper.from_array(values, name))
        return name

    value, last = "x", len(stack.layers) - 1
    for i, layer in enumerate(stack.layers):
        name = name_of(i)
        scale = [constant(layer.gain, f"{name}.gain"), constant(layer.shift, f"{name}.shift")]
        normal = node("LayerNormalization", [value, *scale], f"{name}.normal", epsilon=EPSILON)
        product = node(
            "MatMul", [normal, constant(layer.weight, f"{name}.w")], f"{name}.product", name
        )
        z = "scores" if i == last else f"{name}.z"
        node("Add", [product, constant(layer.bias, f"{name}.b")], z)
        if i < last:
            bent = node("Mul", [node("Tanh", [z], f"{name}.tanh"), "bend"], f"{name}.bent")
            value = node("Add", [z, bent], f"{name}.out")
    graph = helper.make_graph(
        nodes,
        "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", WIDTH])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", CLASSES])],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def module(stack: Stack) -> torch.nn.Module:
    """The stack as a PyTorch module."""
    import torch

    class Block(torch.nn.Module):  # type: ignore[misc]  # PyTorch is Any here
        def __init__(self, layer: Layer, bend: float) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH, EPSILON)
            self.linear = torch.nn.Linear(*layer.weight.shape)
            self.bend = bend
            held = (self.norm.weight, self.norm.bias, self.linear.weight, self.linear.bias)
            given = (layer.gain, layer.shift, np.ascontiguousarray(layer.weight.T), layer.bias)
            for parameter, values in zip(held, given, strict=True):
                parameter.data = torch.from_numpy(values.copy())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z: torch.Tensor = self.linear(self.norm(x))
            return z + self.bend * torch.tanh(z) if self.bend else z

    bends = [stack.bend] * (len(stack.layers) - 1) + [0.0]
    blocks = [Block(layer, bend) for layer, bend in zip(stack.layers, bends, strict=True)]
    return torch.nn.Sequential(*blocks).eval()
