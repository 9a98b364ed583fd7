"""Samples of a model's inputs: what a call of `quantize_dynamic` does with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from octavo.errors import InputDataError, listed
from octavo.recipe import Kind, Recipe
from octavo.results.words import count
from octavo.torch.replace.convert import Converter
from octavo.torch.replace.inventory import ModuleLayer
from octavo.torch.search_inputs.input_statistics import InputStatistics
from octavo.torch.search_inputs.sensitivities import sensitivities


def measured_mix(
    model: nn.Module,
    parts: Sequence[ModuleLayer],
    recipe: Recipe,
    inputs: Iterable[Any] | None,
) -> tuple[Recipe, list[str]]:
    """Return `recipe` with a mix that knows what each layer loses, and notes.

    A recipe without a mix, or with one that knows, is returned as it is.
    """
    mix = recipe.mix
    if mix is None or mix.sensitivities:
        return recipe, []
    try:
        found, unreached = sensitivities(model, parts, inputs)
    except InputDataError as error:
        return recipe, [f"bits were given to layers by their sizes: {error}"]
    given = "made-up inputs" if inputs is None else "the inputs"
    notes = [f"bits were given to layers by what outputs for {given} lose"]
    if unreached:
        layers = count(len(unreached), "layer")
        notes.append(
            f"bits were given to {layers} by size: {given} do not come to {listed(unreached, 5)}"
        )
    return replace(recipe, mix=replace(mix, sensitivities=found)), notes


Told = Callable[[], list[str]]
"""What is to be said of samples once weights are rounded."""


def use_samples(
    model: nn.Module,
    parts: Collection[ModuleLayer],
    converter: Converter,
    inputs: Iterable[Any] | None,
    error_feedback: bool,
) -> Told:
    """Has `converter` round weights by what samples tell of their layers' inputs.

    Raises InputDataError where `inputs` cannot be used, or none could be made up.
    """
    if inputs is None and not error_feedback:
        return list
    searched = {
        part.layer.name: part.module
        for part in parts
        if (choice := converter.planned.get(part.layer.name)) is not None
        and part.layer.kind is Kind.LINEAR
        and choice.format.group
        and choice.search
    }
    if not searched:
        return lambda: [
            "inputs and error_feedback do not change how weights are rounded: no linear layer's "
            "scales are searched"
        ]
    statistics = InputStatistics(model, searched, inputs, products=error_feedback)
    quantizer = converter.quantizer
    quantizer.statistics = statistics.of
    how = "with error feedback" if error_feedback else "by the mean squares of their inputs"
    which = f"{statistics.count} {'made-up inputs' if inputs is None else 'samples'}"
    return lambda: [
        *_rounded(sum(name in quantizer.by_statistics for name in searched), how, which),
        *_without(searched, quantizer.by_statistics, statistics.unreached, which),
    ]


def _rounded(layers: int, how: str, which: str) -> list[str]:
    return [f"weights of {count(layers, 'layer')} were rounded {how}, of {which}"] if layers else []


def _without(
    searched: Iterable[str], done: Collection[str], unreached: Collection[str], which: str
) -> list[str]:
    """Write notes on layers whose weights samples did not help to round."""
    without = [name for name in searched if name not in done]
    missed = [name for name in without if name in unreached]
    others = [name for name in without if name not in unreached]
    return [
        f"{count(len(names), 'layer')} {why}: {listed(names, 5)}"
        for names, why in (
            (missed, f"got no input from {which}, so that weights were rounded without"),
            (others, "with a weight that was rounded for another layer, without samples"),
        )
        if names
    ]
