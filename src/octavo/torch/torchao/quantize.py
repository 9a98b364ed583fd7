"""`quantize_(model, config, filter_fn)`: the call of torchao, on Octavo's layers and kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from octavo.errors import NothingQuantizedError, OptionError, listed
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.quantize import check_module, nothing_quantized, refuse_again, run_converter
from octavo.torch.replace.convert import Converter
from octavo.torch.replace.inventory import inventory
from octavo.torch.replace.mapping import default_mapping
from octavo.torch.torchao.schemes import asked
from octavo.torch.weight_choice import Answer, SchemeChoice

Filter = Callable[[nn.Module, str], bool]

_LEFT = "filter_fn does not choose it"


def quantize_(
    model: nn.Module, config: Any, filter_fn: Filter | None = None, device: Any = None
) -> None:
    """Replace layers of `model`, in place, by quantized ones, as torchao's `quantize_` does.

    - `config`: how: an `Int8DynamicActivationInt4WeightConfig`, an
      `Int8DynamicActivationInt8WeightConfig`, an `Int8DynamicActivationIntxWeightConfig` or an
      `IntxWeightOnlyConfig`, of `octavo.torch` or of torchao, which need not be installed.
    - `filter_fn(module, name)`: which modules, by their dotted names; None: each nn.Linear but the
      `out_proj` of nn.MultiheadAttention. It is asked of parents first, and not of what is in a
      module that it chose.
    - `device`: None or the CPU, where quantized layers run.

    The model is in eval mode then; `octavo.torch.report(model)` says what became of each layer, and
    what is otherwise than the config says. A second call is about layers that are float still.

    Raises OptionError (a config or a field's value that Octavo has not; a chosen module without
    weights, or that is the model itself), AlreadyQuantizedError, NothingQuantizedError where no
    layer can be quantized, and ValueError for NaN or infinity in a weight; `model` is then as it
    was.
    """
    start = perf_counter()
    if device is not None and torch.device(device).type != "cpu":
        raise OptionError(f"device: {device!r}; quantized layers run on the CPU: leave it out")
    check_module(model)
    found = asked(config)
    parts = inventory(model)
    chosen = _chosen(model, filter_fn or _is_linear)
    _refuse_chosen(model, chosen, {part.module for part in parts})
    choice = SchemeChoice(found.scheme)
    answers = {
        part.layer.name: Answer(choice, named=True)
        if part.module in chosen
        else Answer(None, _LEFT)
        for part in parts
    }
    converter = Converter(model, parts, answers, default_mapping())
    refuse_again(model, parts, converter, None)
    if not converter.planned:
        raise NothingQuantizedError(nothing_quantized(model, parts, converter))
    for name in converter.planned:
        converter.quantizer.note(name, found.note)
    said = {"name": type(config).__name__} | {
        one.name: str(getattr(config, one.name)) for one in fields(config)
    }
    run_converter(model, parts, converter, said, (), inplace=True, start=start)


def _is_linear(module: nn.Module, name: str) -> bool:
    attention = isinstance(module, NonDynamicallyQuantizableLinear)
    return isinstance(module, nn.Linear) and not attention


def _chosen(model: nn.Module, choose: Filter) -> dict[str, nn.Module]:
    """Return the modules that `choose` is true of, by name."""
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()

    def ask(module: nn.Module, name: str) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        if choose(module, name):
            found[name] = module
            return
        for key, child in module.named_children():
            ask(child, f"{name}.{key}" if name else key)

    ask(model, "")
    return found


def _refuse_chosen(model: nn.Module, chosen: dict[str, nn.Module], holding: set[str]) -> None:
    """Raise OptionError where a chosen module has no weight, or is the model and a layer itself."""
    if "" in chosen and "" in holding:
        raise OptionError(
            f"model: is a {type(model).__name__} that is a layer itself, and cannot be replaced in "
            "place; use octavo.torch.quantize_dynamic, which returns the quantized one"
        )
    without = [
        f"{name or 'the model'} ({type(module).__name__})"
        for name, module in chosen.items()
        if name not in holding and not isinstance(module, QuantizedModule)
    ]
    if without:
        raise OptionError(
            f"filter_fn: chose {listed(without, 3)}, without a weight of two axes or more; choose "
            "by type, as lambda module, name: isinstance(module, torch.nn.Linear)"
        )
