"""Local functions become the nodes that they stand for.

A function may be written in another opset than the model. The model is raised to the newest of
them first, with its calls left alone; of each function those operators are converted, one by one,
that have changed between its opset and that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.passes import PreconditionError
from onnx_ir.passes.common import InlinePass

from octavo.errors import ModelError, brief
from octavo.graph.analysis.walk import bodies_of, graphs_of, opset_of
from octavo.graph.emit.emitter import Names

STANDARD = ("", "ai.onnx")
_WRITTEN_FOR = "octavo.written_for"

Raise = Callable[[ir.Model, int], str]
"""Raises a model's opset, and says so."""


def inline_functions(
    model: ir.Model, label: str, newest: Callable[[], int], raise_opset: Raise
) -> list[str]:
    """Put the nodes of local functions in the places of their calls; return notes on that.

    Raises ModelError for functions in an opset above `newest()`, and where inlining fails.
    """
    count = len(model.functions)
    if not count:
        return []
    notes = []
    others = _function_opsets(model)
    if others:
        target = max(opset_of(model), *others)
        if opset_of(model) < target > newest():
            raise ModelError(
                f"{label}: a local function has opset {target}; up to {newest()} are supported. "
                "Export the model again with an older one, or install a newer ONNX Runtime"
            )
        if opset_of(model) < target:
            notes.append(_raise_around_calls(model, target, raise_opset))
        _mark_changed(model, target)
    try:
        InlinePass()(model)
    except PreconditionError as error:
        raise ModelError(
            f"{label}: its local functions cannot be inlined, as they call themselves: "
            f"{brief(error)}. Export it again without such functions"
        ) from error
    except Exception as error:  # the pass raises ValueError, and what cloning nodes raises
        raise ModelError(
            f"{label}: its local functions cannot be inlined: {brief(error)}. Export it again "
            "without local functions, or inline them with "
            "onnx.inliner.inline_local_functions(model, convert_version=True)"
        ) from error
    notes.append(f"{_counted(count, 'local function')} inlined")
    if others:
        converted = _convert_marked(model, label)
        written = ", ".join(map(str, sorted(others)))
        notes.append(
            f"local functions were written in opset {written}: "
            f"{_counted(converted, 'node')} converted to {opset_of(model)}"
        )
    return notes


def _function_opsets(model: ir.Model) -> set[int]:
    """Return the opsets of functions that are not in the model's.

    Of other domains than the standard one the functions are taken to agree with the model where
    their operators are functions themselves, or have not changed.
    """
    opset = opset_of(model)
    found = {_standard(f.opset_imports, opset) for f in model.functions.values()} - {opset}
    local = {domain for domain, _, _ in model.functions}
    for function in model.functions.values():
        for domain, version in list(function.opset_imports.items()):
            ours = model.opset_imports.get(domain, version)
            if domain in STANDARD or version == ours:
                continue
            ops = {n.op_type for n in _nodes(function) if n.domain == domain}
            if domain in local or not any(_changed(op, version, ours, domain) for op in ops):
                function.opset_imports[domain] = ours
    return found


def _standard(imports: Any, default: int) -> int:
    version = imports.get("", imports.get("ai.onnx"))
    return default if version is None else int(version)


def _raise_around_calls(model: ir.Model, target: int, raise_opset: Raise) -> str:
    """Raise the model's own nodes to opset `target` with its functions set aside; return a note."""
    functions = dict(model.functions)
    imports = dict(model.opset_imports)
    model.functions.clear()
    try:
        return raise_opset(model, target)
    finally:
        model.functions.update(functions)
        for domain, version in imports.items():
            model.opset_imports.setdefault(domain, version)


def _mark_changed(model: ir.Model, target: int) -> None:
    """Note its opset in each node of a function that means something else in opset `target`."""
    for function in model.functions.values():
        version = _standard(function.opset_imports, target)
        if version != target:
            for node in _nodes(function):
                if node.domain not in STANDARD or bodies_of(node):
                    continue  # of those with bodies only types have been added since opset 9
                if _changed(node.op_type, version, target):
                    node.meta[_WRITTEN_FOR] = version
        for domain in STANDARD:
            if domain in function.opset_imports:
                function.opset_imports[domain] = target


def _nodes(function: ir.Function) -> list[ir.Node]:
    return list(ir.traversal.RecursiveGraphIterator(function))


def _changed(op_type: str, old: int, new: int, domain: str = "") -> bool:
    """Tell whether the operator is another in opset `new`; an unknown one counts as so."""
    forms = []
    for opset in (old, new):
        try:
            forms.append(onnx.defs.get_schema(op_type, opset, domain).since_version)
        except onnx.defs.SchemaError:
            return True
    return forms[0] != forms[1]


def _convert_marked(model: ir.Model, label: str) -> int:
    """Convert the nodes that are marked to the model's opset; return how many there were."""
    names, target = Names(model), opset_of(model)
    marked = [n for graph in graphs_of(model) for n in graph if _WRITTEN_FOR in n.meta]
    for node in marked:
        version = node.meta[_WRITTEN_FOR]
        try:
            single = _single_node_model(node, version)
            converted = onnx.version_converter.convert_version(single, target)
        except Exception as error:  # the converter raises whatever its C++ side throws
            raise ModelError(
                f"{label}: the local function that holds {node.op_type} {node.name!r} has opset "
                f"{version}, the model {target}, to which ONNX's version converter cannot raise "
                f"it: {brief(error)}. Export the model again with one opset"
            ) from error
        _replace_node(node, ir.serde.deserialize_model(converted).graph, names)
    return len(marked)


def _single_node_model(node: ir.Node, version: int) -> onnx.ModelProto:
    """Build a model of nothing but `node`, its inputs and outputs numbered."""
    proto = ir.serde.serialize_node(node)
    inputs = [f"in{i}" if value is not None else "" for i, value in enumerate(node.inputs)]
    outputs = [f"out{i}" if value.name else "" for i, value in enumerate(node.outputs)]
    proto.input[:], proto.output[:] = inputs, outputs
    graph = onnx.helper.make_graph(
        [proto],
        "alone",
        [onnx.ValueInfoProto(name=name) for name in inputs if name],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
    )
    imports = [onnx.helper.make_opsetid("", version)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)


def _replace_node(old: ir.Node, converted: ir.Graph, names: Names) -> None:
    """Put the nodes of `converted`, a model of `old` alone, where `old` is."""
    graph, name = old.graph, old.name or old.op_type
    assert graph is not None
    given = {f"in{i}": value for i, value in enumerate(old.inputs) if value is not None}
    known: dict[ir.Value, ir.Value] = {v: given[v.name or ""] for v in converted.inputs}
    new = []
    for value in converted.initializers.values():
        assert value.const_value is not None
        constant = ir.node("Constant", [], {"value": value.const_value})
        known[value] = constant.outputs[0]
        new.append(constant)
    for node in converted:
        inputs = [None if v is None else known[v] for v in node.inputs]
        copy = ir.node(
            node.op_type,
            inputs,
            attributes=dict(node.attributes),
            num_outputs=len(node.outputs),
            name=names.nodes.new(f"{name}_{node.op_type}"),
        )
        known.update(zip(node.outputs, copy.outputs, strict=True))
        new.append(copy)
    for node in new:
        for value in node.outputs:
            value.name = names.values.new(f"{name}_{node.op_type}")
    made = {value.name: known[value] for value in converted.outputs}
    outputs = [(v, made[f"out{i}"]) for i, v in enumerate(old.outputs) if f"out{i}" in made]
    before, after = [v for v, _ in outputs], [v for _, v in outputs]
    ir.convenience.replace_nodes_and_values(graph, old, [old], new, before, after)


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun} was" if n == 1 else f"{n} {noun}s were"
