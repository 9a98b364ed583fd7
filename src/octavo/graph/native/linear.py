"""A linear layer as one node, or several over one input as one.

    Linear(X, W, W_scale, W_zero_point, B, [residual])  ->  activation(X W^T + B) + residual
    GroupedLinear(X, W, W_scale, W_zero_point, B, W, ...)  ->  one output for each four

W is int8 [ceil(N/16), ceil(K/4), 16, 4], packed; the vectors have N elements. X is quantized row by
row, or by groups of 128 inputs of a row (`group_size`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import checksum, pack, unpack
from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN

OP, GROUPED_OP = "Linear", "GroupedLinear"


@dataclass(frozen=True)
class PackedValues:
    """A packed weight [n, k] in the graph: `w`, and scale and zero point of each output."""

    w: ir.Value
    scale: ir.Value
    zero_point: ir.Value
    n: int
    k: int
    checksum: int


def packed_tensor(q: npt.NDArray[np.int8]) -> tuple[npt.NDArray[np.int8], int]:
    """int8 [N, K] as W is stored, and its checksum."""
    n, k = q.shape
    packed = pack(q)
    return packed.view(np.int8).reshape(-(-n // 16), -(-k // 4), 16, 4), checksum(packed)


def linear(
    e: Emitter,
    x: ir.Value,
    w: PackedValues,
    bias: ir.Value,
    *,
    group_size: int,
    name: str,
    out: str,
    activation: str = "none",
    residual: ir.Value | None = None,
) -> ir.Value:
    """One layer; `bias` float32 [N] is a constant of the node's graph: zeros stand for none."""
    return e.op(
        OP,
        [x, w.w, w.scale, w.zero_point, bias, *([] if residual is None else [residual])],
        out=out,
        name=name,
        domain=DOMAIN,
        N=w.n,
        K=w.k,
        group_size=group_size,
        activation=activation,
        checksum=w.checksum,
    )


def unpacked(w: npt.NDArray[np.int8], n: int, k: int) -> npt.NDArray[np.int8]:
    """int8 [N, K] of what `packed_tensor` stores."""
    return unpack(np.ascontiguousarray(w).reshape(-1).view(np.uint8), n, k)


@dataclass(frozen=True)
class LinearNode:
    """A Linear node, taken apart."""

    x: ir.Value
    weight: PackedValues
    bias: ir.Value
    residual: ir.Value | None
    group_size: int
    activation: str

    @classmethod
    def of(cls, node: ir.Node) -> LinearNode | None:
        """What `node` is made of; None for another operator."""
        if node.domain != DOMAIN or node.op_type != OP:
            return None
        inputs = [v for v in node.inputs if v is not None]
        a = node.attributes
        w, scale, zero, bias = inputs[1:5]
        n, k, digest = (a[name].as_int() for name in ("N", "K", "checksum"))
        weight = PackedValues(w, scale, zero, n, k, digest)
        residual = inputs[5] if len(inputs) > 5 else None
        group_size, activation = a["group_size"].as_int(), a["activation"].as_string()
        return cls(inputs[0], weight, bias, residual, group_size, activation)

    @property
    def takes_activation(self) -> bool:
        """Whether the node can apply an activation to its outputs, and applies none yet."""
        return self.activation == "none" and self.residual is None

    def draw(self, e: Emitter, *, name: str, out: str) -> ir.Value:
        """The node again."""
        return linear(
            e,
            self.x,
            self.weight,
            self.bias,
            group_size=self.group_size,
            name=name,
            out=out,
            activation=self.activation,
            residual=self.residual,
        )


def grouped_parts(node: ir.Node) -> list[LinearNode]:
    """The layers of a GroupedLinear node."""
    inputs = [v for v in node.inputs if v is not None]
    a = node.attributes
    k, group_size = a["K"].as_int(), a["group_size"].as_int()
    said = zip(a["N"].as_ints(), a["checksum"].as_ints(), strict=True)
    parts = []
    for i, ((n, digest), activation) in enumerate(
        zip(said, a["activation"].as_string().split(" "), strict=True)
    ):
        w, scale, zero, bias = inputs[1 + 4 * i : 5 + 4 * i]
        weight = PackedValues(w, scale, zero, n, k, digest)
        parts.append(LinearNode(inputs[0], weight, bias, None, group_size, activation))
    return parts


def grouped_linear(
    e: Emitter, parts: Sequence[LinearNode], *, name: str, outs: Sequence[str]
) -> Sequence[ir.Value]:
    """Layers over one input, with equal K and group_size and without residuals."""
    inputs: list[Any] = [parts[0].x]
    for part in parts:
        inputs += [part.weight.w, part.weight.scale, part.weight.zero_point, part.bias]
    return e.op_n(
        GROUPED_OP,
        inputs,
        outs=outs,
        name=name,
        domain=DOMAIN,
        N=[part.weight.n for part in parts],
        K=parts[0].weight.k,
        group_size=parts[0].group_size,
        activation=" ".join(part.activation for part in parts),
        checksum=[part.weight.checksum for part in parts],
    )
