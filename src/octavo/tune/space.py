"""What a search may change: the layers that a recipe quantizes, and what each may become.

Layers that share a weight are each decided on their own, with one exception. A layer that computes
gains time from a quantized copy even where another user keeps the float one. A lookup gains only
memory, and where another user of its table is float the table is stored in float anyway, so that a
quantized copy would make the file larger for nothing: such a lookup becomes float with it. The
other way round, a float lookup beside a quantized matrix product, is left to the search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from octavo.core.qparams import QType
from octavo.errors import RecipeError, did_you_mean, listed
from octavo.recipe import FLOAT, Decision, Granularity, Kind, Layer, Recipe, Rule, Scheme
from octavo.results.tuning import Approach
from octavo.tune.search import Candidate

REASON = "tuning left it float"
SHOWN = 4  # layer names in a candidate's description

_FINENESS = (Granularity.TENSOR, Granularity.CHANNEL, Granularity.BLOCK)
_INPUT_FINENESS = (Granularity.TENSOR, Granularity.ROW, Granularity.GROUP)


@dataclass(frozen=True)
class LayerChoice:
    """What one layer may become.

    The first scheme is the recipe's own. FLOAT is the last, unless it is the recipe's own.
    """

    layer: Layer
    schemes: tuple[Scheme, ...]

    @property
    def own(self) -> Scheme:
        """Return the scheme that the recipe gives the layer."""
        return self.schemes[0]

    @property
    def intermediate_schemes(self) -> tuple[Scheme, ...]:
        """The schemes between the recipe's own and FLOAT."""
        return tuple(scheme for scheme in self.schemes[1:] if not scheme.is_float)


@dataclass(frozen=True)
class Space:
    """All recipes that differ from `base` in the layers of `choices`.

    `total_layers` counts the layers of the model, those included that are no choice: they are as
    `base` says. An assignment gives schemes by layer names; layers it does not name keep their own.
    """

    base: Recipe
    choices: tuple[LayerChoice, ...]
    total_layers: int
    approach: Approach = Approach.DYNAMIC

    @classmethod
    def of(
        cls,
        decisions: Sequence[Decision],
        base: Recipe,
        alternatives: Sequence[Rule] = (),
        raised: Sequence[Scheme] = (),
        approach: Approach = Approach.DYNAMIC,
    ) -> Space:
        """Make the space around `base`, whose decisions are `decisions`.

        A rule of `alternatives` gives another option for each layer that it matches; `raised` are
        more accurate schemes than the base's, the fastest first: a layer gets those that mean
        something for its kind and are no coarser than what it has. Layers that the recipe leaves
        float are in the space only where an alternative quantizes them, layers that cannot be
        quantized never.
        """
        choices = []
        for decision in decisions:
            options = _options(decision, base, alternatives, raised)
            if len(options) > 1:
                choices.append(LayerChoice(decision.layer, options))
        return cls(base, tuple(choices), len(decisions), approach)

    @property
    def size(self) -> int:
        """Return the number of assignments."""
        return math.prod(len(choice.schemes) for choice in self.choices)

    @property
    def quantized(self) -> tuple[LayerChoice, ...]:
        """The choices whose layers the base recipe quantizes."""
        return tuple(choice for choice in self.choices if not choice.own.is_float)

    def settle(self, assignment: Mapping[str, Scheme]) -> dict[str, Scheme]:
        """Return what deviates from the base recipe, in model order; lookups as the module says.

        Raises RecipeError for a layer that is not in the space.
        """
        known = {choice.layer.name for choice in self.choices}
        for name in assignment:
            if name not in known:
                raise RecipeError(f"no layer {name!r} can be tuned.{did_you_mean(name, known)}")
        changed = {
            choice.layer.name: assignment[choice.layer.name]
            for choice in self.choices
            if assignment.get(choice.layer.name, choice.own) != choice.own
        }
        settled = {}
        for choice in self.choices:
            layer = choice.layer
            scheme = changed.get(layer.name, choice.own)
            if layer.kind is Kind.EMBEDDING and any(
                changed.get(other) == FLOAT for other in layer.shares_with
            ):
                scheme = FLOAT
            if scheme != choice.own:
                settled[layer.name] = scheme
        return settled

    def quantized_layers(self, assignment: Mapping[str, Scheme]) -> frozenset[str]:
        """Return the names of the layers that `assignment` quantizes; none for the float model."""
        settled = self.settle(assignment)
        return frozenset(
            choice.layer.name
            for choice in self.choices
            if not settled.get(choice.layer.name, choice.own).is_float
        )

    def candidate(self, assignment: Mapping[str, Scheme], description: str = "") -> Candidate:
        """Return the base recipe with a rule for each layer that deviates, as a candidate.

        `description`, if given, replaces the candidate's own. Raises RecipeError for a layer that
        is not in the space.
        """
        settled = self.settle(assignment)
        recipe = self.base
        if settled:
            rules = (_rule(name, scheme) for name, scheme in settled.items())
            name = f"{recipe.name.removesuffix(' tuned')} tuned"
            recipe = replace(recipe.with_rules_first(*rules), name=name)
        return Candidate(recipe, description or self._describe(settled), self.approach)

    def _describe(self, settled: Mapping[str, Scheme]) -> str:
        parts = [self.base.name]
        if self.approach is Approach.STATIC:
            parts[0] += " static"
        by_scheme: dict[Scheme, list[str]] = {}
        for name, scheme in settled.items():
            by_scheme.setdefault(scheme, []).append(name)
        # What is float first: it costs most.
        for scheme in sorted(by_scheme, key=lambda scheme: not scheme.is_float):
            parts.append(self._part(by_scheme[scheme], scheme))
        return ", ".join([parts[0], "; ".join(parts[1:])] if settled else parts)

    def _part(self, names: Sequence[str], scheme: Scheme) -> str:
        count, total = len(names), len(self.choices)
        if count == total:
            return f"{'all ' if total > 1 else ''}{_layers(total)} {scheme.describe()}"
        which = f"{count} of {_layers(total)}" if scheme.is_float else _layers(count)
        return f"{which} {scheme.describe()}: {listed(names, SHOWN)}"


def _layers(count: int) -> str:
    return f"{count} layer" + "s" * (count != 1)


def _rule(name: str, scheme: Scheme) -> Rule:
    reason = REASON if scheme.is_float else ""
    if any(sign in name for sign in "*?["):  # a glob would match other layers too
        return Rule(scheme, regex=re.escape(name), reason=reason)
    return Rule(scheme, name=name, reason=reason)


def _options(
    decision: Decision, base: Recipe, alternatives: Iterable[Rule], raised: Iterable[Scheme]
) -> tuple[Scheme, ...]:
    """Return all schemes for one layer, its own first; only that where there is no choice."""
    layer, own = decision.layer, decision.scheme
    rule = base.rule_for(layer)
    said = base.default if rule is None else rule.scheme
    if own.is_float and not said.is_float:
        return (own,)  # the recipe wants it quantized, and it cannot be
    others = [_for_kind(r.scheme, layer.kind) for r in alternatives if r.matches(layer)]
    if not own.is_float:
        others += _raised(own, layer.kind, raised)
    others = [scheme for scheme in others if not scheme.is_float]
    last = () if own.is_float else (FLOAT,)
    return tuple(dict.fromkeys((own, *others, *last)))


def _raised(own: Scheme, kind: Kind, raised: Iterable[Scheme]) -> Iterator[Scheme]:
    """Yield those of `raised` that mean something for `kind`, nowhere coarser than `own`."""
    if kind is Kind.ACTIVATION_MATMUL:  # no weight that could be held better
        return
    for scheme in raised:
        wanted = _for_kind(scheme, kind)
        finer = _more_bits(wanted, own) or all(
            a >= b for a, b in zip(_fineness(wanted), _fineness(own), strict=True)
        )
        if wanted != own and finer and (kind is Kind.LINEAR or not _is_for_linear(scheme)):
            yield wanted


def _more_bits(scheme: Scheme, own: Scheme) -> bool:
    """Tell whether `own` has weights of 4 bits, and `scheme` has not.

    No granularity makes up for the bits.
    """
    return (
        own.weight is not None
        and own.weight.qtype is QType.INT4
        and not (scheme.weight is not None and scheme.weight.qtype is QType.INT4)
    )


def _for_kind(scheme: Scheme, kind: Kind) -> Scheme:
    """Return `scheme` as a recipe's plan gives it: a lookup reads indices, no activations."""
    return replace(scheme, activation=None) if kind is Kind.EMBEDDING else scheme


def _is_for_linear(scheme: Scheme) -> bool:
    """Tell whether it has blocks of inputs, in weights or activations."""
    weight, activation = scheme.weight, scheme.activation
    return bool((weight and weight.block) or (activation and activation.group))


def _fineness(scheme: Scheme) -> tuple[int, int]:
    """Rate how finely weight and activations are held, from 0 (one scale) to 3 (no integers)."""
    weight, activation = scheme.weight, scheme.activation
    is_integer = weight is not None and weight.qtype.is_integer
    return (
        _FINENESS.index(weight.granularity) if weight is not None and is_integer else 3,
        3 if activation is None else _INPUT_FINENESS.index(activation.granularity),
    )
