"""The layers of a model, in the order in which they run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.rule import Rule, is_float_type, op_name
from octavo.onnx.rules import RULES
from octavo.recipe import Kind, Layer

OTHER_FROM = 1024  # elements; below, a constant of an operator without a rule is no layer


@dataclass(frozen=True)
class Site:
    """A layer where it stands in the graph. `rule` is None for operators without one."""

    layer: Layer
    node: ir.Node
    rule: Rule | None
    weights: tuple[ir.Value, ...]


def inventory(model: ir.Model, constants: Constants) -> list[Site]:
    """Every node that holds weights or multiplies two activations, subgraphs included."""
    sites = [
        site
        for node, scope in _walk(model.graph, "")
        if (site := _site(node, scope, constants)) is not None
    ]
    return _with_sharing(_with_unique_names(sites), constants)


def _walk(graph: ir.Graph, scope: str) -> Iterator[tuple[ir.Node, str]]:
    for node in graph:
        for name, attribute in node.attributes.items():
            inner = f"{scope}{node.name or node.op_type}/{name}/"
            if attribute.type is ir.AttributeType.GRAPH:
                yield from _walk(attribute.as_graph(), inner)
            elif attribute.type is ir.AttributeType.GRAPHS:
                for i, body in enumerate(attribute.as_graphs()):
                    yield from _walk(body, f"{inner}{i}/")
        yield node, scope


def _site(node: ir.Node, scope: str, constants: Constants) -> Site | None:
    rule = RULES.get(op_name(node))
    if rule is not None:
        weights = rule.match(node, constants)
        if weights is None:
            return None
        kind = rule.kind_of(node, weights)
    else:
        weights = _loose_weights(node, constants)
        if not weights:
            return None
        kind = Kind.OTHER
    shapes = tuple(constants.shape(w) for w in weights)
    dtype = constants.dtype(weights[0]) if weights else ir.DataType.FLOAT
    assert dtype is not None
    elements = sum(int(np.prod(s, dtype=np.int64)) for s in shapes)
    layer = Layer(
        name=node.name or f"{node.op_type}:{node.outputs[0].name}",
        kind=kind,
        op=op_name(node),
        weights=tuple((w.name or "", s) for w, s in zip(weights, shapes, strict=True)),
        bytes=elements * dtype.bitwidth // 8,
        macs_per_row=rule.macs_per_row(shapes) if rule is not None else None,
        dtype=dtype.name.lower().replace("float", "float32")
        if dtype.name == "FLOAT"
        else dtype.name.lower(),
        scope=scope.rstrip("/"),
    )
    return Site(layer, node, rule, weights)


def _loose_weights(node: ir.Node, constants: Constants) -> tuple[ir.Value, ...]:
    """Large stored float tensors that an operator without a rule reads."""
    found = []
    for value in node.inputs:
        tensor = constants.tensor(value)
        if tensor is None or value is None or len(tensor.shape) < 2 or tensor.size < OTHER_FROM:
            continue
        if is_float_type(tensor.dtype) and not _feeds_layers(node, constants):
            found.append(value)
    return tuple(found)


def _feeds_layers(node: ir.Node, constants: Constants) -> bool:
    """Whether the node is part of a chain that computes a constant: its reader is the layer."""
    return bool(node.outputs) and constants.is_constant(node.outputs[0])


def _with_unique_names(sites: list[Site]) -> list[Site]:
    counts = Counter(s.layer.name for s in sites)
    seen: Counter[str] = Counter()
    result = []
    for site in sites:
        name = site.layer.name
        if counts[name] > 1:
            scoped = f"{site.layer.scope}/{name}" if site.layer.scope else name
            seen[scoped] += 1
            name = scoped if seen[scoped] == 1 else f"{scoped}#{seen[scoped]}"
            site = replace(site, layer=replace(site.layer, name=name))  # noqa: PLW2901
        result.append(site)
    return result


def _with_sharing(sites: list[Site], constants: Constants) -> list[Site]:
    users: dict[Any, list[str]] = defaultdict(list)
    keys = [[constants.root(w).key for w in site.weights] for site in sites]
    for site, site_keys in zip(sites, keys, strict=True):
        for key in set(site_keys):
            users[key].append(site.layer.name)
    result = []
    for site, site_keys in zip(sites, keys, strict=True):
        own = site.layer.name
        others = sorted({n for key in site_keys for n in users[key] if n != own})
        result.append(replace(site, layer=replace(site.layer, shares_with=tuple(others))))
    return result
