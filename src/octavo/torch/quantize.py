"""`quantize_dynamic` for PyTorch modules: the call of torch.ao.quantization, on our kernels."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from octavo.core.attention_type import AttentionType
from octavo.core.progress import Progress, quiet, says_progress, shown
from octavo.errors import (
    AlreadyQuantizedError,
    ModelError,
    NothingQuantizedError,
    OptionError,
    listed,
)
from octavo.recipe import Recipe
from octavo.recipe.block_options import leads_to_recipes
from octavo.recipe.yaml_files import recipe_of
from octavo.results.inspection import Inspection
from octavo.results.names import counted_reasons
from octavo.results.report import Report
from octavo.torch.blocks.find import fused
from octavo.torch.layers.base import REPORT, QuantizedModule, held_report
from octavo.torch.layers.other_savers import refuse_other_savers
from octavo.torch.replace.convert import Converter, copied
from octavo.torch.replace.inventory import ModuleLayer, inventory, own_bytes
from octavo.torch.replace.mapping import checked_mapping
from octavo.torch.replace.plan import Planner, recipe_answers, recipe_decisions
from octavo.torch.replace.spec import QConfigSpec, storage_of
from octavo.torch.reports import (
    NO_INPUTS,
    continued,
    earlier_reports,
    make_report,
    model_bytes,
    positions_note,
    vectors_note,
)
from octavo.torch.search_inputs.samples import Told, measured_mix, use_samples

QINT8 = getattr(torch, "qint8", "int8")
"""torch.qint8, as long as PyTorch has it."""


@leads_to_recipes
@says_progress
def quantize_dynamic(
    model: nn.Module,
    qconfig_spec: Any = None,
    dtype: Any = QINT8,
    mapping: Mapping[type, type] | None = None,
    inplace: bool = False,
    *,
    recipe: str | Path | Recipe | None = None,
    inputs: Iterable[Any] | None = None,
    error_feedback: bool = False,
    allow_nothing: bool = False,
    progress: Progress | None = None,
) -> nn.Module:
    """Replace layers of `model` by quantized ones: int8 weights, activations quantized per row.

    The arguments are those of `torch.ao.quantization.quantize_dynamic`, with the same meaning:

    - `qconfig_spec`: None (what `dtype` stands for), a set of module types and dotted names, or a
      dict from those to qconfigs, `octavo.Scheme`s, or None to leave float; "" is the model. A
      `qconfig` attribute of a module comes before its name, that before its type, that before its
      parent. Where no qconfig is given, weights have a scale for each output channel.
    - `dtype`: torch.qint8 or "int8" (Linear, LSTM, GRU, RNN, their cells, MultiheadAttention),
      torch.float16 (the same, weights only), torch.quint8 (Embedding, EmbeddingBag).
    - `mapping`: float type to quantized type, in place of `octavo.torch.default_mapping()`; types
      of your own need a classmethod `from_float(module)`.
    - `inplace`: changes `model` itself; else a copy, which does not copy the weights it replaces.

    `recipe` (a preset's name, a YAML file or a Recipe) decides in place of `qconfig_spec` and
    `dtype`. The result is in eval mode; `octavo.torch.report(result)` says what became of each
    layer. A model that is itself a layer (a single Linear) is returned as another object. Layers
    that an earlier call quantized stay as they are: a second one is about those left float, and
    the report is then about both.

    `inputs`, of which a hundred are enough, help to round weights in groups (`int4`): errors count
    by what comes to a layer. An input is what forward takes: a mapping by the names of parameters,
    a tuple of positional ones, or the only one. With `error_feedback` the weights of later inputs
    take on what earlier ones lost (GPTQ), which takes longer and loses less, on inputs that are
    made up where none are given; its integers depend on the machine's matrix products. Either keeps
    the float weights in memory until all layers are done, with `inplace` too.

    Raises OptionError (an unknown name, dtype, qconfig or combination; a type or name that asks for
    a layer without a quantized form), RecipeError, AlreadyQuantizedError (whatever is asked for is
    quantized), NothingQuantizedError (by default or with a recipe, where no layer can be quantized
    and not `allow_nothing`), and ValueError for NaN or infinity in a weight; `model` is then as it
    was (but what a `from_float` of your own raises with `inplace` cannot be foreseen: layers before
    it are replaced by then). `progress` is called with a stage, the layers done and their number;
    by default a line on the terminal says them, from two seconds on.
    """
    start = perf_counter()
    check_module(model)
    mapping = checked_mapping(mapping)
    parts = inventory(model)
    inputs = None if inputs is None else list(inputs)
    if recipe is None:
        spec = QConfigSpec(model, parts, qconfig_spec, dtype)
        spec.refuse_unknown(model, mapping)
        answers, notes, chosen = spec.answers(model, parts), spec.notes, spec.of_modules(model)
        said: dict[str, Any] = {"name": "default" if spec.default else "qconfig_spec"}
        must = spec.default
    else:
        if qconfig_spec is not None:
            raise OptionError("recipe and qconfig_spec: give one of them; both choose layers")
        if storage_of(dtype) != "int8":
            raise OptionError(
                f"recipe and dtype ({dtype!r}): give one; both say how to hold weights"
            )
        found, notes = measured_mix(model, parts, recipe_of(recipe), inputs)
        decisions = recipe_decisions(parts, found, dict(model.named_modules()))
        answers, chosen = recipe_answers(parts, decisions, found), {}
        said, must = found.to_dict(), True
    converter = Converter(model, parts, answers, mapping, chosen)
    told = use_samples(model, parts, converter, inputs, error_feedback)
    refuse_again(model, parts, converter, qconfig_spec)
    if must and not allow_nothing and not converter.planned:
        raise NothingQuantizedError(nothing_quantized(model, parts, converter))
    unchecked = NO_INPUTS if inputs is None else "octavo.torch.compare compares on the inputs"
    return run_converter(
        *(model, parts, converter, said, notes, inplace, start, progress or quiet, told),
        unchecked=unchecked,
    )


def run_converter(
    model: nn.Module,
    parts: Collection[ModuleLayer],
    converter: Converter,
    said: Mapping[str, Any],
    notes: Collection[str],
    inplace: bool,
    start: float,
    progress: Progress = quiet,
    told: Told = list,
    unchecked: str = NO_INPUTS,
) -> nn.Module:
    """Convert `model`, or a copy if not `inplace`, by `converter`; return it with its report.

    `said` is what the report calls the recipe, `start` when the call began; `told` gives notes when
    all is converted, `unchecked` says why it is not compared with the float model.
    """
    # Of tensors made in inference mode nobody can tell cheaply whether they were written to.
    with torch.inference_mode(False):
        if inplace:
            converter.check(model)
        else:
            model = copied(model, converter)
        before, earlier = model_bytes(model), earlier_reports(model)
        model = converter.convert(model, progress)
    model.eval()
    attention = AttentionType.stated(said)
    notes = [*notes, *told(), *converter.notes, *fused(model, attention), *vectors_note(model)]
    notes += positions_note(model)
    refuse_other_savers(model, QuantizedModule)
    report = make_report(model, parts, converter, said, notes, before, start, unchecked)
    for prefix, one in earlier.items():
        report = continued(one, report, prefix)
    model.__dict__[REPORT] = report
    return model


@shown("inspecting")
def inspect(model: nn.Module, recipe: str | Path | Recipe = "int8") -> Inspection:
    """List the layers of a float model and what a recipe would do with each; change nothing.

    A decision is what `quantize_dynamic(model, recipe=recipe)` would hold: a layer that stays float
    has its reason. Raises OptionError, RecipeError, ModelError and AlreadyQuantizedError as that.
    """
    check_float(model)
    found = recipe_of(recipe)
    layers, counted = Planner(model), set[Hashable]()
    return Inspection(
        type(model).__name__,
        model_bytes(model),
        found.name,
        tuple(layers.decisions(found)),
        weight_bytes=tuple(own_bytes(part, counted) for part in layers.parts),
        attention=found.attention,
    )


def report(model: nn.Module) -> Report:
    """Return what `quantize_dynamic` did with each layer of `model`, the module it returned.

    Raises ModelError for any other module.
    """
    found = held_report(model)
    if not isinstance(found, Report):
        raise ModelError(
            f"{type(model).__name__} has no report: octavo.torch.quantize_dynamic did not return "
            "it (parts of a quantized model have none of their own)"
        )
    return found


def is_quantized(model: nn.Module) -> bool:
    """Tell whether `quantize_dynamic` returned this module, which then has a report."""
    return held_report(model) is not None


def check_module(model: object) -> None:
    """Raise for what is no module, is quantized by torch.ao, or has parameters without values."""
    if not isinstance(model, nn.Module):
        raise OptionError(f"model: needs a torch.nn.Module, not {type(model).__name__}")
    _refuse_torch_ao(model)
    _refuse_without_values(model)


def check_float(model: object) -> None:
    """Raise what `quantize_dynamic` raises for what is no float model with values."""
    if not isinstance(model, nn.Module):
        raise OptionError(f"model: needs a torch.nn.Module, not {type(model).__name__}")
    _refuse_quantized(model)
    _refuse_without_values(model)


def _refuse_quantized(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, QuantizedModule):
            raise _already(name, module, "; quantize the float model")
    _refuse_torch_ao(model)


def _already(name: str, module: nn.Module, advice: str) -> AlreadyQuantizedError:
    kind = type(module).__name__
    return AlreadyQuantizedError(f"{name or 'the model'} is a {kind} already{advice}")


def refuse_again(
    model: nn.Module, parts: Collection[ModuleLayer], converter: Converter, spec: Any
) -> None:
    """Raise AlreadyQuantizedError where an earlier call quantized what this one asks for.

    That is a layer by its name, or all there is.
    """
    quantized = {n: m for n, m in model.named_modules() if isinstance(m, QuantizedModule)}
    asked = spec if isinstance(spec, (Mapping, Collection)) else ()
    for name, module in quantized.items():
        advice = "; name layers that are float, or quantize the float model anew"
        if name and name in asked and not (isinstance(spec, Mapping) and spec[name] is None):
            raise _already(name, module, advice)
        if not converter.planned:
            left = [f"{p.layer.name} ({converter.reason(p)})" for p in parts]
            said = f"; float layers are {listed(left, 3)}" if left else ""
            raise _already(name, module, f", and no other layer would be quantized{said}{advice}")


def _refuse_torch_ao(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if "torch.ao.nn.quantized" in type(module).__module__:
            raise AlreadyQuantizedError(
                f"{name or 'the model'} was quantized by torch.ao "
                f"({type(module).__module__}.{type(module).__name__}); quantize the float model"
            )


def _refuse_without_values(model: nn.Module) -> None:
    for name, tensor in model.named_parameters():
        if is_lazy(tensor):
            raise ModelError(
                f"{name} is not initialized: a lazy layer makes its weights in the first call; run "
                "the float model once on an example"
            )
        if tensor.device.type == "meta":
            raise ModelError(f"{name} is on device meta: it has no values; load them first")


def nothing_quantized(
    model: nn.Module, parts: Collection[ModuleLayer], converter: Converter
) -> str:
    """Return the message about a model of which every layer would stay float."""
    allow = "; allow_nothing=True (--allow-nothing) returns it as it is"
    if not parts:
        return f"{type(model).__name__} holds no weights, so there is nothing to quantize{allow}"
    reasons = counted_reasons([p.layer.op for p in parts], [converter.reason(p) for p in parts])
    return f"no layer of {type(model).__name__} would be quantized{allow}{reasons}"
