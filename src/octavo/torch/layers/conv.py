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
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.inputs import as_leaf, autocasted, is_proxy, refuse_nested
from octavo.torch.layers.registry import Shapes, quantized
from octavo.torch.memory import array, float32_copy, optional, tensor_of
from octavo.torch.quantizer import Buffers, Quantizer

Call = Callable[[Tensor], Tensor]
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")
_KERNELS: dict[int, Any] = {1: Conv1d, 2: Conv2d}


class _QuantizedConv(QuantizedModule):
    """What QuantizedConv1d and QuantizedConv2d share.

    Buffers: `packed` uint8 (the kernels' layout), `scale` float32 [out_channels], `bias` float32
    [out_channels]. Attributes are those of torch's layer.
    """

    SCRIPTED = True
    SYMMETRIC = True
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
        Window.of(self.AXES, self.stride, (*before, *after), self.dilation)  # raises ValueError
        ends = zip(reversed(before), reversed(after), strict=True)
        self._around = [n for pair in ends for n in pair]  # as functional.pad has it
        self._pads = (*before, *after) if padding_mode == "zeros" else (0,) * 2 * len(before)
        self._shape = (out_channels, in_channels // groups, *self.kernel_size)
        if len(self._shape) != self.AXES + 2 or padding_mode not in _PADDING_MODES:
            raise ValueError(f"kernel_size: {kernel_size}; padding_mode: {padding_mode!r}")
        self._hold(
            packed=torch.zeros(filter_bytes(self._shape, groups), dtype=torch.uint8),
            scale=torch.ones(out_channels),
            bias=torch.zeros(out_channels) if has_bias else None,
        )

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        return cls._refuses_but_int8(choice, "{} convolution; its filters are", "filters")

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        weight = module.weight

        def make() -> Buffers:
            found = quantizer.integers(choice, weight, name, symmetric=True)
            packed = pack_filters(found.q, module.groups)
            return {"packed": tensor_of(packed), "scale": tensor_of(found.scale)}

        held = quantizer.once(choice, weight, name, f"filters of {module.groups} groups", make)
        own = {key: getattr(module, key) for key in cls.CONFIG if key != "has_bias"}
        with torch.device("meta"):
            made = cls(**own, has_bias=module.bias is not None)
        made._fill(**held, bias=float32_copy(module.bias))
        return made

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        """Convolve [batch, in_channels, ...] to [batch, out_channels, ...], or without batch."""
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
        """Return the operator's arguments besides tensors."""
        return self._shape, self.stride, self._pads, self.dilation, self.groups

    def _kernel(self) -> Call:
        return kernel(self.packed, self.scale, self.bias, *self._how())

    def integers(self) -> Tensor:
        """Return the filters' integers, int8 [out_channels, in_channels / groups, *kernel_size]."""
        return torch.from_numpy(unpack_filters(array(self.packed), self._shape, self.groups))

    @property
    def weight(self) -> Tensor:
        """The filters as float32, computed when they are used."""
        return self._computed_weight(self._shape, self._dequantize)

    def _dequantize(self) -> Tensor:
        q = self.integers().to(torch.float32)
        return q * self.scale.reshape(-1, *[1] * (self.AXES + 1))

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        said = [f"{self.in_channels}, {self.out_channels}"]
        said += [f"{key}={getattr(self, key)!r}" for key in self.CONFIG[2:7]]
        said.append(f"bias={self.has_bias}")
        if self.padding_mode != "zeros":
            said.append(f"padding_mode={self.padding_mode}")
        return ", ".join((*said, "int8"))


_PIXELS = (32, 28, 64, 96, 128, 224, 256)
_PIXELS_OF_DEEP = (224, 256, 64, 32, 128, 96, 28)
_LENGTHS = (16, 64, 256, 1024, 16000)
_LENGTHS_OF_SOUND = (16000, 1024, 48000, 256, 64)


def _sequences(module: Any, is_deep: bool) -> Shapes:
    if is_deep and module.in_channels == 1:  # some models of sound add the channel themselves
        return [shape for n in _LENGTHS_OF_SOUND for shape in ((2, 1, n), (2, n))]
    return [(4, module.in_channels, length) for length in _LENGTHS]


def _images(module: Any, is_deep: bool) -> Shapes:
    items, pixels = (2, _PIXELS_OF_DEEP) if is_deep else (4, _PIXELS)
    return [(items, module.in_channels, size, size) for size in pixels]


@quantized(replaces=nn.Conv1d, kind=Kind.CONV, inputs=_sequences, onnx=("conv",))
class QuantizedConv1d(_QuantizedConv):
    """nn.Conv1d: [N, C, L] or [C, L] of any float dtype in, the same dtype out."""

    AXES = 1


@quantized(replaces=nn.Conv2d, kind=Kind.CONV, inputs=_images, onnx=("conv",))
class QuantizedConv2d(_QuantizedConv):
    """nn.Conv2d: [N, C, H, W] or [C, H, W] of any float dtype in, the same dtype out."""

    AXES = 2


def _pads(
    padding: str | tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each axis; of an odd sum the larger part comes after."""
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
    """Build the convolution over these tensors, which it keeps alive."""
    axes = len(shape) - 2
    filters = PackedFilters(array(packed), tuple(shape), groups, array(scale))
    window = Window.of(axes, stride, pads, dilation)
    return caller(_KERNELS[axes].from_packed(filters, window, optional(bias)), axes)


def caller(layer: Any, axes: int) -> Call:
    """Build the function that hands images in tensors to a kernel over addresses."""
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
    """Return `out` in memory format channels_last where x is, as torch's convolutions keep it."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not last or x.is_contiguous():
        return out
    return out.contiguous(memory_format=torch.channels_last)


def _needs(x: Tensor, channels: int, axes: int) -> str:
    sizes = f"{channels}, " + ("L" if axes == 1 else "H, W")
    return f"input: needs shape [N, {sizes}] or [{sizes}], not {tuple(x.shape)}"


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
    ops.over_weights(kernel),
    _fake,
)
