"""From answers to layers: puts quantized layers in the place of float ones."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from octavo.core.progress import Progress, quiet
from octavo.torch.blocks.fast_path import leave_fast_paths
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.memory import float32
from octavo.torch.model_tensors import places_of
from octavo.torch.quantizer import Quantizer, shared_weights
from octavo.torch.replace.custom_layers import custom_targets, is_custom, make_custom, unused_types
from octavo.torch.replace.inventory import ModuleLayer, is_transposed, weights_of
from octavo.torch.replace.plan import Replacement, attention_around, replacement, settle_layers
from octavo.torch.replace.user_attributes import carry_hooks, keep_own, made_by_hooks, settle_weight
from octavo.torch.weight_choice import HALVES, REPAIR, Answer, WeightChoice


class Converter:
    """A plan for the layers of one model, and its execution.

    `planned` maps the layers that will be quantized, by name, to what they become; `reason` tells
    for the others why they stay float. `chosen` are modules by name, with or without weights, and
    what is said of them: where `mapping` has types of a user's own for those without, they are
    replaced too, after what is in them. `made` has the new modules by name.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: Collection[ModuleLayer],
        answers: Mapping[str, Answer],
        mapping: Mapping[type, type],
        chosen: Mapping[str, WeightChoice] | None = None,
    ) -> None:
        self.made: dict[str, nn.Module] = {}
        self.notes: list[str] = []
        self.quantizer = Quantizer()
        modules = dict(model.named_modules())

        def answered(part: ModuleLayer, answer: Answer) -> Replacement:
            module = modules[part.module]
            assert answer.choice is not None
            return replacement(module, part.layer, answer.choice, mapping, named=answer.named)

        around = attention_around(modules, parts)
        self._settled = settle_layers(parts, around, answers, answered)
        self.planned = {n: r.choice for n, r in self._settled.items() if r.choice is not None}
        self._parts: dict[str, list[ModuleLayer]] = defaultdict(list)
        self._classes: dict[str, type] = {}
        for part in parts:
            becomes = self._settled[part.layer.name]
            self._parts[part.module].append(part)
            self.quantizer.note(part.layer.name, becomes.note)
            if becomes.target is not None:
                self._classes[part.module] = becomes.target
        self._parts = {
            name: some
            for name, some in self._parts.items()
            if any(part.layer.name in self.planned for part in some)
        }
        holding = {part.module for part in parts}
        self._chosen = {n: c for n, c in (chosen or {}).items() if n not in holding}
        self._mapping = mapping
        self._custom = custom_targets(model, self._chosen, mapping)

    def reason(self, part: ModuleLayer) -> str:
        """Say why a layer stays float; "" where it does not."""
        return self._settled[part.layer.name].reason

    def leave(self, name: str, reason: str) -> None:
        """Let the module `name`, which was planned, stay float; `reason` says why of its layers.

        For what shows only when weights are there.
        """
        for part in self._parts.pop(name):
            if self.planned.pop(part.layer.name, None) is not None:
                self._settled[part.layer.name] = Replacement(reason=reason)

    def modules(self) -> list[str]:
        """Return the dotted names of the modules that are to be replaced and are not yet."""
        return [name for name in self._parts if name not in self.made]

    def replaces(self) -> set[str]:
        """Return the dotted names of the modules that Octavo's own layers will replace."""
        return {n for n in self._parts if not is_custom(self._classes[n])}

    def check(self, model: nn.Module) -> None:
        """Raise what `convert` would find out halfway, when parts of `model` are gone already.

        ValueError for a weight with NaN, infinity or what its new dtype cannot hold, OptionError
        for a qconfig that the layer cannot keep to.
        """
        for name, parts in self._parts.items():
            planned = [part for part in parts if part.layer.name in self.planned]
            storages = {self.planned[part.layer.name].storage for part in planned}
            module = model.get_submodule(name)
            weights = {**weights_of(module), **made_by_hooks(module)}
            turned = is_transposed(module)
            ends_of = _ends if storages <= set(HALVES) else _row_ends
            ends = {
                key: ends_of((weight.t() if turned else weight).detach())
                for key, weight in weights.items()
            }
            for key, some in ends.items():
                _check_range(some, storages, f"{name or 'the model'}: {key}")
            if issubclass(self._classes[name], QuantizedModule):
                for part in planned:
                    own = {key.rpartition(".")[2] for key, _ in part.layer.weights}
                    for key, some in ends.items():
                        if key in own and "weight" in key:
                            self._try_choice(part, some)

    def _try_choice(self, part: ModuleLayer, ends: Tensor) -> None:
        """Quantize a small weight as planned: what is wrong with a choice shows at once.

        The weight is `ends`, each row's least and greatest value: it gets the scales of the whole.
        """
        name, target = part.layer.name, self._classes[part.module]
        choice = self.planned[name]
        if choice.storage not in HALVES and issubclass(target, QuantizedModule):
            target.try_choice(choice, float32(ends), name)

    def convert(self, model: nn.Module, progress: Progress = quiet) -> nn.Module:
        """Replace the planned layers of `model`; return another object if it is a layer itself.

        The model is put into eval mode first: weights that are computed are taken as they are then.
        """
        model.eval()
        modules = dict(model.named_modules())
        self.quantizer.shared = _shared(model)  # of a copy: it has tensors of its own
        self.quantizer.linears = self._linears(modules)
        places = places_of(model)
        left = {*self.modules()}
        planned = [name for name in modules if name in left]
        for done, name in enumerate(planned):
            progress("quantizing", done, len(planned))
            old = modules.pop(name)
            new = self.convert_module(name, old)
            for parent, child_name in places[id(old)]:
                parent._modules[child_name] = new
            for child_name, child in new._modules.items():
                if child is not None:
                    places[id(child)].append((new, child_name))
            if old is model:
                model = new
        for name in reversed([name for name in modules if name in self._custom]):
            old = modules.pop(name)
            new = make_custom(self._custom[name], old, self._chosen[name])
            carry_hooks(old, new)
            new.train(old.training)
            self.made[name] = new
            self.notes.append(f"{name}: a {type(new).__name__} stands there, as mapping says")
            for parent, child_name in places[id(old)]:
                parent._modules[child_name] = new
        for key in unused_types(model, self._mapping, self.made):
            self.notes.append(
                f"mapping has {key}; no module of it was chosen and could be replaced"
            )
        for module in model.modules():
            module.__dict__.pop("qconfig", None)
        self.notes += leave_fast_paths(model, list(self.made.values()))
        return model

    def _linears(self, modules: Mapping[str, nn.Module]) -> dict[int, set[Hashable]]:
        """Return, by the ids of weights, what linear layers will hold them as."""
        found: dict[int, set[Hashable]] = defaultdict(set)
        for name, parts in self._parts.items():
            module, choice = modules[name], self.planned.get(parts[0].layer.name)
            linear = issubclass(self._classes[name], QuantizedLinear) and not is_transposed(module)
            if linear and choice is not None and choice.storage not in HALVES:
                found[id(module.weight)].add(choice.held)
        return found

    def convert_module(self, name: str, old: nn.Module) -> nn.Module:
        """Make the replacement of the module `name`, which is `old`; the caller puts it there."""
        parts = self._parts[name]
        choices = [self.planned.get(part.layer.name) for part in parts]
        note = settle_weight(old)
        if note:
            self.notes.append(f"{name or 'the model'}: {note}")
        new = make_replacement(old, self._classes[name], parts, choices, self.quantizer)
        self.made[name] = new
        return new

    def refusal(self, name: str, old: nn.Module) -> str:
        """Say why the module `name`, now that it has weights, cannot become what was planned.

        Returns "" where it can.
        """
        target = self._classes[name]
        if not issubclass(target, QuantizedModule):
            return ""
        choices = [self.planned.get(part.layer.name) for part in self._parts[name]]
        return next((r for c in choices if c is not None and (r := target.refuses(old, c))), "")


def make_replacement(
    old: nn.Module,
    target: Any,
    parts: Sequence[ModuleLayer],
    choices: Sequence[WeightChoice | None],
    quantizer: Quantizer,
) -> nn.Module:
    """Make the `target` that replaces `old`, whose layers are `parts`, with its hooks.

    There is a choice for each part; None is a layer of an RNN stack that stays float.
    """
    first = parts[0]
    if not issubclass(target, QuantizedModule):
        assert choices[0] is not None
        new = make_custom(target, old, choices[0])
    elif first.index is not None:
        new = target.from_float(old, list(choices), quantizer, first.module)
    else:
        new = target.from_float(old, choices[0], quantizer, first.layer.name)
    if isinstance(new, QuantizedModule):
        keep_own(old, new)
    carry_hooks(old, new)
    new.train(old.training)
    return new


def _check_range(ends: Tensor, storages: Collection[str], where: str) -> None:
    if not ends.isfinite().all():
        raise ValueError(f"{where} holds NaN or infinity; {REPAIR}")
    for storage in ("float32", *sorted(set(storages).intersection(HALVES))):
        if not ends.to(getattr(torch, storage)).isfinite().all():
            raise ValueError(f"{where} holds values beyond the range of {storage}")


def _ends(weight: Tensor) -> Tensor:
    """Return [2]: the least and the greatest value, or NaN."""
    return torch.stack(weight.aminmax()) if weight.numel() else weight


def _row_ends(weight: Tensor) -> Tensor:
    """Return the ends [n, 1, ..., 2] of each row's range in a weight [n, ...]; NaN if one is in.

    Of a vector, which a hook may make beside a weight, the ends of the whole.
    """
    if not weight.numel() or weight.dim() < 2:
        return _ends(weight)
    flat = weight.flatten(1)
    shape = (len(flat), *(1 for _ in range(weight.dim() - 2)), 2)
    return torch.stack([flat.amin(1), flat.amax(1)], 1).reshape(shape)


# docs/notes/torch.md: "A copy does not copy what it replaces"
def copied(model: nn.Module, converter: Converter) -> nn.Module:
    """Return a deep copy that shares the weights to be replaced: they take no more memory."""
    replaced = converter.replaces()
    kept: set[int] = set()
    going: dict[int, Tensor] = {}
    memo: dict[int, Any] = {}
    for name, module in model.named_modules():
        own = name in replaced or _below_replaced(name, replaced)
        for tensor in _own_tensors(module):
            if own:
                going[id(tensor)] = tensor
                continue
            kept.add(id(tensor))
            if not tensor.is_leaf:  # made by a hook in each call; torch would refuse to copy it
                memo[id(tensor)] = tensor.detach().clone()
    memo |= {i: t for i, t in going.items() if i not in kept}
    return copy.deepcopy(model, memo)


def twin(model: nn.Module) -> nn.Module:
    """Return a deep copy in eval mode over the same weights: modules and buffers of its own."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        memo |= {id(tensor): tensor for tensor in _own_tensors(module)}
    for buffer in model.buffers():  # a forward may write into them
        memo[id(buffer)] = buffer.detach().clone()
    return copy.deepcopy(model, memo).eval()


def _below_replaced(name: str, replaced: set[str]) -> bool:
    """Tell whether `name` is among the parametrizations of a replaced layer.

    MultiheadAttention's out_proj goes on by itself.
    """
    return any(
        name.startswith(f"{r}.parametrizations." if r else "parametrizations.") for r in replaced
    )


def _own_tensors(module: nn.Module) -> list[Tensor]:
    plain = [v for v in module.__dict__.values() if isinstance(v, Tensor)]
    held = (*module._parameters.values(), *module._buffers.values(), *plain)
    flat = [v for v in module.__dict__.get("_flat_weights", ()) if isinstance(v, Tensor)]
    return [v for v in (*held, *flat) if v is not None]


def _shared(model: nn.Module) -> frozenset[int]:
    found = [
        weight
        for module in model.modules()
        if not is_parametrized(module)
        for weight in weights_of(module).values()
    ]
    return shared_weights(found)
