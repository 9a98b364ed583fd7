"""Small models with blocks that run as one call, and what those are held against."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.torch import quantize_dynamic
from octavo.torch.blocks.calls import BLOCK
from octavo.torch.blocks.find import one_call_type
from octavo.torch.dynamic_type import has_dynamic_type, set_type, type_behind
from tests import models


class OwnForwards(TorchDispatchMode):
    """Sees every operator of PyTorch, as a profiler does: under it blocks run their own forward."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def bert(**options: Any) -> Any:
    """Two layers with weights large enough that every part of them shows."""
    return models.transformer("BertModel", initializer_range=0.3, **options)


def quantized_bert(recipe: str | None = None, **options: Any) -> Any:
    return quantize_dynamic(bert(**options), recipe=recipe)


def tokens(batch: int = 3, length: int = 9, padded: bool = False) -> dict[str, Tensor]:
    """Ids, and a mask that hides two tokens more of each sequence than of the one before it."""
    ids = models.tokens(batch, length, below=97)
    mask = torch.ones_like(ids)
    for i in range(1, batch if padded else 0):
        mask[i, length - 2 * i :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def blocks(of: nn.Module) -> list[nn.Module]:
    """Modules that may run as one call."""
    return [
        m
        for m in of.modules()
        if has_dynamic_type(m) and vars(type(m))["_made_by"][0] is one_call_type
    ]


def plans(block: nn.Module) -> list[Any]:
    """What a block has ready for calls of each form."""
    state = vars(block).get(BLOCK)
    return [] if state is None else [plan for found in state._plans.values() for plan in found]


def ran(of: nn.Module) -> int:
    """Blocks that have a plan."""
    return sum(bool(plans(block)) for block in blocks(of))


def apart(of: Any) -> Any:
    """A copy of the model whose blocks run their own forward."""
    of = copy.deepcopy(of)
    for block in blocks(of):
        set_type(block, type_behind(type(block)))
    return of


def own(block: Any, *given: Any, **named: Any) -> Any:
    """What the user's own class computes with the block's children."""
    return type_behind(type(block)).forward(block, *given, **named)  # type: ignore[attr-defined]


def near(found: Tensor, exact: Tensor, share: float = 0.02) -> None:
    assert found.shape == exact.shape
    assert (found - exact).norm() <= share * exact.norm()
