"""What a step of a recurrent layer computes, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.recurrent_weights import Kind
from tests.onnx.references.linear import reference_native as product

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """W or R of one direction: int8 [gates * H, inputs], gates in PyTorch's order, and scales."""

    q: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]

    def product(self, x: npt.NDArray[Any], rows: slice = slice(None)) -> Float64:
        """float64 [B, rows] of `x` [B, inputs], quantized row by row."""
        q, scale = self.q[rows], self.scale[rows]
        return product(x, q, scale, np.zeros(len(q)), np.zeros(len(q)))


def reference(
    kind: Kind,
    x: npt.NDArray[Any],
    w: Weights,
    r: Weights,
    biases: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    h: Float64,
    c: Float64,
    clip: float = 0.0,
) -> tuple[Float64, Float64]:
    """What one step of one direction computes, in float64: (h, c) [B, H] after `x` [B, inputs].

    `biases` are those of x's product and of h's, [gates * H], gates in PyTorch's order. c is that
    of an LSTM; others give it back. What is above `clip` (0: nothing) does not reach a gate.
    """
    n = h.shape[1]
    a, h32 = w.product(x) + biases[0], np.asarray(h, np.float32)
    rz = slice(0, 2 * n)

    def bounded(gate: Float64) -> Float64:
        return np.clip(gate, -clip, clip) if clip else gate

    def sigmoid(gate: Float64) -> Float64:
        found: Float64 = 1.0 / (1.0 + np.exp(-bounded(gate)))
        return found

    def tanh(gate: Float64) -> Float64:
        found: Float64 = np.tanh(bounded(gate))
        return found

    if kind is Kind.LSTM:
        i, f, g, o = np.split(a + r.product(h32) + biases[1], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if kind is Kind.RNN_TANH or kind is Kind.RNN_RELU:
        gate = a + r.product(h32) + biases[1]
        return (tanh(gate) if kind is Kind.RNN_TANH else np.maximum(bounded(gate), 0.0)), c
    reset, update = np.split(sigmoid(a[:, rz] + r.product(h32, rz) + biases[1][rz]), 2, axis=1)
    last, bias = slice(2 * n, None), biases[1][2 * n :]
    if kind is Kind.GRU:
        new = tanh(a[:, last] + reset * (r.product(h32, last) + bias))
    else:
        new = tanh(a[:, last] + r.product((reset * h).astype(np.float32), last) + bias)
    return (1.0 - update) * new + update * h, c
