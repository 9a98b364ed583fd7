"""Linear layers as other quantizers store them: which tensors there are, and the layer of these.

int8                weight int8 [n, k]            QuantizedLinear, int8
compressed-tensors  weight_packed int32 [n, k/8]  QuantizedLinear, int4-32 ...
GPTQ                qweight int32 [k/8, n]        the same
AWQ                 qweight int32 [k, n/8]        the same
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from octavo.checkpoints.gptq_awq import from_awq, from_compressed, from_gptq
from octavo.core.kernels import GroupedWeight, pack
from octavo.recipe import Scheme, WeightScheme
from octavo.torch.hub.group_layers import buffers_of, scheme_of
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.memory import array, float32_copy, tensor_of

Tensors = Mapping[str, Any]
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


class StoredLinear(ABC):
    """How one layer is stored."""

    @abstractmethod
    def tensors(self, n: int, k: int) -> Shapes:
        """Names, shapes and dtypes of the tensors of a weight [n, k]."""

    @abstractmethod
    def layer(self, stored: Tensors, n: int, k: int, bias: Tensor | None) -> QuantizedLinear:
        """Build the layer [n, k] of these tensors. Raises ValueError where they cannot be one."""

    @staticmethod
    def scheme(made: QuantizedLinear) -> Scheme:
        """Return how the layer is held, in the words of recipes."""
        if made._format.group:
            return scheme_of(made._format, group=made.group)
        return Scheme(WeightScheme(symmetric=made._buffers["zero_point"] is None))


@dataclass(frozen=True)
class Int8Linear(StoredLinear):
    """Integers of 8 bits as they are, with a scale for each output channel or for all."""

    symmetric: bool
    per_channel: bool

    def tensors(self, n: int, k: int) -> Shapes:
        """Return shapes and dtypes of `weight` int8 [n, k] and `weight_scale` [n, 1] or [1].

        Zero points are int8, of the shape of the scale.
        """
        shape = (n, 1) if self.per_channel else (1,)
        found: Shapes = {"weight": ((n, k), torch.int8), "weight_scale": (shape, torch.float32)}
        if not self.symmetric:
            found["weight_zero_point"] = shape, torch.int8
        return found

    def layer(self, stored: Tensors, n: int, k: int, bias: Tensor | None) -> QuantizedLinear:
        """Its inputs are quantized row by row."""
        zero = stored.get("weight_zero_point")
        with torch.device("meta"):
            made = QuantizedLinear(k, n, bias is not None, zero is not None)
        made._fill(
            packed=tensor_of(pack(array(stored["weight"]))),
            scale=_each(stored["weight_scale"], n, torch.float32),
            zero_point=None if zero is None else _each(zero, n, torch.int32),
            bias=float32_copy(bias),
        )
        return made


def _each(values: Any, n: int, dtype: torch.dtype) -> Tensor:
    """Return [n] of one value a channel, or of one value for all."""
    made: Tensor = values.detach().to(dtype).reshape(-1).expand(n).contiguous()
    return made.clone()


@dataclass(frozen=True)
class PackedLinear(StoredLinear):
    """Several integers a word, in groups of `group` inputs, or of all where it is 0.

    `by_row`: inputs are quantized with a scale for each row, else for each group of a row.
    """

    bits: int
    group: int
    by_row: bool = False

    def layer(self, stored: Tensors, n: int, k: int, bias: Tensor | None) -> QuantizedLinear:
        """Build a layer whose weight [n, k] is in groups."""
        values = {name: _array(value) for name, value in stored.items()}
        weight = self.groups(values, n, k)
        group = 0 if self.by_row else weight.format.group
        with torch.device("meta"):
            made = QuantizedLinear(k, n, bias is not None, group=group, format=weight.format.value)
        made._fill(**buffers_of(weight), bias=float32_copy(bias))
        return made

    @abstractmethod
    def groups(self, stored: Tensors, n: int, k: int) -> GroupedWeight:
        """Build the weight [n, k] of these arrays."""

    def _count(self, k: int) -> int:
        """Return the number of groups along `k` inputs."""
        return -(-k // self.group) if self.group else 1

    def _check_order(self, order: Any, k: int) -> None:
        """Raise ValueError where groups are not of inputs one after another."""
        if order is None:
            return
        group = self.group or k
        if not (order == torch.arange(k).numpy() // group).all():
            raise ValueError(
                "its inputs are in groups by their size (g_idx; desc_act or actorder), and "
                "Octavo's groups are of inputs one after another: give one quantized without that"
            )


def _array(value: Tensor) -> Any:
    return (value.float() if value.is_floating_point() else value).detach().numpy()


@dataclass(frozen=True)
class CompressedLinear(PackedLinear):
    """Of compressed-tensors' pack-quantized."""

    symmetric: bool = True
    ordered: bool = False
    per_tensor: bool = False

    def tensors(self, n: int, k: int) -> Shapes:
        """Return shapes and dtypes of `weight_packed`, `weight_scale` and `weight_shape`.

        Zero points are packed along outputs.
        """
        per_word, groups = 32 // self.bits, self._count(k)
        shape = (1,) if self.per_tensor else (n, groups)
        found: Shapes = {
            "weight_packed": ((n, -(-k // per_word)), torch.int32),
            "weight_scale": (shape, torch.float32),
            "weight_shape": ((2,), torch.int64),
        }
        if not self.symmetric and self.per_tensor:
            found["weight_zero_point"] = (1,), torch.int8
        elif not self.symmetric:
            found["weight_zero_point"] = (-(-n // per_word), groups), torch.int32
        if self.ordered:
            found["weight_g_idx"] = (k,), torch.int32
        return found

    def groups(self, stored: Tensors, n: int, k: int) -> GroupedWeight:
        """Return the groups that `StoredLinear.layer` takes."""
        self._check_order(stored.get("weight_g_idx"), k)
        scale, zero = stored["weight_scale"], stored.get("weight_zero_point")
        if self.per_tensor:
            scale = scale.reshape(1, 1).repeat(n, axis=0)
        return from_compressed(
            stored["weight_packed"], scale, zero, k=k, bits=self.bits, group=self.group
        )


@dataclass(frozen=True)
class GptqLinear(PackedLinear):
    """Of GPTQ. `offset`: what is missing in stored zero points; `has_order`: there is a g_idx;
    `symmetric`: the zero points are all in the middle."""

    offset: int = 1
    has_order: bool = True
    symmetric: bool = False

    def tensors(self, n: int, k: int) -> Shapes:
        """Return shapes and dtypes of the tensors of a weight [n, k].

        `qweight` has inputs along its words, `qzeros` outputs.
        """
        per_word, groups = 32 // self.bits, self._count(k)
        found: Shapes = {
            "qweight": ((k // per_word, n), torch.int32),
            "qzeros": ((groups, n // per_word), torch.int32),
            "scales": ((groups, n), torch.float32),
        }
        if self.has_order:
            found["g_idx"] = (k,), torch.int32
        return found

    def groups(self, stored: Tensors, n: int, k: int) -> GroupedWeight:
        """Return the groups that `StoredLinear.layer` takes."""
        self._check_order(stored.get("g_idx"), k)
        parts = stored["qweight"], stored["qzeros"], stored["scales"]
        return from_gptq(
            *parts,
            bits=self.bits,
            group=self.group,
            offset=self.offset,
            symmetric=self.symmetric,
        )


@dataclass(frozen=True)
class AwqLinear(PackedLinear):
    """Of AWQ in its order "gemm"."""

    has_zeros: bool = True

    def tensors(self, n: int, k: int) -> Shapes:
        """Return shapes and dtypes of the tensors of a weight [n, k].

        Both `qweight` and `qzeros` have outputs along their words.
        """
        groups = self._count(k)
        found: Shapes = {
            "qweight": ((k, n // 8), torch.int32),
            "scales": ((groups, n), torch.float32),
        }
        if self.has_zeros:
            found["qzeros"] = (groups, n // 8), torch.int32
        return found

    def groups(self, stored: Tensors, n: int, k: int) -> GroupedWeight:
        """Return the groups that `StoredLinear.layer` takes."""
        parts = stored["qweight"], stored.get("qzeros"), stored["scales"]
        return from_awq(*parts, group=self.group)


class Waiting(nn.Module):
    """What a linear layer is in such a folder, until all of it is there."""

    def __init__(self, linear: nn.Linear, how: StoredLinear) -> None:
        super().__init__()
        self.sizes, self.how = (linear.out_features, linear.in_features), how
        for name, (shape, dtype) in how.tensors(*self.sizes).items():
            self.register_buffer(name, torch.empty(shape, dtype=dtype))
        self.bias = linear.bias
        self._is_hf_initialized = True

    @property
    def nbytes(self) -> int:
        """Return the bytes of the stored tensors."""
        return sum(tensor.nbytes for tensor in self._buffers.values() if tensor is not None)

    def layer(self) -> QuantizedLinear:
        """Build the layer of what was stored. Raises ValueError where that cannot be a layer."""
        return self.how.layer(self._buffers, *self.sizes, self.bias)
