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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import PackedWeight, unpack
from octavo.core.kernels.packing import Float32
from octavo.core.recurrent_weights import (
    Kind,
    interleave,
    packed_integers,
    product_biases,
    separate,
)
from octavo.ir.operator import (
    Operator,
    Packer,
    Written,
    attribute,
    given_inputs,
    stored_array,
)
from octavo.ir.weight import Weight, WeightIntegers

NAMES = {
    Kind.LSTM: "LSTM",
    Kind.GRU: "GRU",
    Kind.GRU_RESET_FIRST: "GRU",
    Kind.RNN_TANH: "RNN",
    Kind.RNN_RELU: "RNN",
}
OPTIONAL = ("sequence_lens", "initial_h", "initial_c")
"""The inputs that a node may have or not, in their order."""


@dataclass(frozen=True)
class RecurrentCell:
    """What a node computes; `direction` and `layout` are ONNX's."""

    kind: Kind
    inputs: int
    hidden: int
    direction: str = "forward"
    layout: int = 0
    clip: float = 0.0

    @property
    def directions(self) -> int:
        """Return the number of directions, 1 or 2."""
        return 2 if self.direction == "bidirectional" else 1

    @property
    def rows(self) -> int:
        """Count the rows of a stored weight, whose gates are in blocks of 16."""
        return self.kind.gates * -(-self.hidden // 16) * 16


def pack_rows(
    kind: Kind, q: npt.NDArray[np.int8], scale: Float32, *, of_state: bool
) -> list[PackedWeight]:
    """Pack one direction's weight of integers [gates * H, inputs], gates in PyTorch's order.

    A GRU that resets before the product has two products with h (`of_state`): r and z, then n.
    """
    if not of_state or kind is not Kind.GRU_RESET_FIRST:
        return [packed_integers(q, scale, kind.gates)]
    rz = len(q) // 3 * 2
    return [packed_integers(q[:rz], scale[:rz], 2), packed_integers(q[rz:], scale[rz:], 1)]


def stack_directions(
    directions: Sequence[Sequence[PackedWeight]],
) -> tuple[npt.NDArray[np.int8], Float32, None]:
    """W or R of a node and its scales, from the `pack_rows` of each direction."""
    k = directions[0][0].k
    packed = np.concatenate([part.packed for parts in directions for part in parts])
    scale = np.stack([np.concatenate([part.scale for part in parts]) for parts in directions])
    return packed.view(np.int8).reshape(len(directions), -1, -(-k // 4), 16, 4), scale, None


def stack_biases(kind: Kind, both: Float32) -> Float32:
    """B of a node, from [D, 2, gates * H]: x's bias and h's, gates in PyTorch's order."""
    pairs = [[b for b in product_biases(kind, *pair) if b is not None] for pair in both]
    return np.stack([np.stack([interleave(b, kind.gates) for b in pair]) for pair in pairs])


@dataclass(frozen=True)
class Recurrent(Operator):
    """W [D, gates * H, inputs] and R [D, gates * H, H] have their gates in PyTorch's order.

    So has `biases`, float32 [D, 2, gates * H]: x's product and h's. `count` outputs are written.
    """

    OPS: ClassVar[tuple[str, ...]] = ("LSTM", "GRU", "RNN")
    LEAST: ClassVar[int] = 6

    cell: RecurrentCell
    x: ir.Value
    w: Weight
    r: Weight
    biases: npt.NDArray[np.float32]
    sequence_lens: ir.Value | None = None
    initial_h: ir.Value | None = None
    initial_c: ir.Value | None = None
    count: int = 3

    @property
    def op(self) -> str:
        return NAMES[self.cell.kind]

    def write(self, p: Packer) -> Written:
        cell, given = self.cell, [n for n in OPTIONAL if getattr(self, n) is not None]
        w, r = (self._packed(p, of_state=of_state) for of_state in (False, True))
        only: dict[str, object] = {}
        if self.op == "GRU":
            only["linear_before_reset"] = int(cell.kind is Kind.GRU)
        if self.op == "RNN":
            only["activation"] = "relu" if cell.kind is Kind.RNN_RELU else "tanh"
        bias = p.constant(stack_biases(cell.kind, self.biases), "bias")
        attributes = {
            "input_size": cell.inputs,
            "hidden_size": cell.hidden,
            "direction": cell.direction,
            "layout": cell.layout,
            "clip": cell.clip,
            "given": " ".join(given),
            "outputs": self.count,
            "W_checksum": w.checksum,
            "R_checksum": r.checksum,
            **only,
        }
        values = [getattr(self, name) for name in given]
        return Written([self.x, w.w, w.scale, r.w, r.scale, bias, *values], attributes)

    def _packed(self, p: Packer, *, of_state: bool) -> Any:
        kind = self.cell.kind

        def pack(integers: WeightIntegers) -> tuple[npt.NDArray[np.int8], Float32, None]:
            directions = zip(integers.q, integers.scale, strict=True)
            return stack_directions(
                [pack_rows(kind, q, scale, of_state=of_state) for q, scale in directions]
            )

        weight = self.r if of_state else self.w
        return p.packed(weight, pack, layout=f"gates {kind.name} {of_state}")

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Recurrent:
        x, w, w_scale, r, r_scale, bias, *rest = inputs
        given = given_inputs(node, rest, OPTIONAL)
        cell = RecurrentCell(
            _kind_of(node),
            inputs=attribute(node, "input_size"),
            hidden=attribute(node, "hidden_size"),
            direction=attribute(node, "direction"),
            layout=attribute(node, "layout"),
            clip=attribute(node, "clip"),
        )
        return cls(
            cell,
            x,
            _stored(cell, w, w_scale, of_state=False),
            _stored(cell, r, r_scale, of_state=True),
            _separated_biases(cell, bias),
            **given,
            count=attribute(node, "outputs"),
        )


def _kind_of(node: ir.Node) -> Kind:
    if node.op_type == "LSTM":
        return Kind.LSTM
    if node.op_type == "GRU":
        return Kind.GRU if attribute(node, "linear_before_reset") else Kind.GRU_RESET_FIRST
    return Kind.RNN_RELU if attribute(node, "activation") == "relu" else Kind.RNN_TANH


def _stored(cell: RecurrentCell, w: ir.Value, scale: ir.Value, *, of_state: bool) -> Weight:
    """W or R of a native file."""
    k = cell.hidden if of_state else cell.inputs
    directions, n = cell.directions, cell.rows

    def make() -> WeightIntegers:
        scales = stored_array(scale, directions, n)
        stored = stored_array(w, directions, n // 16, -(-k // 4), 16, 4)
        packed = np.ascontiguousarray(stored).reshape(directions, -1).view(np.uint8)
        rows = [unpack(np.ascontiguousarray(direction), n, k) for direction in packed]
        q = np.stack([_separated(cell, part, of_state=of_state) for part in rows])
        return WeightIntegers(q, np.stack([_separated(cell, s, of_state=of_state) for s in scales]))

    name = (w.name or "weight").removesuffix("_quantized")
    return Weight((w, scale), name, (directions, cell.kind.gates * cell.hidden, k), make)


def _separated(cell: RecurrentCell, rows: npt.NDArray[Any], *, of_state: bool) -> npt.NDArray[Any]:
    """Rows of all gates [gates * H, ...] from interleaved ones: the inverse of `pack_rows`."""
    kind, hidden = cell.kind, cell.hidden
    if not of_state or kind is not Kind.GRU_RESET_FIRST:
        return separate(rows, kind.gates, hidden)
    rz = len(rows) // 3 * 2
    return np.concatenate([separate(rows[:rz], 2, hidden), separate(rows[rz:], 1, hidden)])


def _separated_biases(cell: RecurrentCell, value: ir.Value) -> Float32:
    gates, bias = cell.kind.gates, stored_array(value)
    if bias.shape not in [(cell.directions, n, cell.rows) for n in (1, 2)]:
        stored_array(value, cell.directions, 2, cell.rows)  # raises ModelError
    both = np.zeros((len(bias), 2, gates * cell.hidden), np.float32)
    for direction, parts in enumerate(bias):
        for i, part in enumerate(parts):
            both[direction, i] = separate(part, gates, cell.hidden)
    return both
