"""What to do with each layer of a model. Knows no model format."""

import importlib
import warnings
from typing import Any

from octavo.core.attention_type import AttentionType
from octavo.core.layer import Kind, Layer
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

__all__ = [
    "FLOAT",
    "PRESETS",
    "ActivationScheme",
    "AttentionType",
    "Decision",
    "Granularity",
    "Kind",
    "Layer",
    "Recipe",
    "Rule",
    "Scheme",
    "WeightScheme",
    "dump_recipe",
    "load_recipe",
    "plan",
    "preset",
]

_IN_RESULTS = ("Inspection", "LayerOutcome", "Report", "Verification")


def __getattr__(name: str) -> Any:
    if name not in _IN_RESULTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = __name__.replace("recipe", "results")
    warnings.warn(f"{__name__}.{name} is now {home}.{name}", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(home), name)
