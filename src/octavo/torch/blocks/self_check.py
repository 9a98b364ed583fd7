"""Whether a program computes what a block's own forward does, tried with made-up inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from octavo.torch.blocks.trace.sizes import Sizes

CLOSE = 0.02
"""Of the norm: a wrong formula is off by a tenth and more; an integer that is rounded the other
way, because sums of floats were added in another order, by some thousandths."""

Outputs = Callable[[tuple[Tensor, ...]], Sequence[Any]]
"""Takes a call's tensors; returns all that it makes, tensors and others, in order."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def agrees(own: Outputs, program: Outputs, sizes: Sizes, given: Sequence[Tensor]) -> bool:
    """Tell whether both compute the same for inputs of two sizes; `given` are a call's inputs."""
    flat = [n for t in given for n in t.shape]
    for seed, shapes in enumerate(sizes.examples(flat, 2)):
        draw = torch.Generator().manual_seed(seed)
        inputs = tuple(_like(t, s, draw) for t, s in zip(given, shapes, strict=True))
        try:
            wanted, found = own(inputs), program(inputs)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
            return False
        if len(wanted) != len(found):
            return False
        if not all(map(_close, wanted, found)):
            return False
    return True


def _close(wanted: Any, found: Any) -> bool:
    if not isinstance(wanted, Tensor):
        return type(wanted) is type(found) and bool(wanted == found)
    if not isinstance(found, Tensor) or found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if not wanted.is_floating_point():
        return bool(torch.equal(wanted, found))
    return bool((wanted - found).norm() <= CLOSE * wanted.norm())


def _like(given: Tensor, shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    """Make a tensor of this shape with values such as `given` may have."""
    where: Any = {"device": "cpu", "dtype": torch.float32}
    if given.dtype is torch.bool or (given.is_floating_point() and _is_mask(given)):
        seen = torch.rand(shape, generator=draw, **where) < 0.7
        if shape:
            seen[..., 0] = True
        if given.dtype is torch.bool:
            # What hides by True is False at the first key, or there were rows without any.
            hides = given.dim() and given.numel() and not given[..., 0].any()
            return ~seen if hides else seen
        least = torch.finfo(given.dtype).min
        return torch.zeros(shape, **where).masked_fill(~seen, least).to(given.dtype)
    if given.is_floating_point():
        return torch.randn(shape, generator=draw, **where).to(given.dtype)
    if given.numel() == 0 or not shape:
        return torch.zeros(shape, dtype=given.dtype, device="cpu")
    last = max(1, shape[-1])
    return torch.arange(last, dtype=given.dtype, device="cpu").expand(shape).contiguous()


def _is_mask(given: Tensor) -> bool:
    """Tell whether a float tensor is a mask to add: zeros, and what is far below."""
    return given.dim() == 4 and bool(((given == 0) | (given < -1e4)).all())
