"""What a recipe would do with a checkpoint, by its config and its headers: no weight is read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from pathlib import Path

from octavo.core.kernels import packed_bytes
from octavo.core.layer import Kind
from octavo.core.qparams import QType
from octavo.recipe import Decision, Inspection, Recipe
from octavo.recipe.yaml_files import recipe_of
from octavo.torch.hub.checkpoint import Checkpoint
from octavo.torch.inventory import ModuleLayer, own_bytes
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
        gained += _bytes_after(decision)
        gone = {key: size for key, size in part.held if key not in float_still}
        gained -= sum(gone.values())
        float_still.update(gone)
    return gained


def _bytes_after(decision: Decision) -> int:
    """About what the layer's weights take as the scheme holds them: packed, with their scales."""
    weight, kind = decision.scheme.weight, decision.layer.kind
    total = 0
    for _, shape in decision.layer.weights:
        rows = shape[0] if kind is Kind.CONV else prod(shape[:-1])
        inputs = prod(shape) // max(rows, 1)
        if weight is not None and weight.qtype is QType.FLOAT16:
            total += 2 * rows * inputs
        elif kind is Kind.EMBEDDING:
            total += rows * (inputs + 2 * _SCALE)  # and a zero point
        else:
            total += packed_bytes(rows, inputs) + rows * _SCALE
    return total
