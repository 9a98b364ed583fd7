"""Quantized layers in a folder: described in config.json, empty in a skeleton, filled by files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import octavo
from octavo.errors import ModelError, listed
from octavo.results.report import Report
from octavo.torch.dynamic_type import type_behind
from octavo.torch.files.manifest import make_layer, report_data
from octavo.torch.files.safetensors import read_metadata
from octavo.torch.hub.aligned_files import REPORT_KEY, VERSION_KEY
from octavo.torch.hub.config import OctavoConfig
from octavo.torch.hub.group_layers import table_factor
from octavo.torch.hub.headers import file_tensors
from octavo.torch.layers.base import QuantizedModule, dtype_of
from octavo.torch.layers.registry import layer_classes
from octavo.torch.model_tensors import places_of
from octavo.torch.replace.user_attributes import carry_hooks, keep_own, settle_weight

_SHOWN = 5


def described(
    model: nn.Module, state: Mapping[str, Tensor]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return what config.json says of the quantized layers of `model`, whose state is `state`.

    Layers of one class and configuration are one entry. The second result has, for tensors
    that several layers share, each further name with the first.
    """
    groups: dict[str, dict[str, Any]] = {}
    shared: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, module in model.named_modules():
        if not isinstance(module, QuantizedModule):
            continue
        kind, config = type_behind(type(module)).__name__, module.config()
        entry = {"class": kind, "config": config, "names": []}
        groups.setdefault(json.dumps([kind, config]), entry)["names"].append(name)
        for key, tensor in module._buffers.items():
            full = f"{name}.{key}"
            if tensor is not None and full in state:
                known = first.setdefault((tensor.data_ptr(), tensor.shape, tensor.dtype), full)
                if known != full:
                    shared[full] = known
    return list(groups.values()), shared


class StoredLayers:
    """The layers of a folder that Octavo wrote, put into a skeleton of its model."""

    def __init__(self, model: nn.Module, config: OctavoConfig, files: Sequence[str]) -> None:
        self._files = files
        self._where = Path(files[0]).parent if files else Path()
        if config.layers is None:
            raise ModelError(
                f"{self._where}: its config.json has quant_method 'octavo' and no `layers`, so "
                "that it does not say what is quantized; save the model anew"
            )
        self._prefix = getattr(model, "base_model_prefix", "")
        self._layers = self._placed(model, config)
        self._shared = self._aliases(config)
        check_sizes(model, self._layers, files)

    def _placed(self, model: nn.Module, config: OctavoConfig) -> dict[str, QuantizedModule]:
        known, places = layer_classes(), places_of(model)
        kind = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)  # transformers sets it to the model's meanwhile
        try:
            return self._made(model, config, known, places)
        finally:
            torch.set_default_dtype(kind)

    def _made(
        self,
        model: nn.Module,
        config: OctavoConfig,
        known: Mapping[str, type[QuantizedModule]],
        places: Mapping[int, Sequence[tuple[nn.Module, str]]],
    ) -> dict[str, QuantizedModule]:
        modules = dict(model.named_modules())
        made = {}
        for group in config.layers or ():
            for stored in group["names"]:
                name = self._name(stored, modules)
                if name is None:  # of a head that this class has not: transformers says so
                    continue
                new = make_layer(self._where, stored, group, known)  # on meta, as all around it
                old = modules[name]
                settle_weight(old)
                new.cast(dtype_of(old))
                if table_factor(old) is None:  # else it is in the scales
                    keep_own(old, new)
                carry_hooks(old, new)
                new._is_hf_initialized = True
                for parent, child in places[id(old)]:
                    parent._modules[child] = new
                made[name] = new
        if not made:
            names = [name for group in config.layers or () for name in group["names"]]
            raise ModelError(
                f"{self._where}: {type(model).__name__} has none of the layers that its "
                f"config.json says are quantized ({listed(names, _SHOWN)}); load it with the class "
                "that was saved"
            )
        return made

    def _name(self, stored: str, names: Collection[str]) -> str | None:
        """Return the model's name for a stored layer, with or without the model's prefix."""
        prefix = f"{self._prefix}."
        for name in (stored, prefix + stored, stored.removeprefix(prefix)):
            if name in names:
                return name
        return None

    def _aliases(self, config: OctavoConfig) -> dict[str, str]:
        """Tensors that files hold once, under the names that this model has: one to the other."""
        modules = self._layers
        found = {}
        for alias, source in config.shared.items():
            (alias_layer, _, key), (source_layer, _, other) = (
                name.rpartition(".") for name in (alias, source)
            )
            here, there = (self._name(name, modules) for name in (alias_layer, source_layer))
            if here is None:
                continue
            if there is None:
                raise ModelError(
                    f"{self._where}: {alias} is held under the name {source}, and this model has "
                    f"no {source_layer}: load it with the class that was saved"
                )
            if key not in modules[here]._buffers or other not in modules[there]._buffers:
                raise ModelError(
                    f"{self._where}: config.json is damaged: quantization_config.shared says "
                    f"{alias!r} is {source!r}; copy the folder again, whole"
                )
            modules[here]._non_persistent_buffers_set.add(key)  # no file has it
            found[f"{here}.{key}"] = f"{there}.{other}"
        return found

    def finish(self, model: nn.Module) -> None:
        """Put shared tensors in all their places. Raises ModelError for those in no file."""
        lacking = [
            f"{name}.{key}"
            for name, module in self._layers.items()
            for key, tensor in module._buffers.items()
            if f"{name}.{key}" not in self._shared
            and tensor is not None
            and not getattr(tensor, "_is_hf_initialized", False)
        ]
        if lacking:
            raise ModelError(
                f"{self._where}: its files lack {listed(lacking, _SHOWN)}, of layers that "
                "config.json says are quantized; copy the folder again, whole"
            )
        for alias, source in self._shared.items():
            name, _, key = alias.rpartition(".")
            layer = self._layers[name]
            layer._non_persistent_buffers_set.discard(key)
            layer._fill(**{key: model.get_buffer(source)})
        self._refuse_not_finite()

    def _refuse_not_finite(self) -> None:
        """Raise ModelError for a scale that is NaN or infinite, which would spoil every output."""
        for name, module in self._layers.items():
            for key, tensor in module._buffers.items():
                known = tensor is not None and "scale" in key and not tensor.is_meta
                if known and not torch.isfinite(tensor).all():
                    wrong = tensor[~torch.isfinite(tensor)][0].item()
                    raise ModelError(
                        f"{self._where}: {name}.{key} holds {wrong}, which is no scale; copy the "
                        "folder again, whole"
                    )


def check_sizes(model: Any, layers: Mapping[str, nn.Module], files: Sequence[str]) -> None:
    """Raise ModelError where a tensor of `layers` has another shape in the files."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    held = {
        stored.name: (stored.shape, file)
        for file in files
        if file.endswith(".safetensors")
        for stored in file_tensors(Path(file))
    }
    for layer, module in layers.items():
        for key, tensor in module._buffers.items():
            full = f"{layer}.{key}"
            for name in (full, prefix + full, full.removeprefix(prefix)):
                shape, file = held.get(name, (None, ""))
                if tensor is not None and shape not in (None, tuple(tensor.shape)):
                    raise ModelError(
                        f"{file}: {name} is {list(shape or ())}, and by config.json it is "
                        f"{list(tensor.shape)}; copy the folder again, whole"
                    )


def check_files(files: Sequence[str]) -> dict[str, str]:
    """Return the metadata of a checkpoint's files. Raises ModelError where one is not whole."""
    found: dict[str, str] = {}
    for file in files:
        if file.endswith(".safetensors"):
            found |= read_metadata(Path(file))
    return found


def file_metadata(report: Report | None) -> dict[str, str]:
    """Return the metadata of each file of a folder: the version, and the report if any."""
    found = {VERSION_KEY: octavo.__version__}
    if report is not None:
        data = report_data(report) | {"recipe": dict(report.recipe)}
        found[REPORT_KEY] = json.dumps(data, separators=(",", ":"))
    return found


def report_in(text: str) -> Report | None:
    """Return the report in a file's metadata; None where this Octavo cannot read the report."""
    try:
        return Report.from_dict(json.loads(text))
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return None
