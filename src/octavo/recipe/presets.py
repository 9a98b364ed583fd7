"""Recipes that have a name."""

from __future__ import annotations

from octavo.core.qtype import QType
from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.layer import Kind
from octavo.recipe.schema import Recipe, Rule
from octavo.recipe.scheme import FLOAT, ActivationScheme, Granularity, Scheme, WeightScheme

CONV_REASON = (
    "float by default: ONNX Runtime's integer convolution is no faster than its float one; ask for "
    "it with --ops Conv"
)
MATMUL_REASON = "a product of two activations: it has no weights to make smaller"

_STATIC = (
    Rule(FLOAT, kind=Kind.CONV, reason=CONV_REASON),
    Rule(FLOAT, kind=Kind.ACTIVATION_MATMUL, reason=MATMUL_REASON),
)
_PER_TENSOR = Scheme(
    WeightScheme(granularity=Granularity.TENSOR),
    ActivationScheme(granularity=Granularity.TENSOR),
)
_ACCURATE = Scheme(
    WeightScheme(symmetric=False),
    ActivationScheme(granularity=Granularity.GROUP, group=128),
)
_BLOCK = Scheme(WeightScheme(granularity=Granularity.BLOCK, block=32), None)
_FLOAT16 = Scheme(WeightScheme(qtype=QType.FLOAT16, granularity=Granularity.TENSOR), None)

PRESETS: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("int8", Scheme(), _STATIC, max_error=0.1),
        # ONNX Runtime's quantize_dynamic converts convolutions too, so that this one does.
        Recipe("int8-per-tensor", _PER_TENSOR, (_STATIC[1],), max_error=0.3),
        Recipe("int8-accurate", _ACCURATE, _STATIC, max_error=0.05),
        Recipe("int8-block", _BLOCK, _STATIC, max_error=0.05),
        Recipe("float16", _FLOAT16, (_STATIC[1],), max_error=0.001),
    )
}
"""The recipes that have a name, by it."""


def preset(name: str) -> Recipe:
    """The recipe called `name`; RecipeError lists those that exist."""
    try:
        return PRESETS[name]
    except KeyError:
        raise RecipeError(f"unknown preset {name!r}.{did_you_mean(name, PRESETS)}") from None
