"""nn.Linear with weights of 16 bits, float16 or bfloat16: computed in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from octavo.core.half_linear import HalfLinear as Kernel
from octavo.core.half_linear import half_packed_size
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.inputs import as_leaf, autocasted, is_proxy, of_each
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.rows import Call, caller
from octavo.torch.memory import array, float32, float32_copy, optional, tensor_of
from octavo.torch.quantizer import Quantizer
from octavo.torch.weight_choice import WeightChoice


@quantized(kind=Kind.LINEAR, onnx=("half_linear",))
class QuantizedHalfLinear(QuantizedModule):
    """`y = x w^T + bias` for x [..., in_features] of any float dtype, y in the same dtype.

    Buffers: `packed` (the kernels' layout) of `dtype`, "float16" or "bfloat16"; `bias` float32
    [out_features]. Inputs stay as they are.
    """

    SCRIPTED = True
    CONFIG = ("in_features", "out_features", "has_bias", "dtype")

    def __init__(
        self, in_features: int, out_features: int, has_bias: bool = True, dtype: str = "float16"
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.has_bias, self.dtype = has_bias, dtype
        size = half_packed_size(out_features, in_features)
        self._hold(
            packed=torch.zeros(size, dtype=getattr(torch, dtype)),
            bias=torch.zeros(out_features) if has_bias else None,
        )

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        return cls.of(module.weight, module.bias, choice, quantizer, name)

    @staticmethod
    def _as_rows(weight: Tensor) -> Tensor:
        """[out, in] of a float weight."""
        return weight

    @classmethod
    def of(
        cls,
        weight: Tensor,
        bias: Tensor | None,
        choice: WeightChoice,
        quantizer: Quantizer,
        name: str,
    ) -> QuantizedHalfLinear:
        """From a float weight [out, in] and a bias [out].

        Raises ValueError for NaN, infinity and values beyond the 16-bit type.
        """
        rows, form = cls._as_rows(weight), f"half, {cls._as_rows.__qualname__}"
        held = quantizer.once(
            choice, weight, name, form, lambda: _packed(choice, rows, quantizer, name)
        )
        out_features, in_features = rows.shape
        with torch.device("meta"):
            made = cls(in_features, out_features, bias is not None, choice.storage)
        made._fill(**held, bias=float32_copy(bias))
        return made

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        """The outputs [..., out_features]; nested for a nested tensor."""
        if not torch.jit.is_scripting():
            return self._run(input)
        return torch.ops.octavo.half_linear(
            input, self.packed, self.bias, self.out_features, self.in_features
        )

    def _run(self, x: Tensor) -> Tensor:
        x = autocasted(x)
        if ops.direct(x):
            return self._ready()(x)
        if is_proxy(x):
            return as_leaf(self, x)
        if x.is_nested:
            return of_each(self._run, x)
        return half_linear(x, self.packed, self.bias, self.out_features, self.in_features)

    def _kernel(self) -> Call:
        return kernel(self.packed, self.bias, self.out_features, self.in_features)

    @property
    def weight(self) -> Tensor:
        """The weight as float32 [out_features, in_features], computed when it is used."""
        return self._computed_weight((self.out_features, self.in_features), self._widen)

    def _widen(self) -> Tensor:
        made = _core(self.packed, None, self.out_features, self.in_features)
        return torch.from_numpy(made.weights())

    def extra_repr(self) -> str:
        """What `print(model)` shows of the layer."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.has_bias}, {self.dtype}"
        )


def _packed(
    choice: WeightChoice, rows: Tensor, quantizer: Quantizer, name: str
) -> dict[str, Tensor | None]:
    values = float32(rows)
    try:
        made = Kernel.from_float(values, None, choice.storage)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    quantizer.count_rounded(name, torch.from_numpy(values), torch.from_numpy(made.weights()))
    bits = tensor_of(made.packed)
    assert bits is not None
    return {"packed": bits.view(getattr(torch, choice.storage))}


def _core(packed: Tensor, bias: Tensor | None, n: int, k: int) -> Kernel:
    dtype = str(packed.dtype).removeprefix("torch.")
    return Kernel(array(packed), n, k, dtype, optional(bias))


def kernel(packed: Tensor, bias: Tensor | None, n: int, k: int) -> Call:
    """The layer over these tensors, which it keeps alive."""
    return caller(_core(packed, bias, n, k).run, n, k)


def _fake(x: Tensor, packed: Tensor, bias: Any, n: int, k: int) -> Tensor:
    torch._check(x.dim() > 0 and x.shape[-1] == k, lambda: f"x: needs shape [..., {k}]")
    return x.new_empty((*x.shape[:-1], n))


half_linear = ops.define(
    "half_linear",
    "(Tensor x, Tensor packed, Tensor? bias, int n, int k) -> Tensor",
    ops.over_weights(kernel),
    _fake,
)
