"""nn.Bilinear with int8 weights: `y[n] = x1^T W[n] x2 + b[n]`, the first product in integers.

P[n, j] = sum_i x1[i] W[n, i, j]     an int8 linear layer of N * K2 outputs, over rows of x1
y[n]    = sum_j P[n, j] x2[j] + b[n]     float32, j in order of the processor's vectors
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.kernels import packed_bytes, unpack
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.inputs import as_leaf, is_proxy
from octavo.torch.layers.linear import kernel, linear
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.rows import Call
from octavo.torch.memory import array, float32_copy
from octavo.torch.quantizer import Quantizer
from octavo.torch.weight_choice import HALVES

_AT_ONCE = 1 << 20  # floats of P that are held at one time: what fits a cache is not written out


@quantized(
    replaces=nn.Bilinear,
    kind=Kind.LINEAR,
    macs_axes=3,
    inputs=lambda module, is_deep: [(4, module.in1_features)],
    onnx=("linear",),
)
class QuantizedBilinear(QuantizedModule):
    """`y[n] = x1^T W[n] x2 + b[n]` for x1 [..., in1_features] and x2 [..., in2_features].

    Rows of x1 are quantized as those of a linear layer, and multiplied with the integers of W,
    which have one scale (and zero point) for each output n and each feature j of x2. Those products
    are float32; so is their sum over j with x2, which stays as it is, in the order
    that torch.sum adds in: for a single output of more than 32,000 features of x2 that follows the
    number of threads. Else a row's result does not depend on the other rows.

    Buffers: `packed` uint8 (the kernels' layout of [out_features * in2_features, in1_features]),
    `scale` float32 [out_features * in2_features], `zero_point` int32 of that size with `affine`
    weights, `bias` float32 [out_features]. `group` as of QuantizedLinear, over x1.
    """

    CONFIG = ("in1_features", "in2_features", "out_features", "has_bias", "affine", "group")

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        has_bias: bool = True,
        affine: bool = False,
        group: int = 0,
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features, self.has_bias = out_features, has_bias
        self.affine, self.group = affine, group
        n = out_features * in2_features
        self._hold(
            packed=self._blank(packed_bytes(n, in1_features), torch.uint8),
            scale=self._blank(n, torch.float32, 1),
            zero_point=self._blank(n, torch.int32) if affine else None,
            bias=self._blank(out_features, torch.float32) if has_bias else None,
        )

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        if choice.storage in HALVES:
            return f"Octavo has no {choice.storage} bilinear layer; its weights are int8"
        return ""

    @classmethod
    def try_choice(cls, choice: Any, weight: Any, name: str) -> None:
        choice.integers(weight.reshape(len(weight), -1), name)

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        held = quantizer.packed(choice, module.weight, name, _as_rows)
        with torch.device("meta"):
            made = cls(
                *(module.in1_features, module.in2_features, module.out_features),
                module.bias is not None,
                held["zero_point"] is not None,
                choice.group,
            )
        made._fill(**held, bias=float32_copy(module.bias))
        return made

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return the outputs [..., out_features] in the dtype of `input1`.

        Raises ValueError or TypeError, which names the argument, where shapes or dtypes do not fit.
        """
        if is_proxy(input1) or is_proxy(input2):
            return as_leaf(self, input1, input2)
        # Not cast under autocast, which leaves nn.Bilinear in the types that it is given.
        x1, x2 = input1, input2
        self._check(x1, x2)
        rows = x1.reshape(-1, self.in1_features), x2.reshape(-1, self.in2_features)
        count, width = rows[0].shape[0], self.out_features * self.in2_features
        if ops.direct(x1) and ops.direct(x2) and count * width > _AT_ONCE:
            step = max(1, _AT_ONCE // width)
            parts = zip(*(x.split(step) for x in rows), strict=True)
            y = torch.cat([self._outputs(*part) for part in parts])
        else:
            y = self._outputs(*rows)
        return y.reshape(*x1.shape[:-1], self.out_features).to(x1.dtype)

    def _check(self, x1: Tensor, x2: Tensor) -> None:
        for name, x, size in (("input1", x1, self.in1_features), ("input2", x2, self.in2_features)):
            if x.is_nested:
                raise TypeError(f"{name}: is a nested tensor; give padded rows")
            if x.dtype not in ops.CODES and x.dtype is not torch.float64:
                raise ops.allowed(x, name)
            if not x.dim() or x.shape[-1] != size:
                raise ValueError(f"{name}: needs shape [..., {size}], not {tuple(x.shape)}")
        if x2.shape[:-1] != x1.shape[:-1]:
            raise ValueError(
                f"input2: needs the axes of input1 but the last, {tuple(x1.shape[:-1])}, not "
                f"{tuple(x2.shape[:-1])}"
            )
        if x2.dtype is not x1.dtype:
            raise TypeError(f"input2: is {x2.dtype}; needs {x1.dtype}, as input1")

    def _outputs(self, x1: Tensor, x2: Tensor) -> Tensor:
        """float32 [rows, out_features] of x1 [rows, in1_features] and x2 [rows, in2_features]."""
        x1, x2 = x1.float(), x2.float()
        products = self._ready()(x1) if ops.direct(x1) else linear(x1, *self._arguments(), "none")
        products = products.reshape(-1, self.out_features, self.in2_features)
        y = (products * x2.unsqueeze(1)).sum(-1)
        return y if self.bias is None else y + self.bias

    def _arguments(self) -> tuple[Tensor, Tensor, Tensor | None, None, int, int, int]:
        """Return the arguments of the linear layer over x1."""
        n = self.out_features * self.in2_features
        return self.packed, self.scale, self.zero_point, None, n, self.in1_features, self.group

    def _kernel(self) -> Call:
        return kernel(*self._arguments(), "none")

    def integers(self) -> Tensor:
        """Return the weight's integers, int8 [out_features, in1_features, in2_features]."""
        n, i, j = self.out_features, self.in1_features, self.in2_features
        rows = torch.from_numpy(unpack(array(self.packed), n * j, i))
        return rows.reshape(n, j, i).transpose(1, 2).contiguous()

    @property
    def weight(self) -> Tensor:
        """The weight as float32 [out_features, in1_features, in2_features], computed when used."""
        shape = (self.out_features, self.in1_features, self.in2_features)
        return self._computed_weight(shape, self._dequantize)

    def _dequantize(self) -> Tensor:
        columns = (self.out_features, 1, self.in2_features)
        q = self.integers().to(torch.int32)
        if self.zero_point is not None:
            q = q - self.zero_point.reshape(columns)
        return q.to(torch.float32) * self.scale.reshape(columns)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.has_bias}, "
            f"int8{' affine' if self.affine else ''}"
            + (f", activation groups of {self.group}" if self.group else "")
        )


def _as_rows(weight: Tensor) -> Tensor:
    """Return a float weight [out, in1, in2] as rows [out * in2, in1]."""
    return weight.transpose(1, 2).flatten(0, 1)
