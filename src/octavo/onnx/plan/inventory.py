"""The layers of a model, in the order in which they run."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.operators import READERS
from octavo.onnx.operators.reader import Reader, is_float_type, op_name
from octavo.recipe import Kind, Layer

OTHER_FROM = 1024  # elements; below, a constant of an operator without a rule is no layer
MATRIX = 2  # axes of a weight; constants of fewer are biases and the like
_DTYPES = {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}


@dataclass(frozen=True)
class Site:
    """A layer where it stands in the graph.

    `reader` is None where there is none, and `reason` says why; "" where that is the operator.
    """

    layer: Layer
    node: ir.Node
    reader: Reader | None
    weights: tuple[ir.Value, ...]
    reason: str = ""


def inventory(model: ir.Model, constants: Constants) -> list[Site]:
    """List every node that holds weights or multiplies two activations, subgraphs included."""
    sites = [
        site
        for node, scope in _walk(model.graph, "")
        if (site := _site(node, scope, constants)) is not None
    ]
    return _with_sharing(_with_unique_names(sites), constants)


def own_bytes(sites: Sequence[Site], constants: Constants) -> tuple[int, ...]:
    """Return for each layer the bytes of its weights that no layer before it holds."""
    seen: set[Any] = set()
    found = []
    for site in sites:
        new = {constants.root(w).key: w for w in site.weights}
        found.append(_bytes([w for key, w in new.items() if key not in seen], constants))
        seen.update(new)
    return tuple(found)


def _bytes(weights: Iterable[ir.Value], constants: Constants) -> int:
    """Count the bytes of `weights` as they are stored, in whole bytes."""
    bits = 0
    for w in weights:
        dtype = constants.stored_as(w) or constants.dtype(w) or ir.DataType.FLOAT
        bits += math.prod(constants.shape(w)) * dtype.bitwidth
    return bits // 8


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
    reader, weights, reason = READERS.get(op_name(node)), None, ""
    if reader is not None:
        weights = reader.match(node, constants)
    if not weights:
        refused, reason = (
            (_weights_without_rule(node, constants), "")
            if reader is None
            else _refused_weights(node, constants)
        )
        if (refused or weights is not None) and _makes_constant(node, constants):
            return None
        if refused:
            layer = _layer(node, Kind.OTHER, refused, scope, constants)
            return Site(layer, node, None, refused, reason)
    if reader is None or weights is None:
        return None
    layer = _layer(node, reader.kind_of(node, weights), weights, scope, constants, reader)
    return Site(layer, node, reader, weights)


def _layer(
    node: ir.Node,
    kind: Kind,
    weights: tuple[ir.Value, ...],
    scope: str,
    constants: Constants,
    reader: Reader | None = None,
) -> Layer:
    shapes = tuple(constants.shape(w) for w in weights)
    dtype = (constants.dtype(weights[0]) if weights else None) or ir.DataType.FLOAT
    return Layer(
        name=node.name or f"{node.op_type}:{node.outputs[0].name}",
        kind=kind,
        op=op_name(node),
        weights=tuple((w.name or "", s) for w, s in zip(weights, shapes, strict=True)),
        bytes=_bytes(weights, constants),
        macs_per_row=reader.macs_per_row(shapes) if reader is not None else None,
        dtype=_DTYPES.get(dtype, dtype.name.lower()),
        scope=scope.rstrip("/"),
    )


def _refused_weights(node: ir.Node, constants: Constants) -> tuple[tuple[ir.Value, ...], str]:
    """Return the weights of `node` that its operator's rule cannot take, and why."""
    for value in node.inputs:
        computed = constants.computed(value)
        if computed is not None and computed.stored:
            if computed.by == "DequantizeLinear":
                return computed.stored, "its weight is quantized already"
            return computed.stored, (
                f"its weight is computed by {computed.by} in every run, although nothing in it "
                "changes: let the exporter fold constants"
            )
    doubles = tuple(v for v in node.inputs if v is not None and _is_double_matrix(v, constants))
    return doubles, "its weights are float64: Octavo quantizes float32 and 16 bits"


def _is_double_matrix(value: ir.Value, constants: Constants) -> bool:
    is_double = constants.is_constant(value) and constants.dtype(value) is ir.DataType.DOUBLE
    return is_double and len(constants.shape(value)) >= MATRIX


def _weights_without_rule(node: ir.Node, constants: Constants) -> tuple[ir.Value, ...]:
    """Large constant float tensors that an operator without a rule reads."""
    found: dict[ir.Value, None] = {}
    for value in node.inputs:
        computed = constants.computed(value)
        if computed is not None:
            found.update(dict.fromkeys(v for v in computed.stored if _is_large(v, constants)))
        elif value is not None and constants.is_constant(value) and _is_large(value, constants):
            found[value] = None
    return tuple(found)


def _is_large(value: ir.Value, constants: Constants) -> bool:
    dtype = constants.dtype(value)
    if not is_float_type(dtype) and dtype is not ir.DataType.DOUBLE:
        return False
    shape = constants.shape(value)
    return len(shape) >= MATRIX and int(np.prod(shape, dtype=np.int64)) >= OTHER_FROM


def _makes_constant(node: ir.Node, constants: Constants) -> bool:
    """Tell whether the node is part of what computes a constant whose reader is the layer."""
    first = node.outputs[0] if node.outputs else None
    if constants.is_constant(first):
        return True
    stack = [] if constants.computed(first) is None else list(node.outputs)
    seen: set[ir.Value] = set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        for reader, _ in value.uses():
            if reader.outputs and constants.computed(reader.outputs[0]) is not None:
                stack.extend(reader.outputs)
                continue
            known = READERS.get(op_name(reader))
            if known is None or not known.match(reader, constants):
                return True  # it is said there what it reads
    return False


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
