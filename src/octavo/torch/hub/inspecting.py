"""What a recipe would do with a checkpoint, by its config and its headers: no weight is read."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from pathlib import Path

from octavo.core.kernels import packed_bytes
from octavo.core.layer import Kind
from octavo.core.qparams import QType
from octavo.recipe import Decision, Inspection, Recipe
from octavo.recipe.yaml_files import recipe_of
from octavo.torch.hub.checkpoint import Checkpoint
from octavo.torch.inventory import own_bytes
from octavo.torch.plan import Planner

_SCALE = 4  # bytes


def inspect(checkpoint: Checkpoint, recipe: str | Path | Recipe = "int8") -> Inspection:
    """The layers, and what `recipe` would do with each.

    The module is built on device meta. `model_bytes` are those of the tensors in the files,
    `bytes_after` about what the quantized ones would take. Raises ModelError, RecipeError and
    AlreadyQuantizedError as quantizing would.
    """
    checkpoint.refuse_quantized()
    found = recipe_of(recipe)
    before = checkpoint.bytes
    layers, counted = Planner(checkpoint.skeleton()), set[Hashable]()
    decisions = tuple(layers.decisions(found))
    own = tuple(own_bytes(part, counted) for part in layers.parts)
    saved = sum(
        size - _bytes_after(decision)
        for decision, size in zip(decisions, own, strict=True)
        if size and not decision.scheme.is_float
    )
    return Inspection(
        checkpoint.name,
        before,
        found.name,
        decisions,
        weight_bytes=own,
        bytes_after=max(before - saved, 0),
    )


def _bytes_after(decision: Decision) -> int:
    """About what the layer's weights take as the scheme holds them: packed, with their scales."""
    weight = decision.scheme.weight
    total = 0
    for _, shape in decision.layer.weights:
        rows, inputs = shape[0], prod(shape[1:])
        if weight is not None and weight.qtype is QType.FLOAT16:
            total += 2 * rows * inputs
        elif decision.layer.kind is Kind.EMBEDDING:
            total += rows * (inputs + 2 * _SCALE)
        else:
            total += packed_bytes(rows, inputs) + rows * _SCALE
    return total
