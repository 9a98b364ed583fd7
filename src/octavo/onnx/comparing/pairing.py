"""Which layers of the float model are quantized in the other file, and where both can be seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from octavo.errors import ModelError
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.ir import DOMAIN
from octavo.onnx.comparing.probes import (
    first_shared_values,
    main_graph_nodes,
    nodes_in,
    nodes_making,
    shared_values,
    values_read,
)
from octavo.onnx.constants import Constants
from octavo.onnx.plan.inventory import Site, inventory
from octavo.onnx.read.load import Source
from octavo.onnx.read.normalize import QUANTIZED_OPS

_FLOAT_OPS = ("Attention",)
"""Operators of ours that hold no weights and multiply no integers."""
_FEW_BITS = frozenset(
    {
        *(ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4),
        *(ir.DataType.FLOAT16, ir.DataType.BFLOAT16),
    }
)
_FOUND_AT_LEAST = 0.5
"""The share of the float model's layers whose names a file made of it holds."""
_NAMED = 3
"""Layers that a note names."""
_APART = (
    "they do not belong together. Give the float model that the quantized one was made from (where "
    "it was preprocessed, the preprocessed one)"
)


@dataclass(frozen=True)
class LayerPair:
    """One quantized layer, where it stands in the float model.

    `at` are the shared values that show its outputs.
    """

    site: Site
    at: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerPairing:
    """The quantized layers in the order in which they run, and how many are float in both.

    `shared` are the activations that both main graphs have.
    """

    pairs: tuple[LayerPair, ...]
    left_float: int
    shared: frozenset[str]


def pair_up(floating: Source, quantized: Source) -> LayerPairing:
    """Find the layers of `floating` in `quantized`; both are normalized.

    Raises ModelError where the two do not belong together, or nothing is quantized.
    """
    constants = Constants(opset_of(floating.model))
    sites = inventory(floating.model, constants)
    _refuse_other_interface(floating, quantized)
    _refuse_other_layers(sites, floating, quantized)
    shared = shared_values(floating.model, quantized.model)
    search = _Search(floating.model, quantized.model, shared, constants)
    pairs = [p for site in sites if (p := search.pair(site)) is not None]
    if not pairs:
        raise ModelError(
            f"{quantized.label} holds no quantized layers; quantize the model first, or give the "
            "quantized file second: octavo compare FLOAT INT8"
        )
    return LayerPairing(_noted(pairs), len(sites) - len(pairs), shared)


class _Search:
    """Looks for the float model's layers in the quantized graph."""

    def __init__(
        self,
        floating: ir.Model,
        quantized: ir.Model,
        shared: Collection[str],
        constants: Constants,
    ) -> None:
        self._shared, self._constants = shared, constants
        self._held_by = main_graph_nodes(floating.graph)
        self._values = {
            v.name: v for node in quantized.graph for v in node.outputs if v.name in shared
        }
        self._nodes = {
            node.outputs[0].name: node
            for graph in graphs_of(quantized)
            for node in graph
            if node.outputs
        }
        self._stored = {
            (name, value.dtype)
            for graph in graphs_of(floating)
            for name, value in graph.initializers.items()
        }

    def pair(self, site: Site) -> LayerPair | None:
        """Return a layer's pair; None where it is float in both or leads to no shared value."""
        node = self._held_by[site.node]
        at = tuple(
            n for n in first_shared_values(node, self._shared, self._held_by) if n in self._values
        )
        if not at or self._is_as_it_was(site):
            return None
        nodes = {n: None for name in at for n in nodes_making(self._values[name], self._shared)}
        if not any(self._is_quantized(inner) for n in nodes for inner in nodes_in(n)):
            return None
        notes = []
        if node is not site.node:
            notes.append(f"measured at the outputs of {node.op_type} {node.name!r}, which holds it")
        return LayerPair(site, at, tuple(notes))

    def _is_as_it_was(self, site: Site) -> bool:
        """Tell whether the quantized model has the layer's node, and what it reads is float."""
        node = self._nodes.get(site.node.outputs[0].name)
        if node is None or (node.domain, node.op_type) != (site.node.domain, site.node.op_type):
            return False
        inputs = [v for v in site.node.inputs if v is not None]
        known = [v.name for v in inputs if not self._constants.is_constant(v)]
        return not any(self._is_quantized(n) for n in (node, *_before(node, known)))

    def _is_quantized(self, node: ir.Node) -> bool:
        if node.op_type in QUANTIZED_OPS:
            return True
        if node.domain == DOMAIN and node.op_type not in _FLOAT_OPS:
            return True
        return any(
            v.is_initializer() and v.dtype in _FEW_BITS and (v.name, v.dtype) not in self._stored
            for v in node.inputs
            if v is not None
        )


def _before(node: ir.Node, known: Collection[str | None]) -> Iterator[ir.Node]:
    """Nodes that make `node`'s inputs, as far as these are others than `known`."""
    stack = [v for v in values_read(node) if v.name not in known]
    seen = set(stack)
    while stack:
        producer = stack.pop().producer()
        if producer is None:
            continue
        yield producer
        new = [v for v in values_read(producer) if v not in seen and v.name not in known]
        seen.update(new)
        stack += new


def _noted(pairs: Sequence[LayerPair]) -> tuple[LayerPair, ...]:
    """Return `pairs`, with notes on layers that only show together and cannot be told apart."""
    together: dict[tuple[str, ...], list[str]] = {}
    for pair in pairs:
        together.setdefault(pair.at, []).append(pair.site.layer.name)
    result = []
    for pair in pairs:
        others = [name for name in together[pair.at] if name != pair.site.layer.name]
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        note = f"measured together with {', '.join(others[:_NAMED])}{more}"
        result.append(replace(pair, notes=(*pair.notes, note)) if others else pair)
    return tuple(result)


def _refuse_other_interface(floating: Source, quantized: Source) -> None:
    for what in ("inputs", "outputs"):
        theirs, ours = (
            {v.name for v in getattr(s.model.graph, what) if not v.is_initializer()}
            for s in (floating, quantized)
        )
        for name in sorted(map(str, theirs ^ ours)):
            has, lacks = (floating, quantized) if name in theirs else (quantized, floating)
            raise ModelError(
                f"{lacks.label} has no {what[:-1]} {name!r}, which {has.label} has; {_APART}"
            )


def _refuse_other_layers(sites: Sequence[Site], floating: Source, quantized: Source) -> None:
    known = set(_names(quantized.model))
    lacking = [s.layer.name for s in sites if not _own_names(s) & known]
    if len(lacking) > (1 - _FOUND_AT_LEAST) * len(sites):
        raise ModelError(
            f"{quantized.label} lacks {len(lacking)} of the {len(sites)} layers of "
            f"{floating.label}, such as {lacking[0]!r}; {_APART}"
        )


def _own_names(site: Site) -> set[str]:
    node = site.node
    outputs = {v.name for v in node.outputs if v.name}
    return {n for n in (node.name, f"{node.op_type}_{node.outputs[0].name}", *outputs) if n}


def _names(model: ir.Model) -> Iterator[str]:
    """Names of values and nodes; of nodes also as they were before they became quantized ones."""
    for graph in graphs_of(model):
        for node in graph:
            yield from (v.name for v in node.outputs if v.name)
            for name in (node.name or "").split("+"):
                yield name
                yield name.removesuffix("_quant")
