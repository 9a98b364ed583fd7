"""GGUF files of llama.cpp: their blocks as layers here, without floats in between.

blk.0.ffn_up.weight Q4_0 [n, k]   ->   model.layers.0.mlp.up_proj: QuantizedLinear, int4-32
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from octavo.checkpoints.gguf_file import GgufFile, GgufTensor
from octavo.checkpoints.gguf_weights import (
    StoredGroups,
    is_float,
    read_floats,
    read_groups,
    round_floats,
)
from octavo.core.kernels import WeightFormat
from octavo.core.metrics import sqnr_db
from octavo.errors import ModelError, listed
from octavo.recipe import FLOAT, Decision, Recipe
from octavo.results.report import WEIGHTS_OF, LayerOutcome, Report, Verification
from octavo.torch.hub.gguf_config import ROPE_TENSORS
from octavo.torch.hub.gguf_names import GgufNames, Place
from octavo.torch.hub.group_layers import (
    empty_layer,
    holds_groups,
    scheme_of,
    table_factor,
)
from octavo.torch.memory import give_back, tensor_of
from octavo.torch.model_tensors import places_of
from octavo.torch.replace.convert import Converter
from octavo.torch.replace.inventory import ModuleLayer, inventory
from octavo.torch.replace.mapping import default_mapping
from octavo.torch.replace.plan import recipe_answers, recipe_decisions
from octavo.torch.replace.user_attributes import carry_hooks
from octavo.torch.reports import make_report, model_bytes

_SHOWN = 5


@dataclass(frozen=True)
class _Taken:
    """How a tensor of the file became a layer. `kept`: with its own integers."""

    tensor: GgufTensor
    format: WeightFormat
    kept: bool
    sqnr_db: float | None


@dataclass
class GgufLayers:
    """The layers of a file, put into a skeleton of its model; `tensors` is what fills it.

    What the file has as integers stays, but for layers that the user's `recipe` leaves float by
    name. `dtype` is that of floats.
    """

    model: Any
    file: GgufFile
    recipe: Recipe
    dtype: torch.dtype
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._start = perf_counter()
        self._parts = inventory(self.model)
        modules = dict(self.model.named_modules())
        self._decisions = recipe_decisions(self._parts, self.recipe, modules)
        said = zip(self._parts, self._decisions, strict=True)
        self._float = {part.module for part, decision in said if left_by_user(decision)}
        self._taken: dict[str, _Taken] = {}
        self._sizes: dict[str, int] = {}
        self._scales: dict[str, Tensor | None] = {}  # before a table's factor
        self._unplaced: list[str] = []
        self._pairs: list[tuple[str, str]] = []
        self._tables: dict[str, nn.Module] = {}
        names, places = GgufNames(self.model, self.file), places_of(self.model)
        with torch.device("cpu"), torch.inference_mode(False):
            for tensor in self.file.tensors:
                self._take(tensor, names.place(tensor), modules, places)
            self._tie(modules, places)
        for name in self._taken:  # quantized layers take no other
            if f"{name}.bias" in self.tensors:
                self.tensors[f"{name}.bias"] = self.tensors[f"{name}.bias"].float()
        self._check_whole()

    def _take(
        self,
        tensor: GgufTensor,
        place: Place | None,
        modules: Mapping[str, nn.Module],
        places: Mapping[int, Any],
    ) -> None:
        if tensor.name in ROPE_TENSORS:
            return
        if place is None:
            self._unplaced.append(tensor.name)
            return
        self._sizes[place.name] = tensor.bytes
        name, _, key = place.name.rpartition(".")
        module = modules.get(name)
        if module is None or key != "weight" or not self._in_groups(name, module, tensor):
            self.tensors[place.name] = self._floats(tensor, place)
            return
        found = _groups(self.file, tensor, place)
        self._check_shape(place.name, found.shape, module)
        held = {"packed": tensor_of(found.packed), "scale": tensor_of(found.channel_scale)}
        self._scales[name] = held["scale"]
        self._put(name, module, places, found.format, held)
        ratio = None if found.kept else sqnr_db(found.signal, found.noise)
        self._taken[name] = _Taken(tensor, found.format, found.kept, ratio)

    def _in_groups(self, name: str, module: nn.Module, tensor: GgufTensor) -> bool:
        tied = {t.rpartition(".")[0] for t, s in self._tied() if s == f"{name}.weight"}
        wanted = not self._float & {name, *tied}
        return wanted and not is_float(tensor) and holds_groups(module)

    def _tied(self) -> list[tuple[str, str]]:
        return list(dict(self.model.all_tied_weights_keys).items())

    def _floats(self, tensor: GgufTensor, place: Place) -> Tensor:
        values = read_floats(self.file, tensor)
        if values.dtype == np.uint16:
            values = torch.from_numpy(values).view(torch.bfloat16).float().numpy()
        found = torch.from_numpy(np.ascontiguousarray(place.undo(values))).to(self.dtype)
        self._check_shape(place.name, found.shape)
        return found

    def _check_shape(self, name: str, shape: Any, module: Any = None) -> None:
        owner, _, key = name.rpartition(".")
        expected = tuple(getattr(module or self.model.get_submodule(owner), key).shape)
        if tuple(shape) != expected:
            raise ModelError(
                f"{self.file.path}: {name} has the shape {tuple(shape)} there, and "
                f"{type(self.model).__name__} needs {expected}: the file's metadata and its "
                "tensors do not belong together"
            )

    def _put(
        self,
        name: str,
        module: Any,
        places: Mapping[int, Any],
        weight_format: WeightFormat,
        buffers: Mapping[str, Tensor | None],
    ) -> None:
        new = empty_layer(module, weight_format, self.dtype)
        carry_hooks(module, new)
        new._is_hf_initialized = True
        for parent, child in places[id(module)]:
            parent._modules[child] = new
        factor = table_factor(module)
        for key, value in buffers.items():
            if value is None:
                continue
            scaled = key == "scale" and factor is not None
            self.tensors[f"{name}.{key}"] = value * factor if scaled else value

    def _tie(self, modules: Mapping[str, nn.Module], places: Mapping[int, Any]) -> None:
        """Give layers that share a weight the same packed one."""
        for target, source in self._tied():
            name, origin = target.rpartition(".")[0], source.rpartition(".")[0]
            taken = self._taken.get(origin)
            if taken is None or name in self._taken or target in self.tensors:
                continue
            held = {"packed": self.tensors[f"{origin}.packed"], "scale": self._scales[origin]}
            self._put(name, modules[name], places, taken.format, held)
            self._taken[name] = taken
            self._pairs.append((name, origin))
            self._tables[origin] = modules[origin]

    def _check_whole(self) -> None:
        """Raise ModelError where the file has no tensor for a parameter of the model."""
        tied = {target for target, _ in self._tied()}
        lacking = [
            name
            for name, _ in self.model.named_parameters(remove_duplicate=False)
            if name not in self.tensors and name not in tied
        ]
        if lacking:
            advice = "get the file again, or convert the model anew with llama.cpp"
            if self._unplaced:
                unplaced = listed(self._unplaced, _SHOWN)
                advice = f"it has no place for {unplaced}; a newer transformers may know the file"
            raise ModelError(
                f"{self.file.path} ({self.file.architecture}) lacks {listed(lacking, _SHOWN)}, "
                f"which {type(self.model).__name__} needs: {advice}"
            )

    def finish(self, model: nn.Module) -> Report:
        """Quantizes what the file has as floats, as the recipe says; what became of each layer."""
        self.tensors = {}  # they are the model's now
        give_back()
        self._share(model)
        left = inventory(model)
        answers = recipe_answers(self._parts, self._decisions, self.recipe)
        own = {part.layer.name: answers[part.layer.name] for part in left}
        converter = Converter(model, left, own, default_mapping())
        if converter.planned:
            try:
                with torch.inference_mode(False):
                    converter.convert(model)
            except ValueError as error:  # NaN among its floats
                raise ModelError(f"{self.file.path}: {error}") from error
        said = self.recipe.to_dict() | {WEIGHTS_OF: "GGUF"}
        made = make_report(model, left, converter, said, converter.notes, 0, self._start)
        rounded = {outcome.layer.name: outcome for outcome in made.layers}
        outcomes = [self._outcome(model, part, rounded) for part in self._parts]
        return replace(
            made,
            layers=tuple(outcomes),
            model_bytes_before=sum(tensor.bytes for tensor in self.file.tensors),
            model_bytes_after=model_bytes(model),
            verification=Verification("skipped", detail="no inputs to compare with"),
            notes=(*self._notes(), *made.notes),
        )

    def _share(self, model: nn.Module) -> None:
        """Layers of one weight hold the same tensors: what transformers placed are views."""
        for target, source in self._pairs:
            new, origin = model.get_submodule(target), model.get_submodule(source)
            new._buffers["packed"] = origin._buffers["packed"]
            if table_factor(self._tables[source]) is None:
                new._buffers["scale"] = origin._buffers["scale"]

    def _outcome(
        self, model: nn.Module, part: ModuleLayer, others: Mapping[str, LayerOutcome]
    ) -> LayerOutcome:
        size = self._sizes.get(f"{part.module}.weight", 0)
        taken = self._taken.get(part.module)
        if taken is None:
            found = others[part.layer.name]
            after = found.bytes_after
            return replace(found, bytes_before=size, bytes_after=after)
        new = model.get_submodule(part.module)
        shared = f"{part.module}.weight" not in self._sizes
        after = sum(b.nbytes for key, b in new.named_buffers() if key != "bias")
        group = getattr(new, "group", None)
        notes = () if taken.kept else (f"{taken.tensor.kind.name} rounded to {taken.format.value}",)
        return LayerOutcome(
            part.layer,
            True,
            scheme_of(taken.format, group=group).describe(),
            "",
            size,
            0 if shared else after,
            taken.sqnr_db,
            notes,
        )

    def _notes(self) -> list[str]:
        notes = []
        for kept in (True, False):
            kinds = sorted({t.tensor.kind.name for t in self._taken.values() if t.kept == kept})
            count = sum(t.kept == kept for t in self._taken.values())
            what = "keep the file's integers" if kept else "were rounded anew: no groups hold them"
            if kinds:
                notes.append(f"{count} weights {what} ({', '.join(kinds)})")
        if self._unplaced:
            named = listed(self._unplaced, _SHOWN)
            notes.append(f"the model has no place for {named} of the file")
        return notes


def left_by_user(decision: Decision) -> bool:
    """Tell whether a rule by name leaves the layer float."""
    return decision.scheme == FLOAT and not decision.left_by_preset


def _groups(file: GgufFile, tensor: GgufTensor, place: Place) -> StoredGroups:
    """Read the tensor's groups in the parameter's row order; rounds anew if inputs move."""
    rows = place.rows(tensor.shape[0])
    if rows is not None:
        unchanged = np.array_equal(rows, np.arange(len(rows)))
        return read_groups(file, tensor, None if unchanged else rows)
    values = np.asarray(place.undo(read_floats(file, tensor)), np.float32)
    return round_floats(file, values, tensor)
