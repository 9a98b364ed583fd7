"""nn.Conv1d and nn.Conv2d with int8 filters: images become uint8 as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from octavo.core.convolution import (
    Conv1d,
    Conv2d,
    PackedFilters,
    Window,
    filter_bytes,
    pack_filters,
    unpack_filters,
)
from octavo.torch import ops
from octavo.torch.choice import DEFAULT, HALVES, Choice
from octavo.torch.modules._autocast import autocasted
from octavo.torch.modules._base import QuantizedModule, array, optional, tensor_of
from octavo.torch.modules._fx import as_leaf, is_proxy
from octavo.torch.modules._nested import refuse_nested
from octavo.torch.quantizer import Buffers, Quantizer

Call = Callable[[Tensor], Tensor]
_KERNELS: dict[int, Any] = {1: Conv1d, 2: Conv2d}


class _QuantizedConv(QuantizedModule):
    """What QuantizedConv1d and QuantizedConv2d share.

    Buffers: `packed` uint8 (the kernels' layout), `scale` float32 [out_channels], `bias` float32
    [out_channels]. Attributes are those of torch's layer.
    """

    SCRIPTED = True
    CONFIG = (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
        *("has_bias", "padding_mode"),
    )
    AXES: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: str | Sequence[int],
        dilation: Sequence[int],
        groups: int = 1,
        has_bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = tuple(kernel_size), tuple(stride)
        self.padding = padding if isinstance(padding, str) else tuple(padding)
        self.dilation, self.has_bias = tuple(dilation), has_bias
        self.padding_mode = padding_mode
        before, after = _pads(self.padding, self.kernel_size, self.dilation)
        ends = zip(reversed(before), reversed(after), strict=True)
        self._around = [n for pair in ends for n in pair]  # as functional.pad has it
        self._pads = (*before, *after) if padding_mode == "zeros" else (0,) * 2 * len(before)
        self._shape = (out_channels, in_channels // groups, *self.kernel_size)
        self._hold(
            packed=torch.zeros(filter_bytes(self._shape, groups), dtype=torch.uint8),
            scale=torch.ones(out_channels),
            bias=torch.zeros(out_channels) if has_bias else None,
        )

    @classmethod
    def adapt(cls, choice: Any, *, symmetric: bool = False) -> tuple[Any, str]:
        return choice.adapted(symmetric=True)  # type: ignore[no-any-return]

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        if choice.storage in HALVES:
            return f"Octavo has no {choice.storage} convolution; its filters are int8"
        if choice.affine:
            return (
                "the qconfig asks for affine weights, and filters have no zero points: use qscheme "
                "per_tensor_symmetric or per_channel_symmetric"
            )
        return ""

    @classmethod
    def from_float(
        cls,
        module: nn.Module,
        choice: Choice = DEFAULT,
        quantizer: Quantizer | None = None,
        name: str = "",
    ) -> _QuantizedConv:
        """From torch's layer of the same name, with `weight` [out, in / groups, *kernel]."""
        quantizer, weight = quantizer or Quantizer(), module.weight

        def make() -> Buffers:
            found = quantizer.integers(choice, weight, name, symmetric=True)
            packed = pack_filters(found.q, module.groups)
            return {"packed": tensor_of(packed), "scale": tensor_of(found.scale)}

        held = quantizer.once(choice, weight, name, f"filters of {module.groups} groups", make)
        bias = module.bias
        own = {key: getattr(module, key) for key in cls.CONFIG if key != "has_bias"}
        with torch.device("meta"):
            made = cls(**own, has_bias=bias is not None)
        bias = None if bias is None else bias.detach().to("cpu", torch.float32, copy=True)
        made._fill(**held, bias=bias)
        return made

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        """The outputs [batch, out_channels, ...] of [batch, in_channels, ...], or without batch."""
        if not torch.jit.is_scripting():
            return self._run(input)
        x = input
        if self.padding_mode != "zeros":
            x = functional.pad(x, self._around, mode=self.padding_mode)
        return torch.ops.octavo.conv(
            x,
            self.packed,
            self.scale,
            self.bias,
            self._shape,
            self.stride,
            self._pads,
            self.dilation,
            self.groups,
        )

    def _run(self, x: Tensor) -> Tensor:
        if is_proxy(x):
            return as_leaf(self, x)
        if self.padding_mode != "zeros":
            x = functional.pad(x, self._around, mode=self.padding_mode)
        x = autocasted(x)
        if ops.direct(x):
            return self._ready()(x)
        refuse_nested(x, "images of one size, or one after the other")
        return conv(x, self.packed, self.scale, self.bias, *self._how())

    def _how(self) -> tuple[Any, ...]:
        """What the operator needs to know besides tensors."""
        return self._shape, self.stride, self._pads, self.dilation, self.groups

    def _kernel(self) -> Call:
        return kernel(self.packed, self.scale, self.bias, *self._how())

    def integers(self) -> Tensor:
        """The filters' integers, int8 [out_channels, in_channels / groups, *kernel_size]."""
        return torch.from_numpy(unpack_filters(array(self.packed), self._shape, self.groups))

    @property
    def weight(self) -> Tensor:
        """The filters as float32, computed when they are used."""
        return self._computed_weight(self._shape, self._dequantize)

    def _dequantize(self) -> Tensor:
        q = self.integers().to(torch.float32)
        return q * self.scale.reshape(-1, *[1] * (self.AXES + 1))

    def extra_repr(self) -> str:
        """What `print(model)` shows of the layer."""
        said = [f"{self.in_channels}, {self.out_channels}"]
        said += [f"{key}={getattr(self, key)!r}" for key in self.CONFIG[2:7]]
        said.append(f"bias={self.has_bias}")
        if self.padding_mode != "zeros":
            said.append(f"padding_mode={self.padding_mode}")
        return ", ".join((*said, "int8"))


class QuantizedConv1d(_QuantizedConv):
    """nn.Conv1d: [N, C, L] or [C, L] of any float dtype in, the same dtype out."""

    AXES = 1


class QuantizedConv2d(_QuantizedConv):
    """nn.Conv2d: [N, C, H, W] or [C, H, W] of any float dtype in, the same dtype out."""

    AXES = 2


def _pads(
    padding: str | tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each axis; of an odd number the larger part comes after."""
    if not isinstance(padding, str):
        return padding, padding
    if padding == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    both = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple(n // 2 for n in both), tuple(n - n // 2 for n in both)


def kernel(
    packed: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    shape: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Call:
    """The layer over these tensors, which it keeps alive."""
    axes = len(shape) - 2
    filters = PackedFilters(array(packed), tuple(shape), groups, array(scale))
    window = Window.of(axes, stride, pads, dilation)
    return caller(_KERNELS[axes].from_packed(filters, window, optional(bias)), axes)


def caller(layer: Any, axes: int) -> Call:
    """From images in tensors to a kernel over addresses."""
    codes, threads, run = ops.CODES, torch.get_num_threads, layer.run
    channels = layer.in_channels

    def call(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            if x.dtype not in codes and x.dtype is not torch.float64:
                raise ops.allowed(x)
            return call(x.float()).to(x.dtype)
        if x.dim() == axes + 1:
            return call(x.unsqueeze(0)).squeeze(0)
        if x.dim() != axes + 2 or x.shape[1] != channels:
            raise ValueError(_needs(x, channels, axes))
        out = torch.empty(layer.output_shape(tuple(x.shape)), dtype=torch.float32)
        images = x.contiguous()
        h, w = (1, x.shape[2]) if axes == 1 else x.shape[2:]
        run(images.data_ptr(), x.shape[0], h, w, out.data_ptr(), threads())
        return out if images is x else _in_format_of(x, out)

    return call


def _in_format_of(x: Tensor, out: Tensor) -> Tensor:
    """`out` in memory format channels_last where x is, as torch's convolutions keep it."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not last or x.is_contiguous():
        return out
    return out.contiguous(memory_format=torch.channels_last)


def _needs(x: Tensor, channels: int, axes: int) -> str:
    sizes = f"{channels}, " + ("L" if axes == 1 else "H, W")
    return f"input: needs shape [N, {sizes}] or [{sizes}], not {tuple(x.shape)}"


_bound = ops.Bound()


def _run(x: Tensor, packed: Tensor, scale: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    key = (scale, bias, *(tuple(h) if isinstance(h, list) else h for h in how))
    return _bound.get(packed, key, lambda: kernel(packed, scale, bias, *how))(x)


def _fake(
    x: Tensor,
    packed: Tensor,
    scale: Tensor,
    bias: Any,
    shape: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    axes, channels = len(shape) - 2, shape[1] * groups
    lead = x.dim() - axes - 1
    torch._check(lead in (0, 1) and x.shape[lead] == channels, lambda: _needs(x, channels, axes))
    sizes = [
        (x.shape[lead + 1 + i] + pads[i] + pads[axes + i] - dilation[i] * (shape[2 + i] - 1) - 1)
        // stride[i]
        + 1
        for i in range(axes)
    ]
    return _in_format_of(x, x.new_empty((*x.shape[:lead], shape[0], *sizes)))


conv = ops.define(
    "conv",
    "(Tensor x, Tensor packed, Tensor scale, Tensor? bias, int[] shape, int[] stride, int[] pads, "
    "int[] dilation, int groups) -> Tensor",
    _run,
    _fake,
)
