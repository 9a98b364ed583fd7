"""A recurrent layer, one direction or two, as one node.

    LSTM(X, W, W_scale, R, R_scale, B, [sequence_lens, initial_h, initial_c])  ->  Y, Y_h, Y_c
    GRU(X, W, W_scale, R, R_scale, B, [sequence_lens, initial_h])  ->  Y, Y_h
    RNN(X, W, W_scale, R, R_scale, B, [sequence_lens, initial_h])  ->  Y, Y_h

Inputs that are computed, layouts and outputs are those of ONNX's operators. W and R are int8
[D, gates * ceil(H/16), ceil(inputs/4), 16, 4], packed, with interleaved gates in PyTorch's order,
and have a scale for each row, [D, rows]; x and h are quantized row by row. All of it is stated in
`native/ort_ops/rnn_op.h`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import PackedWeight, checksum, unpack
from octavo.core.kernels.packing import Float32
from octavo.core.recurrent_weights import Kind, interleave, packed_integers, separate
from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN

OPS = {
    Kind.LSTM: "LSTM",
    Kind.GRU: "GRU",
    Kind.GRU_RESET_FIRST: "GRU",
    Kind.RNN_TANH: "RNN",
    Kind.RNN_RELU: "RNN",
}
GIVEN = ("sequence_lens", "initial_h", "initial_c")
"""The inputs that a node may have or not, in their order."""


@dataclass(frozen=True)
class PackedRows:
    """W or R in the graph: all directions of it, the scales of their rows, the checksum of `w`."""

    w: ir.Value
    scale: ir.Value
    checksum: int


@dataclass(frozen=True)
class RecurrentLayer:
    """What a node computes; `direction` and `layout` are ONNX's."""

    kind: Kind
    inputs: int
    hidden: int
    direction: str = "forward"
    layout: int = 0
    clip: float = 0.0


def packed_rows(
    kind: Kind, q: npt.NDArray[np.int8], scale: Float32, *, of_state: bool
) -> list[PackedWeight]:
    """One direction's weight from integers [gates * H, inputs], gates in PyTorch's order.

    A GRU that resets before the product has two products with h (`of_state`): r and z, then n.
    """
    if not of_state or kind is not Kind.GRU_RESET_FIRST:
        return [packed_integers(q, scale, kind.gates)]
    rz = len(q) // 3 * 2
    return [packed_integers(q[:rz], scale[:rz], 2), packed_integers(q[rz:], scale[rz:], 1)]


def stacked(
    directions: Sequence[Sequence[PackedWeight]],
) -> tuple[npt.NDArray[np.int8], Float32, int]:
    """W or R of a node, its scales, and its checksum, from the `packed_rows` of each direction."""
    k = directions[0][0].k
    packed = np.concatenate([part.packed for parts in directions for part in parts])
    scale = np.stack([np.concatenate([part.scale for part in parts]) for parts in directions])
    w = packed.view(np.int8).reshape(len(directions), -1, -(-k // 4), 16, 4)
    return w, scale, checksum(packed)


def stacked_biases(
    kind: Kind, directions: Sequence[tuple[Float32, Float32 | None]]
) -> npt.NDArray[np.float32]:
    """B of a node, from what `product_biases` gives for each direction."""
    pairs = [[b for b in pair if b is not None] for pair in directions]
    return np.stack([np.stack([interleave(b, kind.gates) for b in pair]) for pair in pairs])


def recurrent(
    e: Emitter,
    layer: RecurrentLayer,
    x: ir.Value,
    w: PackedRows,
    r: PackedRows,
    bias: ir.Value,
    *,
    given: Mapping[str, ir.Value],
    name: str,
    outs: Sequence[str],
) -> Sequence[ir.Value]:
    """The node. `bias` is a constant of its graph; `given` holds what there is of `GIVEN`.

    `outs` names Y, Y_h and Y_c, "" where one is not wanted; those behind the last may be left out.
    """
    names = [n for n in GIVEN if n in given]
    only: dict[str, object] = {}
    if OPS[layer.kind] == "GRU":
        only["linear_before_reset"] = int(layer.kind is Kind.GRU)
    if OPS[layer.kind] == "RNN":
        only["activation"] = "relu" if layer.kind is Kind.RNN_RELU else "tanh"
    return e.op_n(
        OPS[layer.kind],
        [x, w.w, w.scale, r.w, r.scale, bias, *(given[n] for n in names)],
        outs=outs,
        name=name,
        domain=DOMAIN,
        input_size=layer.inputs,
        hidden_size=layer.hidden,
        direction=layer.direction,
        layout=layer.layout,
        clip=layer.clip,
        given=" ".join(names),
        outputs=len(outs),
        W_checksum=w.checksum,
        R_checksum=r.checksum,
        **only,
    )


@dataclass(frozen=True)
class RecurrentNode:
    """An LSTM, GRU or RNN node, taken apart."""

    layer: RecurrentLayer
    x: ir.Value
    w: PackedRows
    r: PackedRows
    bias: ir.Value
    given: Mapping[str, ir.Value]

    @classmethod
    def of(cls, node: ir.Node) -> RecurrentNode | None:
        """What `node` is made of; None for another operator."""
        if node.domain != DOMAIN or node.op_type not in OPS.values():
            return None
        a = node.attributes
        x, w, w_scale, r, r_scale, bias, *rest = (v for v in node.inputs if v is not None)
        layer = RecurrentLayer(
            _kind_of(node),
            inputs=a["input_size"].as_int(),
            hidden=a["hidden_size"].as_int(),
            direction=a["direction"].as_string(),
            layout=a["layout"].as_int(),
            clip=a["clip"].as_float(),
        )
        return cls(
            layer,
            x,
            PackedRows(w, w_scale, a["W_checksum"].as_int()),
            PackedRows(r, r_scale, a["R_checksum"].as_int()),
            bias,
            dict(zip(a["given"].as_string().split(), rest, strict=True)),
        )


def _kind_of(node: ir.Node) -> Kind:
    if node.op_type == "LSTM":
        return Kind.LSTM
    if node.op_type == "GRU":
        product_first = node.attributes["linear_before_reset"].as_int()
        return Kind.GRU if product_first else Kind.GRU_RESET_FIRST
    relu = node.attributes["activation"].as_string() == "relu"
    return Kind.RNN_RELU if relu else Kind.RNN_TANH


def unstacked(
    layer: RecurrentLayer, w: npt.NDArray[np.int8], scale: Float32, *, of_state: bool
) -> tuple[npt.NDArray[np.int8], Float32]:
    """W or R [D, gates * H, inputs] and scales [D, gates * H]: the inverse of `stacked`.

    Gates are in PyTorch's order.
    """
    k = layer.hidden if of_state else layer.inputs
    n = scale.shape[1]
    packed = np.ascontiguousarray(w).reshape(len(w), -1).view(np.uint8)
    rows = [unpack(np.ascontiguousarray(direction), n, k) for direction in packed]
    return (
        np.stack([_apart(layer, q, of_state=of_state) for q in rows]),
        np.stack([_apart(layer, s, of_state=of_state) for s in scale]),
    )


def unstacked_biases(layer: RecurrentLayer, bias: Float32) -> Float32:
    """[D, 2, gates * H], x's product and h's, of the B of a node: gates in PyTorch's order."""
    gates = layer.kind.gates
    both = np.zeros((len(bias), 2, gates * layer.hidden), np.float32)
    for direction, parts in enumerate(bias):
        for i, part in enumerate(parts):
            both[direction, i] = separate(part, gates, layer.hidden)
    return both


def _apart(layer: RecurrentLayer, rows: npt.NDArray[Any], *, of_state: bool) -> npt.NDArray[Any]:
    kind, hidden = layer.kind, layer.hidden
    if not of_state or kind is not Kind.GRU_RESET_FIRST:
        return separate(rows, kind.gates, hidden)
    rz = len(rows) // 3 * 2
    return np.concatenate([separate(rows[:rz], 2, hidden), separate(rows[rz:], 1, hidden)])
