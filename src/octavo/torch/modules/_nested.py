"""Nested tensors through layers that see one row at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def refuse_nested(x: Tensor, instead: str) -> None:
    """Raises TypeError for a nested tensor, which torch's layer does not take either."""
    if x.is_nested:
        raise TypeError(f"input: is a nested tensor; give {instead}")


def of_each(layer: Callable[[Tensor], Tensor], nested: Any) -> Tensor:
    """A nested tensor of what `layer` makes of the tensors in `nested`, in its layout.

    Jagged tensors keep their offsets, so that the result goes with `nested` in further operations.
    """
    if nested.layout is torch.jagged:
        made = layer(nested.values())
        found: Tensor = torch.nested.nested_tensor_from_jagged(
            made, nested.offsets(), nested.lengths(), nested._ragged_idx
        )
        return found
    return torch.nested.as_nested_tensor([layer(part) for part in nested.unbind()])
