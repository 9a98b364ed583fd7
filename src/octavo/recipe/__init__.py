"""What to do with each layer of a model, and what became of it. Knows no model format."""

from octavo.recipe.inspection import Inspection
from octavo.recipe.layer import Decision, Kind, Layer
from octavo.recipe.plan import plan
from octavo.recipe.presets import PRESETS, preset
from octavo.recipe.report import LayerOutcome, Report, Verification
from octavo.recipe.schema import Recipe, Rule
from octavo.recipe.scheme import (
    FLOAT,
    ActivationScheme,
    Granularity,
    Scheme,
    WeightScheme,
)
from octavo.recipe.yaml_io import dump_recipe, load_recipe

__all__ = [
    "FLOAT",
    "PRESETS",
    "ActivationScheme",
    "Decision",
    "Granularity",
    "Inspection",
    "Kind",
    "Layer",
    "LayerOutcome",
    "Recipe",
    "Report",
    "Rule",
    "Scheme",
    "Verification",
    "WeightScheme",
    "dump_recipe",
    "load_recipe",
    "plan",
    "preset",
]
