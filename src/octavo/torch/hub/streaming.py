"""Quantizes a model while its weights arrive: planned on a skeleton, a layer at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from octavo.errors import NothingQuantizedError, OptionError, did_you_mean
from octavo.recipe import FLOAT, Recipe, Rule
from octavo.recipe.bit_budget import mixes
from octavo.recipe.weight_losses import weight_losses
from octavo.results.names import counted_reasons
from octavo.results.report import Report
from octavo.torch.hub.config import WeightLayout
from octavo.torch.hub.mapped_files import MappedFiles
from octavo.torch.hub.stored_rows import stored_rows
from octavo.torch.memory import float32
from octavo.torch.model_tensors import places_of
from octavo.torch.replace.convert import Converter
from octavo.torch.replace.inventory import ModuleLayer, inventory
from octavo.torch.replace.mapping import default_mapping
from octavo.torch.replace.plan import recipe_answers, recipe_decisions
from octavo.torch.reports import make_report, model_bytes

ABSENT = "its weights are not in the checkpoint: they are random until it is trained"


# docs/notes/torch.md: "A checkpoint is quantized while it is read"
class StreamedQuantization:
    """A recipe's plan for a model on device meta, carried out as its tensors are read.

    `tied` has the tensors that the model shares: a name to the name of the other. A layer whose
    tensors are all its own is quantized as soon as the last of them is there (`take`), and no
    other float weight is in memory meanwhile. Layers that share weights, or are made of several
    modules, follow when all is loaded (`finish`). `files` are those the tensors are mapped from.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        skip: Collection[str],
        layout: WeightLayout,
        tied: Mapping[str, str],
        files: Collection[str],
    ) -> None:
        self._start = perf_counter()
        self._model = model
        self._files = MappedFiles(files)
        with torch.device("cpu"), _tied(model, tied):
            self._parts = inventory(model)
            modules = dict(model.named_modules())
            self._recipe = skipping(recipe, self._parts, skip)
            if layout is WeightLayout.COMPRESSED_TENSORS:
                self._recipe = _linear_alone(self._recipe, self._parts, model)
            if recipe.mix is not None and not recipe.mix.sensitivities:
                self._recipe = _mixed_by_files(self._recipe, self._parts, files)
            decisions = recipe_decisions(self._parts, self._recipe, modules)
            answers = recipe_answers(self._parts, decisions, self._recipe)
            self._converter = Converter(model, self._parts, answers, default_mapping())
            self._before = model_bytes(model)
        if layout is WeightLayout.COMPRESSED_TENSORS:
            _refuse_choices(recipe, self._converter)
        if not self._converter.planned:
            raise NothingQuantizedError(_nothing(model, self._parts, self._converter))
        self._places = places_of(model)
        self._waiting = _own_tensors(modules, self._converter.modules(), tied)
        self._home = {f"{name}.{key}": name for name, keys in self._waiting.items() for key in keys}
        self.missing: set[str] = set()

    def takes(self, name: str) -> bool:
        """Tell whether the tensor `name` belongs to a layer that is quantized on arrival."""
        return name in self._home

    def take(self, name: str, tensor: Tensor) -> bool:
        """Hold the tensor; quantize its layer if it was the layer's last one.

        False where the tensor has not the shape that the model has; its layer then stays as it is.
        """
        module_name = self._home[name]
        module = self._model.get_submodule(module_name)
        key = name.rpartition(".")[2]
        held = module._parameters if key in module._parameters else module._buffers
        expected: Any = held[key]
        if tensor.shape != expected.shape:
            self._leave(module_name)
            return False
        if held is module._parameters:
            tensor = nn.Parameter(tensor, requires_grad=expected.requires_grad)
        _mark_initialized(tensor)  # its layer may yet stay float
        held[key] = tensor
        waiting = self._waiting[module_name]
        waiting.discard(key)
        self._files.used(tensor.nbytes)
        if not waiting:
            del module, held, tensor, expected  # or they would outlive what is made of them
            self._quantize(module_name)
        return True

    def _leave(self, module_name: str) -> None:
        """Has the layer wait for the end."""
        del self._waiting[module_name]
        self._home = {n: home for n, home in self._home.items() if home != module_name}

    def _quantize(self, name: str) -> None:
        module = self._model.get_submodule(name)
        reason = self._converter.refusal(name, module)
        if reason:
            self._converter.leave(name, reason)
            return
        with torch.device("cpu"), torch.inference_mode(False):
            new = self._converter.convert_module(name, module)
        _mark_initialized(new, *new.buffers())
        for parent, child in self._places[id(module)]:
            parent._modules[child] = new

    def finish(self) -> Report:
        """Quantizes what is left, now that all weights are there, and says what became of each.

        `missing` names the tensors that no file had. Raises NothingQuantizedError.
        """
        modules = dict(self._model.named_modules())
        for name in self._converter.modules():
            own = {f"{name}.{key}" for key in modules[name].state_dict()}
            reason = self._converter.refusal(name, modules[name])
            if own & self.missing:
                reason = ABSENT
            if reason:
                self._converter.leave(name, reason)
        if not self._converter.planned:
            raise NothingQuantizedError(_nothing(self._model, self._parts, self._converter))
        with torch.inference_mode(False):
            self._converter.convert(self._model)
        self._files.release()
        return make_report(
            self._model,
            self._parts,
            self._converter,
            self._recipe.to_dict(),
            self._converter.notes,
            self._before,
            self._start,
        )


def _mixed_by_files(
    recipe: Recipe, parts: Collection[ModuleLayer], files: Collection[str]
) -> Recipe:
    """Return `recipe` with a mix that knows what weights tell of losses.

    The weights are those that the files have by name. They are [outputs, inputs] there; some
    rows of each are read.
    """
    assert recipe.mix is not None
    names = {f"{part.module}.weight": part.layer.name for part in parts if mixes(part.layer)}
    found = {}
    for name, rows, elements in stored_rows(files, names):
        losses = weight_losses(float32(rows), elements)
        if losses is not None:
            found[names[name]] = losses
    return replace(recipe, mix=replace(recipe.mix, sensitivities=found))


def _mark_initialized(*held: Any) -> None:
    """Has transformers not fill these modules and tensors with random values."""
    for one in held:
        one._is_hf_initialized = True


def _own_tensors(
    modules: Mapping[str, nn.Module], planned: Collection[str], tied: Mapping[str, str]
) -> dict[str, set[str]]:
    """Return, by planned module, the keys of its tensors, where all are its own.

    A module is left out where it holds others, lies right in a planned one, or shares a tensor.
    """
    shared = {*tied, *tied.values()}
    names = {*planned}
    found = {}
    for name in planned:
        module = modules[name]
        keys = {*module.state_dict()}
        direct = {*module._parameters, *module._buffers}
        alone = keys <= direct and not module._modules and name.rpartition(".")[0] not in names
        if name and keys and alone and not shared & {f"{name}.{key}" for key in keys}:
            found[name] = keys
    return found


@contextmanager
def _tied(model: nn.Module, tied: Mapping[str, str]) -> Iterator[None]:
    """Has the parameters in `tied` be one meanwhile, as they will be when the model is loaded."""
    before = []
    for target, source in tied.items():
        owner, _, key = target.rpartition(".")
        parameters = model.get_submodule(owner)._parameters
        before.append((parameters, key, parameters[key]))
        parameters[key] = model.get_parameter(source)
    try:
        yield
    finally:
        for parameters, key, parameter in reversed(before):
            parameters[key] = parameter


def _linear_alone(recipe: Recipe, parts: Collection[ModuleLayer], model: Any) -> Recipe:
    """Return `recipe`, with layers float that compressed-tensors or vLLM has no form for."""
    head = model.get_output_embeddings()
    rules = []
    for part in parts:
        module, reason = model.get_submodule(part.module), ""
        if type(module) is not nn.Linear:
            reason = f"{WeightLayout.COMPRESSED_TENSORS.value} holds linear layers"
        elif module is head:
            reason = "vLLM has no quantized output embeddings"
        if reason:
            rules.append(Rule(FLOAT, name=part.layer.name, reason=reason))
    return replace(recipe, rules=(*_of_user(recipe), *rules, *recipe.rules))


def _of_user(recipe: Recipe) -> Iterator[Rule]:
    """Rules that name a layer to leave it float: their reasons come first."""
    yield from (rule for rule in recipe.rules if rule.scheme.is_float and rule.name is not None)


def _refuse_choices(recipe: Recipe, converter: Converter) -> None:
    for name, choice in converter.planned.items():
        plain = choice.storage == "int8" and not choice.group and not choice.affine
        if not plain and not choice.format.group:
            raise OptionError(
                f"format and recipe ({recipe.name!r}): {name} would be {choice.description}, and "
                f"{WeightLayout.COMPRESSED_TENSORS.value} holds int8 per channel without zero "
                "points, activations per row, or weights in groups: use recipe='int8' or 'int4', "
                "or format='octavo'"
            )


def skipping(recipe: Recipe, parts: Collection[ModuleLayer], skip: Collection[str]) -> Recipe:
    """Return `recipe`, under which the layers that `skip` names stay float. Raises OptionError."""
    rules = []
    for pattern in skip:
        names = [part.layer.name for part in parts if _matches(pattern, part)]
        if not names:
            known = [part.layer.name for part in parts]
            raise OptionError(f"skip: {pattern!r} matches no layer.{did_you_mean(pattern, known)}")
        rules += [Rule(FLOAT, name=name, reason=f"skip names {pattern!r}") for name in names]
    return recipe.with_rules_first(*rules)


def _matches(pattern: str, part: ModuleLayer) -> bool:
    names = (part.layer.name, part.module)
    within = any(name.startswith(f"{pattern}.") for name in names)
    return within or any(name == pattern or fnmatchcase(name, pattern) for name in names)


def _nothing(model: nn.Module, parts: Collection[ModuleLayer], converter: Converter) -> str:
    reasons = counted_reasons([p.layer.op for p in parts], [converter.reason(p) for p in parts])
    return (
        f"no layer of {type(model).__name__} would be quantized; load it without "
        f"quantization_config{reasons}"
    )
