"""Writes a quantized model as one safetensors file, with what it takes to build it again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.progress import Progress, quiet, says_progress
from octavo.errors import ModelError, listed
from octavo.files.lookup import refuse_no_path
from octavo.files.staging import Staging, output_error
from octavo.results.report import Report
from octavo.torch.dynamic_type import type_behind
from octavo.torch.files.manifest import KEY, Manifest, report_data
from octavo.torch.files.safetensors import can_hold, write
from octavo.torch.layers.base import QuantizedModule, held_report
from octavo.torch.layers.registry import layer_classes
from octavo.torch.model_tensors import (
    ModelTensor,
    ModuleNames,
    is_dense,
    is_plain,
    module_names,
    tensors_of,
)
from octavo.torch.replace.inventory import ROOT

_UNCLEAR = (
    "this name does not say which tensor it is: keys of dicts must hold no dot, and not be equal "
    "as text (0 and '0'); rename the key, or register the tensor as a buffer"
)


@says_progress
def save(model: nn.Module, path: str | Path, *, progress: Progress | None = None) -> None:
    """Write a model that `quantize_dynamic` returned to `path`, for `octavo.torch.load`.

    The file holds every parameter and buffer (those outside of state_dict too) and the tensors that
    are attributes of modules, or lie in lists, tuples and dicts that are, under their dotted names,
    one that is shared once; and in its metadata the quantized layers, the recipe and the report. It
    does not hold what else modules have, as numbers or tensors in other objects: that is what
    `load`'s factory makes it. Any safetensors reader reads the file. It appears whole, in place of
    what was at `path`, or not at all.

    `progress` is called with a stage, the tensors written and their number; by default a line on
    the terminal says them, from two seconds on. Raises ModelError for a model without quantized
    layers, with layers of the user's own `mapping`, with modules that have a `get_extra_state`, or
    with tensors that safetensors cannot hold or a name cannot tell apart; OutputError where `path`
    cannot be written.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"model: needs a torch.nn.Module, not {type(model).__name__}")
    refuse_no_path(path, "path")
    report, say = held_report(model), progress or quiet
    found = module_names(model)
    layers = _layers(model, found, report)
    _refuse_extra_state(found)
    tensors, aliases, frozen, attributes = _tensors(tensors_of(found.modules))
    manifest = Manifest(
        model=type(model).__name__,
        layers=layers,
        modules=found.again,
        tensors=aliases,
        attributes=attributes,
        frozen=frozen,
        strides={
            n: list(t.stride()) for n, t in tensors.items() if not t.is_contiguous() and is_dense(t)
        },
        recipe=None if report is None else dict(report.recipe),
        report=None if report is None else report_data(report),
    )
    metadata = {"format": "pt", KEY: manifest.to_json()}
    with Staging(path) as staging:
        try:
            with staging.model.open("wb") as file:
                write(file, tensors, metadata, lambda done: say("writing", done, len(tensors)))
        except OSError as error:
            raise output_error(error, staging.out) from error
        staging.commit()


def _layers(
    model: nn.Module, found: ModuleNames, report: Report | None
) -> dict[str, dict[str, Any]]:
    known = layer_classes()
    layers = {}
    for name, module in found.modules.items():
        if not isinstance(module, QuantizedModule):
            continue
        kind = type_behind(type(module))  # what a subclass has besides comes with the factory's
        if known.get(kind.__name__) is not kind:
            raise _not_octavos(name, module)
        layers[name] = {"class": kind.__name__, "config": json.loads(json.dumps(module.config()))}
        if module._output_dtype is not torch.float32:
            layers[name]["dtype"] = str(module._output_dtype).removeprefix("torch.")
    for outcome in () if report is None else report.quantized:
        name = outcome.layer.name
        module = found.modules.get("" if name == ROOT else name)
        if module is not None and not isinstance(module, QuantizedModule):
            raise _not_octavos(name, module)
    if not layers and report is None:
        raise ModelError(
            f"{type(model).__name__} has no quantized layer: save what "
            "octavo.torch.quantize_dynamic returned (a float model is torch.save's)"
        )
    return layers


def _not_octavos(name: str, module: nn.Module) -> ModelError:
    kind = type(module)
    return ModelError(
        f"{name or 'the model'} is a {kind.__module__}.{kind.__qualname__}, a layer of your own; a "
        "file names layers of Octavo only, so that loading it runs no other code: use torch.save, "
        "or leave that layer float"
    )


def _refuse_extra_state(found: ModuleNames) -> None:
    for name, module in found.modules.items():
        kind = type(module)
        if kind.get_extra_state is not nn.Module.get_extra_state:
            raise ModelError(
                f"{name or 'the model'} is a {kind.__module__}.{kind.__qualname__}, whose "
                "get_extra_state makes state that is not among its tensors; a file cannot hold it: "
                "keep it in buffers (register_buffer), or use torch.save"
            )


def _tensors(
    found: Iterable[ModelTensor],
) -> tuple[dict[str, Tensor], dict[str, str], list[str], list[str]]:
    """Return tensors to store by name, their further names, frozen parameters, and attributes."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    frozen, attributes = [], []
    first: dict[Any, str] = {}
    seen: set[str] = set()
    problems: dict[str, list[str]] = defaultdict(list)
    for item in found:
        name, tensor = item.name, item.tensor
        if item.role == "attribute":
            attributes.append(name)
        if item.role == "parameter" and not tensor.requires_grad:
            frozen.append(name)
        reason = _refusal(tensor)
        if item.unclear or name in seen:
            reason = _UNCLEAR
        seen.add(name)
        if reason:
            problems[reason].append(name)
            continue
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        known = first.setdefault(key if tensor.numel() else id(tensor), name)
        if known != name:
            aliases[name] = known
        else:
            stored[name] = tensor
    for reason, names in problems.items():
        raise ModelError(f"{listed(names, 5)}: {reason}")
    return stored, aliases, frozen, attributes


def _refusal(tensor: Tensor) -> str:
    """Say why the tensor cannot be stored; "" where it can."""
    if nn.parameter.is_lazy(tensor):
        return "not initialized yet; run the model once"
    if not is_plain(tensor):
        return f"{type(tensor).__name__} of layout {tensor.layout} cannot be stored in safetensors"
    if tensor.device.type != "cpu":
        missing = tensor.device.type == "meta"
        return "has no values (device meta)" if missing else f"on {tensor.device}; call model.cpu()"
    if not can_hold(tensor.dtype):
        return f"{tensor.dtype} cannot be stored in safetensors"
    return ""
