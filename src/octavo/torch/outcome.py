"""The report of a PyTorch conversion."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from time import perf_counter
from typing import Any

from torch import nn

from octavo.recipe import LayerOutcome, Report, Verification
from octavo.torch.convert import Converter
from octavo.torch.inventory import Part, own_bytes

REPORT = "_octavo_report"
"""Where a quantized model keeps its report: an attribute of the module's own `__dict__`."""


def make_report(
    model: nn.Module,
    parts: Collection[Part],
    converter: Converter,
    recipe: Mapping[str, Any],
    notes: Collection[str],
    before: int,
    start: float,
) -> Report:
    """What became of each layer of `model`, which `converter` has converted."""
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
        verification=Verification("skipped", detail="no inputs to compare with"),
        seconds=perf_counter() - start,
        notes=tuple(notes),
    )


def _outcome(
    part: Part, converter: Converter, counted: set[int], before_counted: set[Hashable]
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
        choice.words,
        "",
        before,
        _own_bytes(module, part, counted),
        converter.quantizer.sqnr_db(layer.name),
        tuple(converter.quantizer.notes.get(layer.name, ())),
    )


def _own_bytes(module: nn.Module, part: Part, counted: set[int]) -> int:
    """Of the buffers that hold the layer's weights; a stack's end in `_l<index>` and the like."""
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


def model_bytes(model: nn.Module) -> int:
    """Of all parameters and buffers, one that several modules hold counted once."""
    held = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.nbytes for tensor in held.values())
