"""A model made ready for conversion: its layers, and what a recipe says of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

import onnx_ir as ir

from octavo.core.form import Form
from octavo.graph.analysis.lengths import before_lengths
from octavo.graph.analysis.logarithms import below_logarithms
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.graph.lower.blocks import FIRST_WITH_BLOCKS
from octavo.onnx.constants import Constants
from octavo.onnx.operators.reader import ReadContext
from octavo.onnx.plan.conv_defaults import conv_reasons, native_defaults
from octavo.onnx.plan.inventory import Site, inventory
from octavo.onnx.plan.losses import losses_of
from octavo.onnx.plan.options import Request, has_four_bits, has_tensor_activations
from octavo.onnx.plan.output_defaults import output_defaults
from octavo.onnx.plan.resolve import resolve_all
from octavo.onnx.plan.selection import decide
from octavo.onnx.read import normalize
from octavo.onnx.read.load import Source
from octavo.recipe import Decision
from octavo.recipe.bit_budget import Mix
from octavo.recipe.held_bytes import Storage
from octavo.recipe.plan import spent
from octavo.recipe.recipe import Origin


@dataclass(frozen=True)
class Survey:
    """A normalized model with its layers; `node_names` are those of all its nodes."""

    opset: int
    model: ir.Model
    constants: Constants
    sites: list[Site]
    node_names: list[str]
    notes: list[str]
    _losses: dict[str, tuple[float, ...] | None] = field(default_factory=dict)

    def losses(self, site: Site) -> tuple[float, ...] | None:
        """Return what the layer loses, by way of a mix; None where its weights do not tell.

        The losses are found once: tuning asks for many recipes.
        """
        name = site.layer.name
        if name not in self._losses:
            self._losses[name] = losses_of(site, self.constants)
        return self._losses[name]

    @cached_property
    def conv_reasons(self) -> dict[ir.Node, str | None]:
        """Return why target native leaves each convolution float by default, or None.

        The graph counts as it was when first asked for: tuning asks for hundreds of recipes.
        """
        return conv_reasons(self.model.graph, self.sites)

    @cached_property
    def before_logarithms(self) -> frozenset[ir.Value]:
        """Values whose error a logarithm shows, of the graph as `conv_reasons` sees it."""
        found = below_logarithms(self.model, self.constants)
        return frozenset(below.value for below in found if below.direct)

    @cached_property
    def before_lengths(self) -> frozenset[ir.Value]:
        """Values whose error changes how long a result is, of the graph as the others see it."""
        return before_lengths(self.model)


@dataclass(frozen=True)
class Prepared:
    """A surveyed model with the decisions about its layers."""

    survey: Survey
    decisions: list[Decision]

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return self.survey.opset

    @property
    def constants(self) -> Constants:
        """Return which values are constant."""
        return self.survey.constants

    @property
    def sites(self) -> list[Site]:
        """The layers."""
        return self.survey.sites

    @property
    def notes(self) -> list[str]:
        """Return notes on what was changed beside the layers."""
        return self.survey.notes


def prepare(source: Source, request: Request, *, allow_quantized: bool) -> Prepared:
    """Normalize the model of `source` in place and decide about its layers."""
    found = survey(source, needed_opset(request), allow_quantized=allow_quantized)
    return Prepared(found, decisions_on(found, request))


def needed_opset(request: Request) -> int:
    """Return the oldest version of the standard operators that a conversion is written in."""
    if request.form.qdq and has_four_bits(request.recipe):
        return FIRST_WITH_BLOCKS
    dynamic = request.form.qdq or has_tensor_activations(request.recipe)
    return normalize.FIRST_WITH_DYNAMIC if dynamic else normalize.FIRST_WITH_QUANTIZE


def survey(source: Source, needed: int, *, allow_quantized: bool) -> Survey:
    """Normalize the model of `source` in place, to opset `needed` at least; find its layers."""
    if not allow_quantized:
        normalize.refuse_quantized(source.model, source.label)
    notes = normalize.normalize(source.model, source.label, needed)
    return survey_normalized(source.model, notes)


def survey_normalized(model: ir.Model, notes: list[str]) -> Survey:
    """Find the layers of a normalized model; `notes` say what normalizing changed."""
    opset = opset_of(model)
    constants = Constants(opset)
    sites = inventory(model, constants)
    node_names = [n.name for g in graphs_of(model) for n in g if n.name]
    return Survey(opset, model, constants, sites, node_names, notes)


def decisions_on(found: Survey, request: Request) -> list[Decision]:
    """Return one decision a layer, before `resolve` asks what the target can hold."""
    decisions = decide(found.sites, found.node_names, request)
    if request.form.native:
        decisions = native_defaults(found.sites, decisions, request.recipe, found)
    shown = found.before_logarithms, found.before_lengths
    decisions = output_defaults(found.sites, decisions, request, *shown)
    mix = request.recipe.mix
    return decisions if mix is None else _spent(found, decisions, mix, request.form)


def _spent(found: Survey, decisions: Sequence[Decision], mix: Mix, form: Form) -> list[Decision]:
    """Return `decisions` with the bits that `mix` gives to layers held in groups."""
    context = ReadContext(found.model, found.constants, form.at(found.opset), _store_nothing)
    held = [one.decision for one in resolve_all(found.sites, decisions, context)]
    if not mix.sensitivities:
        mix = replace(mix, sensitivities=_losses(found, decisions))
    return spent(decisions, held, mix, Storage.PACKED if form.native else Storage.STOCK)


def _losses(found: Survey, decisions: Sequence[Decision]) -> dict[str, tuple[float, ...]]:
    """Return, by name, the losses of layers that a mix chose, where their weights tell them."""
    return {
        decision.layer.name: losses
        for site, decision in zip(found.sites, decisions, strict=True)
        if decision.origin is Origin.MIX and (losses := found.losses(site)) is not None
    }


def _store_nothing(array: object, name: str) -> NoReturn:
    raise AssertionError(f"{name}: nothing is stored while layers are planned")
