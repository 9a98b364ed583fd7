"""Folders that others quantized: integers as they are stored become packed layers.

q_proj.weight int8 [n, k]  q_proj.weight_scale [n, 1]    ->   QuantizedLinear: packed, scale
q_proj.qweight  q_proj.qzeros  q_proj.scales             ->   the same
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from octavo.errors import ModelError, NothingQuantizedError, listed
from octavo.results.report import WEIGHTS_OF, LayerOutcome, Report, Verification
from octavo.torch.hub.folders import check_sizes
from octavo.torch.hub.headers import file_tensors
from octavo.torch.hub.mapped_files import MappedFiles
from octavo.torch.hub.stored_linears import StoredLinear, Waiting
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.memory import give_back
from octavo.torch.model_tensors import places_of
from octavo.torch.replace.inventory import ModuleLayer, inventory
from octavo.torch.replace.user_attributes import carry_hooks, keep_own
from octavo.torch.reports import model_bytes

_SHOWN = 5


class Config(Protocol):
    """What such a folder says of its layers."""

    @property
    def method(self) -> str:
        """Say who wrote the folder."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a report says of the folder."""

    def stored(self, name: str, kind: str, files: Collection[str] = ()) -> StoredLinear | None:
        """Return how the module of this name and type is stored; None where it is float.

        `files` name the tensors that there are.
        """


class ForeignLayers:
    """The layers of such a folder, put into a skeleton of its model."""

    def __init__(self, model: nn.Module, config: Config, files: Sequence[str]) -> None:
        self._method, self._said = config.method, config.notes
        self._where = Path(files[0]).parent if files else Path()
        self._files = MappedFiles(files)
        self._before = model_bytes(model)
        self._parts = inventory(model)
        self._old: dict[str, nn.Module] = {}
        places, names = places_of(model), _names(model, files)
        for name, module in list(model.named_modules()):
            stored = config.stored(name, type(module).__name__, names)
            if stored is None:
                continue
            if type(module) is not nn.Linear:
                raise ModelError(
                    f"{self._where}: {name} is a {type(module).__name__}, which is quantized by "
                    f"{self._method} there; Octavo reads Linear: quantize the float checkpoint "
                    "with OctavoConfig()"
                )
            self._old[name] = module
            _put(places, module, Waiting(module, stored))
        if not self._old:
            raise NothingQuantizedError(
                f"{self._where}: no layer of {type(model).__name__} is quantized by "
                f"{self._method} there; load it without quantization_config"
            )
        check_sizes(model, {name: model.get_submodule(name) for name in self._old}, files)

    def finish(self, model: nn.Module) -> Report:
        """Packs what was read, layer by layer. Raises ModelError for what no file had."""
        lacking = [
            f"{name}.{key}"
            for name in self._old
            for key, tensor in model.get_submodule(name).state_dict(keep_vars=True).items()
            if not getattr(tensor, "_is_hf_initialized", False)
        ]
        if lacking:
            raise ModelError(
                f"{self._where}: its files lack {listed(lacking, _SHOWN)}, which the "
                f"{self._method} of its config.json speaks of; copy the folder again, whole"
            )
        places = places_of(model)
        with torch.inference_mode(False):
            for name, old in self._old.items():
                stored: Any = model.get_submodule(name)
                self._files.used(stored.nbytes)
                new = self._layer(name, stored)
                keep_own(old, new)
                carry_hooks(old, new)
                _put(places, stored, new)
        self._files.release()
        give_back()
        return self._report(model)

    def _layer(self, name: str, stored: Waiting) -> QuantizedModule:
        try:
            return stored.layer()
        except ValueError as error:
            raise ModelError(f"{self._where}: {name} ({self._method}): {error}") from None

    def _report(self, model: nn.Module) -> Report:
        return Report(
            source=type(model).__name__,
            output="",
            recipe={"name": self._method, WEIGHTS_OF: self._method},
            target="torch",
            cpu="",
            quant_format="",
            layers=tuple(self._outcome(model, part) for part in self._parts),
            model_bytes_before=self._before,
            model_bytes_after=model_bytes(model),
            opset=0,
            min_onnxruntime="",
            verification=Verification("skipped", detail="no inputs to compare with"),
            seconds=0.0,
            notes=(
                f"weights are those of a folder of {self._method}",
                *self._said,
                *self._of_inputs(model),
            ),
        )

    def _of_inputs(self, model: nn.Module) -> list[str]:
        new: list[Any] = [model.get_submodule(module) for module in self._old]
        if not any(getattr(layer, "group", 0) for layer in new):
            return []
        return ["inputs of layers are quantized to 8 bits in groups while the model runs"]

    def _outcome(self, model: nn.Module, part: ModuleLayer) -> LayerOutcome:
        size = part.layer.bytes
        if part.module not in self._old:
            return LayerOutcome(
                part.layer, False, "float", f"{self._method} holds it so", size, size
            )
        new: Any = model.get_submodule(part.module)
        after = sum(b.nbytes for key, b in new.named_buffers() if key != "bias")
        return LayerOutcome(part.layer, True, StoredLinear.scheme(new).describe(), "", size, after)


def _put(places: Mapping[int, Any], old: nn.Module, new: nn.Module) -> None:
    for parent, child in places[id(old)]:
        parent._modules[child] = new


def _names(model: Any, files: Sequence[str]) -> set[str]:
    """Return the names of the files' tensors, also with and without the base model's prefix."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    ours = [Path(file) for file in files if file.endswith(".safetensors")]
    found = {tensor.name for file in ours for tensor in file_tensors(file)}
    return found | {prefix + name for name in found} | {n.removeprefix(prefix) for n in found}
