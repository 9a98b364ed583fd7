"""Samples of a model's inputs: what a call of `quantize_dynamic` does with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from octavo.errors import InputDataError
from octavo.recipe import Kind, Recipe
from octavo.torch.convert import Converter
from octavo.torch.input_statistics import InputStatistics
from octavo.torch.inventory import ModuleLayer
from octavo.torch.sensitivities import sensitivities


def measured_mix(
    model: nn.Module,
    parts: Sequence[ModuleLayer],
    recipe: Recipe,
    inputs: Iterable[Any] | None,
) -> tuple[Recipe, list[str]]:
    """`recipe`, whose mix knows what each layer loses, and a note; of another recipe itself."""
    mix = recipe.mix
    if mix is None or mix.sensitivities:
        return recipe, []
    try:
        found = sensitivities(model, parts, inputs)
    except InputDataError as error:
        return recipe, [f"bits were given to layers by their sizes: {error}"]
    given = "made-up inputs" if inputs is None else "the inputs"
    note = f"bits were given to layers by what outputs for {given} lose"
    return replace(recipe, mix=replace(mix, sensitivities=found)), [note]


def use_samples(
    model: nn.Module,
    parts: Collection[ModuleLayer],
    converter: Converter,
    inputs: Iterable[Any] | None,
    error_feedback: bool,
) -> list[str]:
    """Has `converter` round weights by what samples tell of their layers' inputs; returns notes.

    Raises InputDataError where `inputs` cannot be used, or none could be made up.
    """
    if inputs is None and not error_feedback:
        return []
    searched = {
        part.layer.name: part.module
        for part in parts
        if (choice := converter.planned.get(part.layer.name)) is not None
        and part.layer.kind is Kind.LINEAR
        and choice.format.group
        and choice.search
    }
    if not searched:
        return ["inputs and error_feedback change nothing: no linear layer's scales are searched"]
    statistics = InputStatistics(model, searched, inputs, products=error_feedback)
    converter.quantizer.statistics = statistics.of
    how = "with error feedback" if error_feedback else "by the mean squares of their inputs"
    which = "made-up inputs" if inputs is None else "samples"
    return [f"weights of {len(searched)} layers were rounded {how}, of {statistics.count} {which}"]
