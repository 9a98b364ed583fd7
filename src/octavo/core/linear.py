"""Dynamically quantized linear layers: `y = activation(x @ w.T + bias) + residual`.

Rows of `x` become uint8 as they come, weights are int8 ahead of time, sums are exact:

    y[m, n] = scale_x[m] * scale_w[n] * sum_k (q[m, k] - zero_x[m]) (w[n, k] - zero_w[n]) + bias[n]

The bits are the same on every instruction set, for every number of threads, and whatever the other
rows are. A row that holds NaN or infinity gives a row of NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octavo import _native
from octavo.core.kernels.activation import Activation
from octavo.core.kernels.buffers import (
    array_of,
    interleave,
    new_like,
    output_apart,
    output_rows,
    overlap,
    residual_rows,
    rows_of,
)
from octavo.core.kernels.machine import checked_threads
from octavo.core.kernels.packing import (
    GROUP,
    Float32,
    PackedWeight,
    checked_group,
    expect_array,
)
from octavo.core.kernels.weight import quantize_packed
from octavo.core.qparams import Grid, QType

call_linear = _native.call_linear
"""`call_linear(module, args, kwargs)`: a PyTorch layer's outputs, or None where its own call has to
make them. For octavo.torch, which says with `use_torch` what to look at."""

use_torch = _native.use_torch


class LinearLayer:
    """A layer over weights [n, k], however these are stored, and its call.

    Nothing changes a layer once it is made, and any number of threads may call it at once.
    """

    __slots__ = ("_native", "activation", "bias", "k", "n", "run")

    n: int
    """Outputs."""
    k: int
    """Inputs."""
    run: Callable[..., None]
    """The layer over addresses, for front ends: no checks, nothing allocated, no Python in between.

    `run(x, rows, x_stride, out, out_stride, dtype=0, residual=0, residual_stride=0, threads=0)`:
    `x`, `out` and `residual` (0: none) are addresses of rows, strides are in elements from row to
    row, `dtype` is that of all three (0 float32, 1 float16, 2 bfloat16: `FloatType`), `threads` 0
    means `num_threads()`. The caller keeps the memory alive and `out` apart from `x`.
    """

    def __call__(self, x: Any, residual: Any = None, out: Any = None, threads: int = 0) -> Any:
        """Compute the outputs [..., N] for `x` [..., K], in its dtype and kind of array.

        `x` is float32, float16 or bfloat16; `residual` [..., N] of its dtype is added last. `out`
        is written and returned where it is given: it may be `residual`, but has nothing in common
        with `x`. `threads` 0 means `num_threads()`. Raises TypeError or ValueError, which name the
        argument, before anything is written.
        """
        checked_threads(threads)
        rows = rows_of(x, "x", self.k)
        shape = (*rows.shape[:-1], self.n)
        if out is None:
            out = new_like(x, shape, rows.dtype)
        to = output_apart(out, "out", shape, rows)
        add = residual_rows(residual, shape, to)
        self.run(
            rows.address,
            rows.rows,
            rows.stride,
            to.address,
            to.stride,
            rows.dtype,
            add.address,
            add.stride,
            threads,
        )
        return out


class Linear(LinearLayer):
    """A linear layer: packed weights [n, k], bias float32 [n] or None, activation.

    Made by `from_float` or `from_packed`. A front end whose vectors change has it `live`: scales
    and bias are then read where they lie in each call, for numbers of outputs that `reads_live`.
    """

    __slots__ = ("weight",)

    def __init__(
        self,
        weight: PackedWeight,
        bias: Float32 | None = None,
        activation: str | Activation = "none",
        *,
        live: bool = False,
    ) -> None:
        if bias is not None:
            expect_array(bias, "bias", np.float32, (weight.n,))
        self.weight, self.n, self.k = weight, weight.n, weight.k
        self.bias = bias
        self.activation = Activation.parse(activation)
        self._native = _native.Linear(
            weight.packed,
            weight.n,
            weight.k,
            weight.group,
            weight.scale,
            weight.zero_point,
            bias,
            self.activation.code,
            live,
            weight.format.value,
        )
        self.run = self._native.run

    @staticmethod
    def reads_live(n: int) -> bool:
        """Tell whether a `live` layer of n outputs reads its scales and bias where they lie."""
        return _native.Linear.reads_live(n)

    @property
    def native(self) -> Any:
        """The layer in the C++ core."""
        return self._native

    @classmethod
    def from_float(
        cls,
        w: Any,
        bias: Any = None,
        group: int = 0,
        activation: str | Activation = "none",
        symmetric: bool = True,
        per_channel: bool = True,
    ) -> Linear:
        """Quantizes and packs float weights `w` [N, K], with `bias` [N] or None.

        `group` 0 quantizes an input row with one scale, 128 with one each 128 inputs. `symmetric`
        keeps the weights' zero points at 0; `per_channel=False` takes one scale for all of `w`.
        Raises TypeError for dtypes other than float32, float16 and bfloat16, ValueError for shapes,
        NaN and infinity in `w`, other groups and unknown activations.
        """
        checked_group(group)
        values = array_of(w, "w", np.float32)
        if values.ndim != 2:
            raise ValueError(f"w: needs shape [N, K], not {values.shape}")
        grid = Grid.of(QType.INT8, symmetric=symmetric)
        try:
            found = quantize_packed(values, grid, 0 if per_channel else None)
        except ValueError as error:
            raise ValueError(f"w: {error}") from None
        n, k = values.shape
        scale = np.array(np.broadcast_to(found.qparams.scale, n))
        zero = None if symmetric else np.array(np.broadcast_to(found.qparams.zero_point, n))
        weight = PackedWeight(found.q, n, k, scale, zero, group)
        return cls.from_packed(weight, bias, activation)

    @classmethod
    def from_packed(
        cls, weight: PackedWeight, bias: Any = None, activation: str | Activation = "none"
    ) -> Linear:
        """Build a layer over weights that are packed already; they are referred to, not copied.

        Raises TypeError or ValueError where `bias` is not [n], or `activation` unknown.
        """
        values = None if bias is None else array_of(bias, "bias", np.float32, (weight.n,))
        return cls(weight, values, activation)

    def __repr__(self) -> str:
        kind = "int8" if self.weight.zero_point is None else "int8 affine"
        return (
            f"Linear({self.k} -> {self.n}, {kind}, group={self.weight.group}, "
            f"bias={self.bias is not None}, activation={self.activation.value})"
        )

    def quantized(
        self,
        q: Any,
        scale: Any,
        zero_point: Any,
        residual: Any = None,
        out: Any = None,
        threads: int = 0,
    ) -> Any:
        """Compute the outputs for inputs that are integers already, as `quantize_rows` makes them.

        `q` uint8 [..., K], `scale` float32 [..., G], `zero_point` int32 [..., G], each 0..255; G is
        1, or `max(1, ceil(K / 128))` for a layer with groups. Outputs are float32, or of `out`'s
        dtype (then `residual` too). Raises TypeError or ValueError, which name the argument.
        """
        checked_threads(threads)
        integers = array_of(q, "q", np.uint8)
        if integers.ndim == 0 or integers.shape[-1] != self.k:
            raise ValueError(f"q: needs shape [..., {self.k}], not {integers.shape}")
        lead = integers.shape[:-1]
        groups = max(1, -(-self.k // GROUP)) if self.weight.group else 1
        scales = array_of(scale, "scale", np.float32, (*lead, groups))
        zeros = array_of(zero_point, "zero_point", np.int32, (*lead, groups))
        if zeros.size and (zeros.min() < 0 or zeros.max() > 255):
            raise ValueError("zero_point: holds values outside 0..255")
        shape = (*lead, self.n)
        if out is None:
            out = np.empty(shape, np.float32)
        to = output_rows(out, "out", shape, None)
        add = residual_rows(residual, shape, to)
        self._native.run_quantized(
            integers.ctypes.data,
            to.rows,
            self.k,
            scales.ctypes.data,
            zeros.ctypes.data,
            to.address,
            to.dtype,
            to.stride,
            add.address,
            add.stride,
            threads,
        )
        return out


def linear_together(
    layers: Sequence[Linear], x: Any, outs: Sequence[Any] | None = None, threads: int = 0
) -> list[Any]:
    """Return `[layer(x) for layer in layers]`, with `x` [..., K] quantized only once.

    The results have the same bits. This is for projections of one input (query, key and value). All
    layers take K inputs and the same `group`. `outs` are written and returned where they are given;
    no two have memory in common, nor one with `x`. Raises TypeError or ValueError, before anything
    is written.
    """
    checked_threads(threads)
    if not layers:
        raise ValueError("layers: is empty")
    k, group = layers[0].k, layers[0].weight.group
    if any(layer.k != k or layer.weight.group != group for layer in layers):
        found = ", ".join(f"(k={layer.k}, group={layer.weight.group})" for layer in layers)
        raise ValueError(f"layers: need the same k and group, not {found}")
    rows = rows_of(x, "x", k)
    shapes = [(*rows.shape[:-1], layer.n) for layer in layers]
    if outs is None:
        outs = [new_like(x, shape, rows.dtype) for shape in shapes]
    if len(outs) != len(layers):
        raise ValueError(f"outs: {len(outs)} for {len(layers)} layers")
    to = [output_apart(outs[i], f"outs[{i}]", shape, rows) for i, shape in enumerate(shapes)]
    for j, later in enumerate(to):
        for i, earlier in enumerate(to[:j]):
            if overlap(earlier, later) and not interleave(earlier, later):
                raise ValueError(f"outs[{j}]: shares memory with outs[{i}]")
    _native.run_together(
        [layer._native for layer in layers],
        rows.address,
        rows.dtype,
        rows.rows,
        rows.stride,
        [t.address for t in to],
        rows.dtype,
        [t.stride for t in to],
        threads,
    )
    return list(outs)


def run_together(
    layers: Sequence[Linear],
    x: int,
    rows: int,
    x_stride: int,
    outs: Sequence[int],
    out_strides: Sequence[int],
    dtype: int,
    threads: int,
) -> None:
    """Run `linear_together` over addresses, for front ends: arguments as those of `Linear.run`.

    Nothing is checked; all layers have the same k and group, and no `out` shares memory with `x`.
    """
    native = [layer._native for layer in layers]
    _native.run_together(
        native, x, dtype, rows, x_stride, list(outs), dtype, list(out_strides), threads
    )
