"""What quantizing some layers alone does to a model's outputs, without a conversion each.

    float model  ->  twin: modules of its own over the same weights
    each set     ->  its layers put in the twin's places, the twin run, the places put back

The caller's model is never written to, so that nothing can be left behind in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from octavo.core.metrics import relative_error
from octavo.errors import InputDataError, RecipeError, brief, did_you_mean
from octavo.recipe import FLOAT, Recipe, Rule
from octavo.results.target import Built, Feed
from octavo.torch.blocks.activations import fuse
from octavo.torch.blocks.fast_path import ENCODERS, leave_fast_path
from octavo.torch.dynamic_type import set_type
from octavo.torch.quantizer import Quantizer
from octavo.torch.replace.convert import make_replacement, twin
from octavo.torch.replace.inventory import ModuleLayer
from octavo.torch.replace.plan import Planner
from octavo.torch.replace.user_attributes import made_by_hooks
from octavo.torch.run.calls import Caller
from octavo.torch.weight_choice import SchemeChoice, WeightChoice

Outputs = Sequence[npt.NDArray[Any]]
Places = dict[int, list[tuple[nn.Module, str]]]
"""By the id of a module: who holds it, under which name."""


def output_errors(
    floating: Built,
    layers: Planner,
    recipe: Recipe,
    sets: Sequence[Collection[str]],
    feeds: Sequence[Feed],
    caller: Caller,
    build: Callable[[Recipe], Built],
) -> list[float]:
    """Return, for each set of layers, the error of the worst floating-point output, over all feeds.

    `build` makes the models that `Variants` cannot. Raises RecipeError for an unknown layer,
    InputDataError where there are no feeds or the float model fails on one.
    """
    known = [part.layer.name for part in layers.parts]
    for name in {name for some in sets for name in some}.difference(known):
        raise RecipeError(f"there is no layer {name!r}.{did_you_mean(name, known)}")
    expected = _expected(floating, feeds)
    variants = Variants(floating.model, layers, recipe)

    def measured(some: frozenset[str]) -> float:
        try:
            if variants.need_conversion(some):
                model = build(_with_only(recipe, known, some)).model
                return _worst(caller, model, feeds, expected)
            with variants.quantized(some) as model:
                return _worst(caller, model, feeds, expected)
        except Exception:  # noqa: BLE001 - a model that fails is as wrong as can be
            return math.inf

    return [measured(frozenset(some)) for some in sets]


def _with_only(recipe: Recipe, known: Sequence[str], some: Collection[str]) -> Recipe:
    """Return `recipe`, under which all of the `known` layers but `some` stay float."""
    floats = (Rule(FLOAT, name=name, reason="not asked for") for name in known if name not in some)
    return recipe.with_rules_first(*floats)


def _expected(floating: Built, feeds: Sequence[Feed]) -> list[Outputs]:
    if not feeds:
        raise InputDataError("there are no inputs to compare outputs on; give at least one")
    try:
        return [floating.run(feed) for feed in feeds]
    except InputDataError:
        raise
    except Exception as error:
        raise InputDataError(f"the float model fails on an input: {brief(error)}") from error


def _worst(
    caller: Caller, model: nn.Module, feeds: Sequence[Feed], expected: Sequence[Outputs]
) -> float:
    worst = 0.0
    for feed, theirs in zip(feeds, expected, strict=True):
        ours = caller.run(model, feed)
        if len(ours) != len(theirs):
            return math.inf
        worst = max(worst, *(_distance(a, b) for a, b in zip(theirs, ours, strict=True)))
    return worst


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the relative error where `a` is finite, as outputs may be masked with infinity.

    Returns 0 for what is not floating.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    if a.dtype.kind == "c":
        a, b = (np.stack([x.real, x.imag]) for x in (a, b))
    if a.dtype.kind != "f":
        return 0.0
    finite = np.isfinite(a)
    return relative_error(a[finite], b[finite]) if np.isfinite(b[finite]).all() else math.inf


def _keep(edits: ExitStack, holder: dict[str, Any], *keys: str) -> None:
    """Have `edits` put back entries that are about to change, or to come."""
    for key in keys:
        if key in holder:
            edits.callback(holder.__setitem__, key, holder[key])
        else:
            edits.callback(holder.pop, key, None)


# docs/notes/torch.md: "Ranking layers converts nothing"
class Variants:
    """The forms of `model` in which some layers are as `recipe` says and all others float.

    Each quantized layer is made once, but for RNN stacks, whose layers are made together.
    """

    def __init__(self, model: nn.Module, layers: Planner, recipe: Recipe) -> None:
        self._model = twin(model)
        self._layers = layers
        self._modules = dict(self._model.named_modules())
        self._places = _places(self._model)
        self._encoders = [
            (module, {id(m) for m in module.modules()})
            for module in self._model.modules()
            if isinstance(module, ENCODERS)
        ]
        self._planned: dict[str, WeightChoice] = {
            d.layer.name: SchemeChoice(d.scheme)
            for d in layers.decisions(recipe)
            if not d.scheme.is_float
        }
        self._parts: dict[str, list[ModuleLayer]] = defaultdict(list)
        for part in layers.parts:
            self._parts[part.module].append(part)
        self._home = {part.layer.name: part.module for part in layers.parts}
        self._order = {module: i for i, module in enumerate(self._parts)}
        self._made: dict[str, nn.Module] = {}

    def need_conversion(self, chosen: Collection[str]) -> bool:
        """Tell whether hooks make the weights of one of the layers, so that a conversion takes them
        off: such a form cannot be had here."""
        return any(made_by_hooks(self._modules[self._home[name]]) for name in chosen)

    @contextmanager
    def quantized(self, chosen: Collection[str]) -> Iterator[nn.Module]:
        """Yield the model with the layers named `chosen` quantized, inside of the context only.

        The recipe may leave some of them float. What a layer raises that cannot be quantized is
        raised here.
        """
        with ExitStack() as edits:
            yield self._changed(self._choices(chosen), edits)

    def _choices(self, chosen: Collection[str]) -> dict[str, list[WeightChoice | None]]:
        """Return by module, in the model's order, a choice for each layer, None for float."""
        wanted = {
            name for name in chosen if name in self._planned and self._owner_is_chosen(name, chosen)
        }
        modules = sorted({self._home[name] for name in wanted}, key=self._order.__getitem__)
        return {
            module: [
                self._planned[name] if name in wanted else None
                for name in (part.layer.name for part in self._parts[module])
            ]
            for module in modules
        }

    def _owner_is_chosen(self, name: str, chosen: Collection[str]) -> bool:
        owner = self._layers.read_by[name]
        return owner is None or owner in chosen

    def _changed(
        self, choices: dict[str, list[WeightChoice | None]], edits: ExitStack
    ) -> nn.Module:
        model = self._model
        gone: set[int] = set()
        parents: dict[int, nn.Module] = {}
        further: Places = defaultdict(list)  # children that a new layer took over
        for name, some in choices.items():
            old, new = self._modules[name], self._quantized(name, some)
            gone.add(id(old))
            for parent, child in (*self._places[id(old)], *further[id(old)]):
                _keep(edits, parent._modules, child)
                parent._modules[child] = new
                parents[id(parent)] = parent
            for child, module in new._modules.items():
                further[id(module)].append((new, child))
            model = new if old is model else model
        for encoder, held in self._encoders:
            if gone & held:
                _keep(edits, encoder.__dict__, "activation_relu_or_gelu", "use_nested_tensor")
                leave_fast_path(encoder)
        for parent in parents.values():
            edits.callback(set_type, parent, type(parent))
            fuse(parent)
        return model

    def _quantized(self, name: str, choices: list[WeightChoice | None]) -> nn.Module:
        if name in self._made:
            return self._made[name]
        parts = self._parts[name]
        choice = next(c for c in choices if c is not None)
        assert isinstance(choice, SchemeChoice)
        fit = self._layers.replacement(parts[0], choice.scheme)
        new = make_replacement(self._modules[name], fit.target, parts, choices, Quantizer())
        if parts[0].index is None:
            self._made[name] = new
        return new


def _places(model: nn.Module) -> Places:
    found: Places = defaultdict(list)
    for module in model.modules():
        for name, child in module._modules.items():
            if child is not None:
                found[id(child)].append((module, name))
    return found
