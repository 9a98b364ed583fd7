"""Linear layers over rows in tensors: from shapes and strides to addresses."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor

from octavo.torch import ops
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.memory import LARGE, float32_copy, in_large_pages
from octavo.torch.quantizer import Buffers, Quantizer
from octavo.torch.weight_choice import HALVES, WeightChoice

Call = Callable[[Tensor], Tensor]


class LinearModule(QuantizedModule):
    """`y = x w^T + bias` for x [..., in_features], however the weight is stored."""

    SCRIPTED = True
    _HALF: ClassVar[type[LinearModule] | None] = None
    """What holds weights of 16 bits in its place."""

    def __init__(self, in_features: int, out_features: int, has_bias: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.has_bias = has_bias

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        return cls.of(module.weight, module.bias, choice, quantizer, name)

    @staticmethod
    def _as_rows(weight: Tensor) -> Tensor:
        """Return a float weight as rows [out, in]."""
        return weight

    @classmethod
    def of(
        cls,
        weight: Tensor,
        bias: Tensor | None,
        choice: WeightChoice,
        quantizer: Quantizer,
        name: str,
    ) -> LinearModule:
        """Build the quantized layer of a float weight [out, in] and a bias [out].

        Raises ValueError for NaN, infinity and values beyond a 16-bit type.
        """
        if cls._HALF is not None and choice.storage in HALVES:
            return cls._HALF.of(weight, bias, choice, quantizer, name)
        held = quantizer.packed(choice, weight, name, cls._as_rows)
        out_features, in_features = cls._as_rows(weight).shape
        with torch.device("meta"):
            made = cls(in_features, out_features, bias is not None, *cls._storage(choice, held))
        made._fill(**held, bias=float32_copy(bias))
        return made

    @staticmethod
    def _storage(choice: WeightChoice, held: Buffers) -> tuple[Any, ...]:
        """Return the rest of the constructor's arguments, for the buffers that are `held`."""
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return self.out_features, self.in_features

    @property
    def weight(self) -> Tensor:
        """The weight as float32 [out_features, in_features], computed when it is used."""
        return self._computed_weight(self.sizes, self._dequantize)

    def _dequantize(self) -> Tensor:
        raise NotImplementedError


def caller(run: Callable[..., None], n: int, k: int) -> Call:
    """Build the function that hands rows in tensors to a kernel over addresses.

    Each attribute of a tensor costs a tenth of a microsecond and more once caches are cold: as
    much as a small layer's kernel. So what is common comes first, with few of them.
    """
    codes = ops.CODES
    threads = torch.get_num_threads
    large = LARGE // 4 // max(n, 1)

    def call(x: Tensor) -> Tensor:
        code = codes.get(x.dtype)
        shape = x.shape
        if code is None or not shape or shape[-1] != k or not x.is_contiguous():
            return uncommon(x)
        # `new_empty` takes half a microsecond more than with strides.
        if len(shape) == 2:
            rows = shape[0]
            out = x.new_empty_strided((rows, n), (n, 1))
        elif len(shape) == 3:
            batch, length, _ = shape
            rows = batch * length
            out = x.new_empty_strided((batch, length, n), (length * n, n, 1))
        else:
            rows = prod(shape[:-1])
            out = x.new_empty((*shape[:-1], n))
        if rows >= large:
            in_large_pages(out.data_ptr(), out.nbytes)
        run(_address(x), rows, k, out.data_ptr(), n, code, 0, 0, threads())
        return out

    def uncommon(x: Tensor) -> Tensor:
        if x.dtype not in codes:
            if x.dtype is not torch.float64:
                raise ops.allowed(x)
            return call(x.float()).double()
        if not x.dim() or x.shape[-1] != k:
            raise ValueError(f"x: needs shape [..., {k}], not {tuple(x.shape)}")
        if x.dim() != 2 or x.stride(1) != 1 or x.stride(0) < k:
            return call(x.contiguous())
        out = x.new_empty((x.shape[0], n))  # rows with gaps, such as hidden[:, 0]
        stride, code = x.stride(0), codes[x.dtype]
        run(_address(x), x.shape[0], stride, out.data_ptr(), n, code, 0, 0, threads())
        return out

    return call


def _address(x: Tensor) -> int:
    at: int = x.data_ptr()
    if not at and x.numel():
        raise ValueError(f"x: has shape {tuple(x.shape)} and no memory; was its storage resized?")
    return at
