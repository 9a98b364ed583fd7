"""The report of a PyTorch conversion."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from inspect import signature
from time import perf_counter
from typing import Any

from torch import nn

from octavo.errors import listed
from octavo.results.report import LayerOutcome, Report, Verification
from octavo.torch.layers.base import held_report
from octavo.torch.replace.convert import Converter
from octavo.torch.replace.inventory import ROOT, ModuleLayer, own_bytes, vectors

NO_INPUTS = "no inputs to compare with"
"""Why a module is not compared with the float one."""


def make_report(
    model: nn.Module,
    parts: Collection[ModuleLayer],
    converter: Converter,
    recipe: Mapping[str, Any],
    notes: Collection[str],
    before: int,
    start: float,
    unchecked: str = NO_INPUTS,
) -> Report:
    """Report what became of each layer of `model`, which `converter` has converted.

    `unchecked` says why the model was not compared.
    """
    counted: set[int] = set()
    before_counted: set[Hashable] = set()
    return Report(
        source=type(model).__name__,
        output="",
        recipe=recipe,
        target="torch",
        cpu="",
        quant_format="",
        layers=tuple(_outcome(part, converter, counted, before_counted) for part in parts),
        model_bytes_before=before,
        model_bytes_after=model_bytes(model),
        opset=0,
        min_onnxruntime="",
        verification=Verification("skipped", detail=unchecked),
        seconds=perf_counter() - start,
        notes=tuple(notes),
    )


def earlier_reports(model: nn.Module) -> dict[str, Report]:
    """Return the reports of earlier conversions of `model` or its parts, by dotted name."""
    held = {name: held_report(module) for name, module in model.named_modules()}
    return {name: found for name, found in held.items() if isinstance(found, Report)}


# docs/notes/torch.md: "A second conversion sees only what is float"
def continued(earlier: Report, later: Report, prefix: str) -> Report:
    """Merge the reports of two conversions into one, with each layer as it is now.

    `earlier` was about the module `prefix` of the model, "" for all of it.
    """
    now = {outcome.layer.name: outcome for outcome in later.layers}
    before = [o for o in (_below(prefix, o) for o in earlier.layers) if o.quantized]
    kept = {o.layer.name: o for o in before if o.layer.name not in now}
    order = [_below(prefix, o).layer.name for o in earlier.layers] if not prefix else []
    names = dict.fromkeys([*(n for n in order if n in kept or n in now), *now, *kept])
    recipes = [dict(earlier.recipe), *later.recipe.get("earlier", ())]
    saved = earlier.model_bytes_before - earlier.model_bytes_after
    return replace(
        later,
        recipe={**later.recipe, "earlier": recipes},
        layers=tuple(now.get(name) or kept[name] for name in names),
        model_bytes_before=later.model_bytes_before + saved,
        seconds=earlier.seconds + later.seconds,
        notes=tuple(dict.fromkeys([*earlier.notes, *later.notes])),
    )


def _below(prefix: str, outcome: LayerOutcome) -> LayerOutcome:
    """Return the outcome under its layer's name in the whole model; `prefix` is the part's."""
    name = outcome.layer.name
    if not prefix:
        return outcome
    name = prefix if name == ROOT else f"{prefix}.{name}"
    return replace(outcome, layer=replace(outcome.layer, name=name))


def _outcome(
    part: ModuleLayer, converter: Converter, counted: set[int], before_counted: set[Hashable]
) -> LayerOutcome:
    layer = part.layer
    choice = converter.planned.get(layer.name)
    before = own_bytes(part, before_counted, choice is None)
    if choice is None:
        reason = converter.reason(part)
        return LayerOutcome(layer, False, "float", reason, before, before)
    module = converter.made[part.module]
    return LayerOutcome(
        layer,
        True,
        choice.description,
        "",
        before,
        _own_bytes(module, part, counted),
        converter.quantizer.sqnr_db(layer.name),
        tuple(converter.quantizer.notes.get(layer.name, ())),
    )


def _own_bytes(module: nn.Module, part: ModuleLayer, counted: set[int]) -> int:
    """Count the bytes of buffers that hold the layer's weights, except those in `counted`.

    The buffers of a stack end in `_l<index>` and the like.
    """
    total = 0
    held = [module, *(getattr(module, name) for name in getattr(module, "INNER", ()))]
    for name, tensor in [item for one in held for item in one._buffers.items()]:
        if tensor is None or "bias" in name or tensor.data_ptr() in counted:
            continue
        if part.index is not None and f"_l{part.index}_" not in f"{name}_".replace("_reverse", ""):
            continue
        counted.add(tensor.data_ptr())
        total += tensor.numel() * tensor.element_size()
    return total


def vectors_note(model: nn.Module) -> list[str]:
    """Say which modules hold weights of one axis alone; the list is empty where none does."""
    held = vectors(model)
    words = [f"{kind} ({listed(names, 3)})" for kind, names in held.items()]
    return [f"weights of one axis stay float: {', '.join(words)}"] if words else []


POSITIONS = (
    "give position_ids, as generate does, with a batch that is padded on the left: without them "
    "most decoders count the padding, and the same tokens are rounded otherwise"
)


def positions_note(model: nn.Module) -> list[str]:
    """Say when a decoder needs position ids; nothing of a model that is none, or takes none."""
    generates = getattr(model, "can_generate", None)
    if not callable(generates) or not generates():
        return []
    return [POSITIONS] if "position_ids" in signature(model.forward).parameters else []


def model_bytes(model: nn.Module) -> int:
    """Count the bytes of all parameters and buffers, those that several modules hold once."""
    held = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.nbytes for tensor in held.values())
