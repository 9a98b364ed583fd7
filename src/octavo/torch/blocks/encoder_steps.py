"""What a layer of an encoder does, as steps over memory: one kernel each.

    h = norm(x + out(attention(q(x), k(x), v(x))))
    y = norm(h + down(activation(up(h))))

A layer of another order (a norm before each block, rotary positions) is another tuple of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from octavo.core.attention import NO_STRIDES, run_attention
from octavo.core.layer_norm import run_layer_norm
from octavo.core.linear import run_together
from octavo.torch.memory import LARGE, in_large_pages


class Chained(Protocol):
    """The layer whose steps these are, and its parts by name."""

    @property
    def parts(self) -> Any:
        """A `LayerParts`."""

    @property
    def activation(self) -> str:
        """The kernels' name of it."""

    @property
    def heads(self) -> int:
        """Of the attention."""

    @property
    def parameters(self) -> Any:
        """Of the norms, weight and bias of each: the last item of each entry is an address."""


class Frame:
    """One call: its sizes, and where each tensor lies (`at`, by name).

    `x` is the input [batch, length, width], `y` the output. `q`, `k`, `v` and `attended` are rows
    of the attention's own width; `h` later lies in their place where it is as wide, and `wide`
    behind it.
    """

    __slots__ = ("at", "batch", "length", "mask", "rows", "threads", "work", "x", "y")

    def __init__(self, layer: Chained, x: Tensor, mask: Tensor | None) -> None:
        self.x, self.mask = x.contiguous(), mask
        self.batch, self.length, width = x.shape
        self.rows = rows = self.batch * self.length
        self.threads = torch.get_num_threads()
        inner, wide = layer.parts.out.in_features, layer.parts.up.out_features
        self.work = work = x.new_empty(rows * max(4 * inner, width + wide))
        self.y = y = x.new_empty(x.shape)
        if rows * wide >= LARGE // 4:
            in_large_pages(work.data_ptr(), work.nbytes)
            in_large_pages(y.data_ptr(), y.nbytes)
        q, result = work.data_ptr(), y.data_ptr()
        part = rows * inner * x.element_size()
        in_place = width == inner
        self.at = {
            "x": self.x.data_ptr(),
            "q": q,
            "k": q + part,
            "v": q + 2 * part,
            "attended": q + 3 * part,
            "h": q if in_place else result,
            "wide": q + rows * width * x.element_size() if in_place else q,
            "y": result,
        }


Step = Callable[[Chained, Frame], None]


def project_qkv(layer: Chained, frame: Frame) -> None:
    """x -> q, k, v; x is quantized once."""
    qkv, at = layer.parts.qkv, frame.at
    # What `_ready` returns keeps the memory of the weights, whoever replaces them.
    ready = [projection._ready("none") for projection in qkv]
    first = qkv[0]
    run_together(
        [made.core for made in ready],
        at["x"],
        frame.rows,
        first.in_features,
        (at["q"], at["k"], at["v"]),
        (first.out_features,) * 3,
        0,
        frame.threads,
    )


def attend(layer: Chained, frame: Frame) -> None:
    """q, k, v -> attended."""
    at, mask, length, inner = frame.at, frame.mask, frame.length, layer.parts.out.in_features
    size = inner // layer.heads
    run_attention(
        (at["q"], at["k"], at["v"], at["attended"]),
        (frame.batch, layer.heads, layer.heads, length, length, size, size),
        (length * inner, inner, size) * 4,
        layer.parts.scale,
        *(0, NO_STRIDES),
        *((0, NO_STRIDES) if mask is None else (mask.data_ptr(), _repeated(mask))),
        *(False, 0, 0, 0.0),
        frame.threads,
    )


def _repeated(mask: Tensor) -> tuple[int, ...]:
    """Strides of a mask, 0 along axes of one element."""
    return tuple(0 if n == 1 else s for n, s in zip(mask.shape, mask.stride(), strict=True))


@dataclass(frozen=True)
class Multiply:
    """`to = product(source) + residual`, or `activation(product(source))`, by a linear layer."""

    part: str
    source: str
    to: str
    residual: str = ""
    activated: bool = False

    def __call__(self, layer: Chained, frame: Frame) -> None:
        """Runs it."""
        linear, at = getattr(layer.parts, self.part), frame.at
        k, n = linear.in_features, linear.out_features
        added = (at[self.residual], n) if self.residual else (0, 0)
        ready = linear._ready(layer.activation if self.activated else "none")
        ready.core.run(at[self.source], frame.rows, k, at[self.to], n, 0, *added, frame.threads)


@dataclass(frozen=True)
class Normalize:
    """`to = norm(source)`, by the layer's norm of that index."""

    norm: int
    source: str
    to: str

    def __call__(self, layer: Chained, frame: Frame) -> None:
        """Runs it."""
        weight, bias = (held[3] for held in layer.parameters[2 * self.norm : 2 * self.norm + 2])
        width, eps = layer.parts.out.out_features, layer.parts.norms[self.norm].eps
        x, y = frame.at[self.source], frame.at[self.to]
        run_layer_norm(x, frame.rows, width, width, weight, bias, eps, y, width, frame.threads)


POST_NORM: tuple[Step, ...] = (
    project_qkv,
    attend,
    Multiply("out", "attended", "h", residual="x"),
    Normalize(0, "h", "h"),
    Multiply("up", "h", "wide", activated=True),
    Multiply("down", "wide", "y", residual="h"),
    Normalize(1, "y", "y"),
)
