"""A linear layer as one node, or several over one input as one.

    Linear(X, W, W_scale, W_zero_point, B, [residual])  ->  activation(X W^T + B) + residual
    GroupedLinear(X, W, W_scale, W_zero_point, B, W, ...)  ->  one output for each four
    GatedLinear(X, W, W_scale, W_zero_point, B, W, ...)    ->  the product of two layers' outputs

W is int8 [ceil(N/16), ceil(K/4), 16, 4], packed; the vectors have N elements. X is quantized row by
row, or by groups of 128 inputs of a row (`group_size`). Where `weight_format` names a format of
groups, W are the bytes of `GroupedWeight.pack`, W_scale the powers of two beside its scales,
W_zero_point zeros, and groups of X are as long as those of W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import GroupedWeight, WeightFormat, pack, packed_bytes, unpack
from octavo.ir.operator import (
    Operator,
    PackedArrays,
    Packer,
    Written,
    attribute,
    damaged,
    format_of,
    stored_array,
)
from octavo.ir.weight import Weight, WeightIntegers

_P = TypeVar("_P", bound="_Parts")


def pack_matrix(made: WeightIntegers | GroupedWeight) -> PackedArrays:
    """Pack a weight [N, K] as W is stored; return it, its scales and zero points (0 in groups)."""
    if isinstance(made, GroupedWeight):
        packed = made.pack().view(np.int8)
        return packed, made.channel_scale, np.zeros(made.n, np.int8)
    n, k = made.q.shape
    packed = pack(np.ascontiguousarray(made.q)).view(np.int8)
    return packed.reshape(packed_shape(n, k)), made.scale, made.zeros


def packed_shape(
    n: int, k: int, weight_format: WeightFormat = WeightFormat.INT8
) -> tuple[int, ...]:
    """Return the shape of W: int8 in blocks of 16 outputs by 4 inputs, or the bytes of groups."""
    if weight_format.group:
        return (packed_bytes(n, k, weight_format),)
    return -(-n // 16), -(-k // 4), 16, 4


def format_attribute(weight_format: WeightFormat) -> dict[str, str]:
    """Return the attribute of a weight format; none for int8, as files that knew no other."""
    return {"weight_format": weight_format.value} if weight_format.group else {}


def stored_matrix(
    values: Sequence[ir.Value],
    n: int,
    k: int,
    *,
    packed: bool = True,
    name: str | None = None,
    weight_format: WeightFormat = WeightFormat.INT8,
) -> Weight:
    """Read a weight [n, k] of a native file: `values` are w, scale and zero point."""
    w, scale, zero = values

    def make() -> WeightIntegers | GroupedWeight:
        shape = packed_shape(n, k, weight_format) if packed else (n, k)
        stored, scales = np.ascontiguousarray(stored_array(w, *shape)), stored_array(scale, n)
        if weight_format.group:
            held = stored.reshape(-1).view(np.uint8)
            return GroupedWeight.unpack(held, n, k, scales, weight_format)
        q = unpack_matrix(stored, n, k) if packed else np.array(stored)
        zeros = stored_array(zero, n)
        return WeightIntegers(q, scales, np.array(zeros) if np.any(zeros) else None)

    stem = (name or w.name or "weight").removesuffix("_quantized")
    return Weight((w, scale, zero), stem, (n, k), make, format=weight_format)


def unpack_matrix(w: npt.NDArray[np.int8], n: int, k: int) -> npt.NDArray[np.int8]:
    """int8 [N, K] of what `pack_matrix` makes of it."""
    return unpack(np.ascontiguousarray(w).reshape(-1).view(np.uint8), n, k)


@dataclass(frozen=True)
class Linear(Operator):
    """One layer; `bias` float32 [N] is a constant. `residual` broadcasts with the outputs."""

    OPS: ClassVar[tuple[str, ...]] = ("Linear",)
    LEAST: ClassVar[int] = 5
    IN_GROUPS: ClassVar[bool] = True

    x: ir.Value
    weight: Weight
    bias: ir.Value | None = None
    residual: ir.Value | None = None
    group_size: int = 0
    activation: str = "none"
    alpha: float = 1.0
    """A factor of the product that is lowered; packed weights have it in their scales."""

    @property
    def quantizes(self) -> tuple[int, WeightFormat]:
        """Return what layers over one input have to have alike to be one node."""
        return self.group_size, self.weight.format

    @property
    def takes_activation(self) -> bool:
        """Tell whether the node can apply an activation to its outputs, and applies none yet."""
        return self.activation == "none" and self.residual is None

    def constants(self, p: Packer) -> list[ir.Value]:
        """Return the four constants of a node: w, scale, zero point and bias."""
        w = p.packed(self.weight, pack_matrix, layout="matrix")
        assert w.zero_point is not None
        return [w.w, w.scale, w.zero_point, p.bias(self.bias, self.weight.n)]

    def write(self, p: Packer) -> Written:
        weight, residual = self.weight, [] if self.residual is None else [self.residual]
        digest = p.packed(weight, pack_matrix, layout="matrix").checksum
        attributes = {
            "N": weight.n,
            "K": weight.k,
            "group_size": self.group_size,
            "activation": self.activation,
            "checksum": digest,
            **format_attribute(weight.format),
        }
        return Written([self.x, *self.constants(p), *residual], attributes)

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Linear:
        n, k = attribute(node, "N"), attribute(node, "K")
        weight = stored_matrix(inputs[1:4], n, k, weight_format=format_of(node))
        residual = inputs[5] if len(inputs) > 5 else None
        size, activation = attribute(node, "group_size"), attribute(node, "activation")
        return cls(inputs[0], weight, inputs[4], residual, size, activation)


@dataclass(frozen=True)
class _Parts(Operator):
    """Layers over one input, with equal K, group_size and formats, and without residuals."""

    IN_GROUPS: ClassVar[bool] = True

    parts: tuple[Linear, ...]

    def inputs(self) -> list[ir.Value]:
        biases = [part.bias for part in self.parts if part.bias is not None]
        sources = [w.source for w in self.weights() if w.source is not None]
        return [self.parts[0].x, *biases, *sources]

    def weights(self) -> list[Weight]:
        return [part.weight for part in self.parts]

    def with_inputs(self: _P, values: Sequence[ir.Value | None]) -> _P:
        x, *biases = values
        assert x is not None
        rest = iter(biases)
        return type(self)(
            tuple(
                replace(part, x=x, bias=None if part.bias is None else next(rest))
                for part in self.parts
            )
        )

    def write(self, p: Packer) -> Written:
        inputs: list[ir.Value] = [self.parts[0].x]
        for part in self.parts:
            inputs += part.constants(p)
        held = [p.packed(part.weight, pack_matrix, layout="matrix") for part in self.parts]
        attributes = {
            "N": [part.weight.n for part in self.parts],
            "K": self.parts[0].weight.k,
            "group_size": self.parts[0].group_size,
            "activation": " ".join(part.activation for part in self.parts),
            "checksum": [w.checksum for w in held],
            **format_attribute(self.parts[0].weight.format),
        }
        return Written(inputs, attributes)

    @classmethod
    def _read(cls: type[_P], node: ir.Node, inputs: Sequence[ir.Value]) -> _P:
        k, size = attribute(node, "K"), attribute(node, "group_size")
        activations = attribute(node, "activation").split(" ")
        parts = []
        sizes = attribute(node, "N")
        if len(activations) != len(sizes) or len(inputs) < 1 + 4 * len(sizes) or not sizes:
            raise damaged(node, f"has {len(inputs)} inputs and {len(sizes)} sizes")
        for i, (n, activation) in enumerate(zip(sizes, activations, strict=True)):
            *stored, bias = inputs[1 + 4 * i : 5 + 4 * i]
            weight = stored_matrix(stored, n, k, weight_format=format_of(node))
            parts.append(Linear(inputs[0], weight, bias, None, size, activation))
        return cls(tuple(parts))


@dataclass(frozen=True)
class GroupedLinear(_Parts):
    """One output for each of `parts`."""

    OPS: ClassVar[tuple[str, ...]] = ("GroupedLinear",)


@dataclass(frozen=True)
class GatedLinear(_Parts):
    """`parts` are two layers of as many outputs, which are multiplied with each other."""

    OPS: ClassVar[tuple[str, ...]] = ("GatedLinear",)
