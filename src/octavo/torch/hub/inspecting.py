"""What a recipe would do with a checkpoint, by its config and its headers: no weight is read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

from octavo.recipe import Decision, Recipe
from octavo.recipe.held_bytes import Storage, held_bytes
from octavo.recipe.yaml_files import recipe_of
from octavo.results.inspection import Inspection
from octavo.torch.hub.checkpoint import Checkpoint
from octavo.torch.replace.inventory import ModuleLayer, own_bytes
from octavo.torch.replace.plan import Planner


def inspect(checkpoint: Checkpoint, recipe: str | Path | Recipe = "int8") -> Inspection:
    """List the layers, and what `recipe` would do with each.

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
    return Inspection(
        checkpoint.name,
        before,
        found.name,
        decisions,
        weight_bytes=own,
        bytes_after=max(before + _gained(layers.parts, decisions), 0),
    )


def _gained(parts: Sequence[ModuleLayer], decisions: Sequence[Decision]) -> int:
    """Bytes more than in float, mostly below 0.

    A weight is held once by the layers that quantize it, and in float where one does not.
    """
    float_still = {
        key
        for part, decision in zip(parts, decisions, strict=True)
        if decision.scheme.is_float
        for key, _ in part.held
    }
    counted = set[Hashable]()
    gained = 0
    for part, decision in zip(parts, decisions, strict=True):
        if decision.scheme.is_float or not own_bytes(part, counted):
            continue
        gained += held_bytes(decision.layer, decision.scheme.weight, Storage.PACKED)
        gone = {key: size for key, size in part.held if key not in float_still}
        gained -= sum(gone.values())
        float_still.update(gone)
    return gained
