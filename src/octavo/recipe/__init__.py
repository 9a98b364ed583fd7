"""What to do with each layer of a model, and what became of it. Knows no model format."""

from octavo.core.attention_type import AttentionType
from octavo.core.layer import Kind, Layer
from octavo.recipe.inspection import Inspection
from octavo.recipe.plan import Decision, plan
from octavo.recipe.recipe import PRESETS, Recipe, Rule, preset
from octavo.recipe.scheme import (
    FLOAT,
    ActivationScheme,
    Granularity,
    Scheme,
    WeightScheme,
)
from octavo.recipe.yaml_files import dump_recipe, load_recipe
from octavo.results.report import LayerOutcome, Report, Verification

__all__ = [
    "FLOAT",
    "PRESETS",
    "ActivationScheme",
    "AttentionType",
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
