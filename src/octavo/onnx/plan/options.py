"""The arguments of `onnxruntime.quantization.quantize_dynamic`, turned into a recipe.

An argument that is given changes only its own axis of the recipe's schemes; what is left out stays
as the recipe has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from octavo.core.form import Form
from octavo.core.qparams import QType
from octavo.errors import OptionError, RecipeError, did_you_mean
from octavo.onnx.blocks import is_in_blocks
from octavo.onnx.operators import READERS, find_op, supported_ops
from octavo.recipe import (
    Granularity,
    Recipe,
    Scheme,
)
from octavo.recipe.block_options import refuse_block_options, refuse_four_bits
from octavo.recipe.yaml_files import recipe_of

WEIGHTLESS_OPS = ("Transpose",)  # ONNX Runtime accepts it; it holds nothing to quantize

# Documented keys of extra_options that only False fits, with the reason for the refusal.
_ONLY_FALSE = {
    "extra.Sigmoid.nnapi": "it is for Android's NNAPI and has no meaning here",
    "ActivationRestrictedAsymmetric": "it speaks of calibrated activations; dynamic ones have none",
    "ForceQuantizeNoInputCheck": "operators without weights are never quantized here",
}
EXTRA_OPTIONS = (
    *_ONLY_FALSE,
    "ActivationSymmetric",
    "EnableSubgraph",
    "MatMulConstBOnly",
    "WeightSymmetric",
)
_CALIBRATED = "it is for activations with calibrated ranges; dynamic ones have none"
_PAIRS = "it is for the pairs of static quantization; quant_format='qdq' writes dynamic ones"
# Other keys that ONNX Runtime's quantizers read.
_ONNXRUNTIMES = {
    "DefaultTensorType": "types are read from the model",
    "TensorQuantOverrides": "a recipe has a rule for each layer: recipe='recipe.yaml'",
    "BlockSize": "recipe='int4' holds weights in blocks of 32, 'int4-128' of 128",
    "QuantizeBias": "a bias stays float",
    **dict.fromkeys(
        "SmoothQuant SmoothQuantAlpha SmoothQuantFolding CalibStridedMinMax MinimumRealRange "
        "CalibMaxIntermediateOutputs CalibMovingAverage CalibMovingAverageConstant "
        "CalibTensorRangeSymmetric CalibPercentile".split(),
        _CALIBRATED,
    ),
    **dict.fromkeys(
        "AddQDQPairToWeight DedicatedQDQPair OpTypesToExcludeOutputQuantization UseQDQContribOps "
        "QDQDisableWeightAdjustForInt32Bias QDQKeepRemovableActivations "
        "QDQOpTypePerChannelSupportToAxis".split(),
        _PAIRS,
    ),
}


class QuantType(Enum):
    """Storage of weights, under the names that ONNX Runtime gives them."""

    QInt8 = "int8"
    QUInt8 = "uint8"


@dataclass(frozen=True)
class Selection:
    """Which layers may be quantized at all; None means all."""

    ops: frozenset[str] | None = None
    only: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    subgraphs: bool = True
    activation_matmuls: bool = False


@dataclass(frozen=True)
class Request:
    """A checked call of `quantize_dynamic`, as far as it says what to do with layers."""

    recipe: Recipe
    selection: Selection
    form: Form


def parse_request(
    recipe: str | Path | Recipe | None,
    form: Form,
    *,
    op_types_to_quantize: Sequence[str] | None = None,
    per_channel: bool | None = None,
    reduce_range: bool | None = None,
    weight_type: Any = None,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> Request:
    """Check every argument by name and value; raise OptionError or RecipeError for a wrong one."""
    extra = _extra(extra_options)
    only = _names("nodes_to_quantize", nodes_to_quantize)
    chosen = recipe_of(recipe)
    chosen = _adjusted(
        chosen,
        _flag("per_channel", per_channel),
        _flag("reduce_range", reduce_range),
        _qtype(weight_type),
        extra,
    )
    if form.qdq:
        chosen = _for_qdq(chosen)
    if extra.get("ActivationSymmetric") and has_tensor_activations(chosen):
        raise OptionError(
            "extra_options['ActivationSymmetric']=True: activations per tensor go through "
            "DynamicQuantizeLinear, which is asymmetric; rows (recipe 'int8') are symmetric"
        )
    selection = Selection(
        ops=_ops(op_types_to_quantize),
        only=only or None,
        exclude=_names("nodes_to_exclude", nodes_to_exclude),
        subgraphs=bool(extra.get("EnableSubgraph", True)),
        activation_matmuls=not extra.get("MatMulConstBOnly", True),
    )
    return Request(chosen, selection, form)


def _flag(argument: str, value: Any) -> bool | None:
    if value is not None and value not in (True, False):
        raise OptionError(f"{argument} is True, False or None, not {value!r}")
    return None if value is None else bool(value)


def _names(argument: str, value: Sequence[str] | None) -> tuple[str, ...]:
    names = () if value is None or isinstance(value, (str, bytes)) else tuple(value)
    if isinstance(value, (str, bytes)) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"{argument} is a list of names, such as ['a', 'b*'], not {value!r}")
    return names


def _extra(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(f"extra_options maps names to True or False; this is {given!r}")
    extra = dict(given or {})
    for key, value in extra.items():
        if key in _ONNXRUNTIMES:
            raise OptionError(
                f"extra_options[{key!r}] of ONNX Runtime's has no meaning here: "
                f"{_ONNXRUNTIMES[key]}; leave it out"
            )
        refuse_block_options([str(key)])
        if key not in EXTRA_OPTIONS:
            near = did_you_mean(str(key), EXTRA_OPTIONS)
            raise OptionError(f"unknown extra option {key!r}.{near}")
        if not isinstance(value, bool):
            raise OptionError(f"extra_options[{key!r}] is True or False, not {value!r}")
        if key in _ONLY_FALSE and value:
            raise OptionError(
                f"extra_options[{key!r}]=True is refused: {_ONLY_FALSE[key]}; leave it out"
            )
    return extra


def _qtype(weight_type: Any) -> QType | None:
    """Return the QType for our QuantType or ONNX Runtime's (by its name), or None for None.

    Raises OptionError for another name.
    """
    if weight_type is None:
        return None
    name = getattr(weight_type, "name", str(weight_type))
    refuse_four_bits("weight_type", weight_type)
    if name not in QuantType.__members__:
        raise OptionError(f"weight_type {name!r}.{did_you_mean(name, QuantType.__members__)}")
    return QType(QuantType[name].value)


def _ops(op_types: Sequence[str] | None) -> frozenset[str] | None:
    names = _names("op_types_to_quantize", op_types)
    if not names:
        return None
    ops: set[str] = set()
    for name in names:
        full = find_op(name)
        if full is None and name not in WEIGHTLESS_OPS:
            raise RecipeError(f"unknown op type {name!r}.{did_you_mean(name, supported_ops())}")
        if full is not None:
            ops.update(op for op in READERS if op.rpartition(".")[2] == full.rpartition(".")[2])
    if "MatMul" in ops:
        ops.add("Gemm")  # quantize_dynamic makes a MatMul of it before it selects
    return frozenset(ops)


def _adjusted(
    recipe: Recipe,
    per_channel: bool | None,
    reduce_range: bool | None,
    qtype: QType | None,
    extra: Mapping[str, Any],
) -> Recipe:
    changes: dict[str, Any] = {}
    if per_channel is not None:
        changes["granularity"] = Granularity.CHANNEL if per_channel else Granularity.TENSOR
    if reduce_range is not None:
        changes["reduce_range"] = reduce_range
    if qtype is not None:
        changes["qtype"] = qtype
        if qtype is QType.UINT8 and recipe.name == "int8-per-tensor":
            changes["symmetric"] = False  # as in ONNX Runtime's quantize_dynamic
    if "WeightSymmetric" in extra:
        changes["symmetric"] = extra["WeightSymmetric"]
    if not changes:
        return recipe

    def change(scheme: Scheme) -> Scheme:
        if scheme.weight is None:
            return scheme
        w = scheme.weight
        if not w.qtype.is_integer or w.granularity is Granularity.BLOCK:
            raise OptionError(
                f"{', '.join(changes)} cannot be combined with recipe {recipe.name!r}, whose "
                f"weights are {scheme.describe()}; leave one of the two out"
            )
        return replace(scheme, weight=replace(w, **changes))

    return _with_schemes(recipe, change)


def _for_qdq(recipe: Recipe) -> Recipe:
    """Activations per tensor: what DynamicQuantizeLinear can do; in float beside blocks."""

    def change(scheme: Scheme) -> Scheme:
        if scheme.activation is None:
            return scheme
        if is_in_blocks(scheme.weight):
            return replace(scheme, activation=None)
        tensor = replace(scheme.activation, granularity=Granularity.TENSOR, group=None)
        return replace(scheme, activation=tensor)

    return _with_schemes(recipe, change)


def _with_schemes(recipe: Recipe, change: Callable[[Scheme], Scheme]) -> Recipe:
    """Return the recipe with `change` applied to each of its schemes."""
    rules = tuple(replace(rule, scheme=change(rule.scheme)) for rule in recipe.rules)
    return replace(recipe, default=change(recipe.default), rules=rules)


def has_tensor_activations(recipe: Recipe) -> bool:
    """Tell whether some layers get one activation scale per tensor."""
    if recipe.mix is not None:
        return True
    schemes = [recipe.default, *(rule.scheme for rule in recipe.rules)]
    return any(
        s.activation is not None and s.activation.granularity is Granularity.TENSOR for s in schemes
    )


def has_four_bits(recipe: Recipe) -> bool:
    """Tell whether some layers get weights of 4 bits."""
    schemes = [recipe.default, *(rule.scheme for rule in recipe.rules)]
    return any(s.weight is not None and s.weight.qtype is QType.INT4 for s in schemes)
