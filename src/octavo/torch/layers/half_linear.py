"""nn.Linear with weights of 16 bits, float16 or bfloat16: computed in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from octavo.core.half_linear import HalfLinear as Kernel
from octavo.core.half_linear import half_packed_size
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.inputs import as_leaf, autocasted, is_proxy, of_each
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.rows import Call, LinearModule, caller
from octavo.torch.memory import array, optional
from octavo.torch.quantizer import Buffers
from octavo.torch.weight_choice import WeightChoice


@quantized(kind=Kind.LINEAR, onnx=("half_linear",))
class QuantizedHalfLinear(LinearModule):
    """`y = x w^T + bias` for x [..., in_features] of any float dtype, y in the same dtype.

    Buffers: `packed` (the kernels' layout) of `dtype`, "float16" or "bfloat16"; `bias` float32
    [out_features]. Inputs stay as they are.
    """

    CONFIG = ("in_features", "out_features", "has_bias", "dtype")

    def __init__(
        self, in_features: int, out_features: int, has_bias: bool = True, dtype: str = "float16"
    ) -> None:
        super().__init__(in_features, out_features, has_bias)
        self.dtype = dtype
        size = half_packed_size(out_features, in_features)
        self._hold(
            packed=torch.zeros(size, dtype=getattr(torch, dtype)),
            bias=torch.zeros(out_features) if has_bias else None,
        )

    @staticmethod
    def _storage(choice: WeightChoice, held: Buffers) -> tuple[Any, ...]:
        return (choice.storage,)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        """Return the outputs [..., out_features]; nested for a nested tensor."""
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
        return half_linear(x, self.packed, self.bias, *self.sizes)

    def _kernel(self) -> Call:
        return kernel(self.packed, self.bias, *self.sizes)

    def _dequantize(self) -> Tensor:
        return torch.from_numpy(_core(self.packed, None, *self.sizes).weights())

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.has_bias}, {self.dtype}"
        )


def _core(packed: Tensor, bias: Tensor | None, n: int, k: int) -> Kernel:
    dtype = str(packed.dtype).removeprefix("torch.")
    return Kernel(array(packed), n, k, dtype, optional(bias))


def kernel(packed: Tensor, bias: Tensor | None, n: int, k: int) -> Call:
    """Build the linear layer over these tensors, which it keeps alive."""
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
