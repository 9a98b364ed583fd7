"""The masks of nn.MultiheadAttention as one addend for the scores of all heads."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def merged_mask(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    sizes: tuple[int, int, int, int],
    dtype: torch.dtype,
    appended: int,
) -> Tensor | None:
    """Merge both masks into one of `dtype` that broadcasts to the scores; None without a mask.

    The scores are [batch, heads, L, S + appended], `sizes` are (batch, heads, L, S). `attn_mask` is
    [L, S] or [batch * heads, L, S], `key_padding_mask` [batch, S]; True of a bool mask is minus
    infinity, a float mask is added as it is. The `appended` keys are never masked.
    """
    batch, heads, length, keys = sizes
    found = None
    if attn_mask is not None:
        added = additive(attn_mask, "attn_mask", dtype)
        allowed = {2: (length, keys), 3: (batch * heads, length, keys)}
        if added.shape != allowed.get(added.dim()):
            raise ValueError(
                f"attn_mask: needs shape {allowed[2]} or {allowed[3]}, not {tuple(added.shape)}"
            )
        found = added.view(-1 if added.dim() == 2 else batch, *_heads(added, heads), length, keys)
    if key_padding_mask is not None:
        padding = additive(key_padding_mask, "key_padding_mask", dtype)
        if padding.shape != (batch, keys):
            raise ValueError(
                f"key_padding_mask: needs shape {(batch, keys)}, not {tuple(padding.shape)}"
            )
        padding = padding.view(batch, 1, 1, keys)
        found = padding if found is None else found + padding
    return functional.pad(found, (0, appended)) if found is not None and appended else found


def _heads(mask: Tensor, heads: int) -> tuple[int]:
    return (1,) if mask.dim() == 2 else (heads,)


def additive(mask: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """Return the mask as `dtype` to add; raise TypeError if it is neither bool nor floating."""
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    if not mask.is_floating_point():
        raise TypeError(f"{name}: needs bool or a floating dtype, not {mask.dtype}")
    return mask.to(dtype)
