"""Refuses models that are broken in a way that no reader could make sense of.

ONNX Runtime refuses them too. They are found here, before anything is done with them, so that the
message can name what is wrong in the model instead of what went wrong in its conversion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from reprlib import Repr
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from octavo.errors import ModelError
from octavo.graph.analysis.walk import graphs_of
from octavo.ir import DOMAIN

_STANDARD = ("", "ai.onnx")
_PLACE = ("location", "offset", "length", "checksum", "basepath")  # keys of external data
_ONNXRUNTIMES = "prepacked"  # keys that ONNX Runtime adds begin so
_COMPLEX = ("COMPLEX64", "COMPLEX128")  # two numbers an element
_SHORT = Repr()  # a damaged model may hold names and shapes of any length
_SHORT.maxstring, _SHORT.maxother, _SHORT.maxtuple = 200, 200, 12


def short(value: object) -> str:
    """Return the `repr` of `value`, cut where it is long."""
    if isinstance(value, str) and len(value) < _SHORT.maxstring:
        full = repr(value)
        if len(full) <= _SHORT.maxstring:
            return full
    return _SHORT.repr(value)


def _damaged(label: str, what: str, then: str = "export the model again") -> ModelError:
    return ModelError(f"{label} is damaged: {what}; {then}")


def check_text(model: onnx.ModelProto, label: str) -> None:
    """Raise ModelError: text not UTF-8, a tensor's place misspelt, an attribute without type."""
    stack: list[Message] = [model]
    while stack:
        message = stack.pop()
        if problem := _misspelt(message):
            raise _damaged(label, problem, "get the file again")
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                stack.extend(value if field.is_repeated else (value,))
            elif field.type == FieldDescriptor.TYPE_STRING:
                for text in value if field.is_repeated else (value,):
                    if not isinstance(text, str):  # protobuf gives bytes it cannot decode
                        where = f"{message.DESCRIPTOR.name}.{field.name}"
                        what = f"{where} is not UTF-8 text: {short(text)}"
                        raise _damaged(label, what, "get the file again")


_MOST = (1 << 31) - 1  # what onnx takes for a version


def _misspelt(message: Message) -> str | None:
    if isinstance(message, onnx.TensorProto):
        for key in (entry.key for entry in message.external_data):
            if key not in _PLACE and not str(key).startswith(_ONNXRUNTIMES):
                return (
                    f"tensor {short(message.name)} says {short(key)} of its place; known are "
                    f"{', '.join(_PLACE)}"
                )
    if isinstance(message, onnx.OperatorSetIdProto) and not 0 <= message.version <= _MOST:
        return f"opset {short(message.domain)} is of version {message.version}"
    if isinstance(message, onnx.AttributeProto) and not message.type:
        return f"attribute {short(message.name)} has no type"
    # Operators of other libraries may hold whole files in such attributes.
    if isinstance(message, onnx.NodeProto) and message.domain in (*_STANDARD, DOMAIN):
        for attribute in message.attribute:
            if not all(map(_is_text, (attribute.s, *attribute.strings))):
                name = f"{message.op_type} {short(message.name)}"
                return f"{name}: its attribute {short(attribute.name)} is not UTF-8 text"
    return None


def _is_text(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def check_graphs(model: ir.Model, label: str) -> None:
    """Raise ModelError for a node that reads what does not exist or that its operator forbids."""
    for graph, opsets in _graphs(model):
        opset = opsets.get("", opsets.get("ai.onnx", 0))
        for node in graph:
            if problem := _problem(node, opset):
                raise _damaged(label, f"{_node(node)} {problem}")
        for value in graph.outputs:
            if not _exists(value):
                raise _damaged(label, f"nothing gives the graph output {short(value.name)}")


def _problem(node: ir.Node, opset: int) -> str | None:
    if not node.op_type:
        return "names no operator"
    for value in node.inputs:
        if value is not None and not _exists(value):
            return f"reads {short(value.name)}, which no node, input or initializer gives"
    return _misuse(node, opset) if node.domain in _STANDARD else None


def check_tensor(tensor: ir.TensorProtocol, name: str, label: str) -> None:
    """Raise ModelError where a stored tensor does not hold what its shape and type say."""
    shape = tuple(tensor.shape.numpy())
    problem = None
    if _dtype(tensor) is ir.DataType.UNDEFINED:
        problem = "has no element type that is known"
    elif any(d < 0 for d in shape):
        problem = f"has the shape {short(shape)}"
    elif isinstance(tensor, ir.ExternalTensor) and (tensor.offset or 0) < 0:
        problem = f"lies at byte {tensor.offset} of its file"
    else:
        held, expected, unit = _held_and_expected(tensor, shape)
        if held is not None and held != expected:
            problem = (
                f"holds {held} {unit}, and its shape {short(shape)} of {tensor.dtype.name.lower()} "
                f"takes {expected}"
            )
    if problem:
        what = f"tensor {short(name)} {problem}"
        raise _damaged(label, what, "get the file again or export it again")


def _dtype(tensor: ir.TensorProtocol) -> ir.DataType:
    try:
        return tensor.dtype
    except ValueError:
        return ir.DataType.UNDEFINED


def stored_tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Yield every tensor of the model with its name: initializers, and attributes of nodes."""
    for graph, _ in _graphs(model):
        if isinstance(graph, ir.Graph):
            for name, value in graph.initializers.items():
                if value.const_value is not None:
                    yield name, value.const_value
        for node in graph:
            for attribute in node.attributes.values():
                for tensor in tensors_of(attribute):
                    yield f"{_node(node)}, {attribute.name}", tensor


def tensors_of(attribute: ir.Attr) -> list[ir.TensorProtocol]:
    """Return the tensors that an attribute holds."""
    if attribute.is_ref():
        return []
    if attribute.type is ir.AttributeType.TENSOR:
        return [attribute.value]
    return list(attribute.value) if attribute.type is ir.AttributeType.TENSORS else []


def _graphs(model: ir.Model) -> Iterator[tuple[Any, Mapping[str, int]]]:
    """Graphs with the operator versions they use: the main one, subgraphs, local functions."""
    for graph in graphs_of(model):
        yield graph, model.opset_imports
    for function in model.functions.values():
        yield function, function.opset_imports
        for node in ir.traversal.RecursiveGraphIterator(function):
            for attribute in node.attributes.values():
                if attribute.is_ref():
                    continue
                if attribute.type is ir.AttributeType.GRAPH:
                    yield attribute.as_graph(), function.opset_imports
                elif attribute.type is ir.AttributeType.GRAPHS:
                    for graph in attribute.as_graphs():
                        yield graph, function.opset_imports


def _exists(value: ir.Value) -> bool:
    return value.producer() is not None or value.is_graph_input() or value.is_initializer()


def _node(node: ir.Node) -> str:
    name = node.name or ", ".join(v.name for v in node.outputs if v.name) or "(without a name)"
    return f"{node.op_type or 'a node'} {short(name)}"


@dataclass(frozen=True)
class _Signature:
    """What an operator takes; `single` is how many inputs must be there."""

    least: int
    most: int
    single: int
    required: tuple[str, ...]
    types: Mapping[str, str]


@lru_cache(maxsize=1024)
def _signature(op_type: str, opset: int) -> _Signature | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    one = onnx.defs.OpSchema.FormalParameterOption.Single
    needed = schema.inputs[: schema.min_input]
    return _Signature(
        schema.min_input,
        schema.max_input,
        len(list(takewhile(lambda parameter: parameter.option == one, needed))),
        tuple(name for name, a in schema.attributes.items() if a.required),
        {name: str(a.type).rpartition(".")[2] for name, a in schema.attributes.items()},
    )


def _misuse(node: ir.Node, opset: int) -> str | None:
    """Return how `node` breaks its operator's rules, or None; unknown operators pass."""
    signature = _signature(node.op_type, opset)
    if signature is None:
        return None
    given = len(node.inputs)
    if not signature.least <= given <= signature.most:
        return f"has {given} inputs; {node.op_type} takes {signature.least} to {signature.most}"
    if None in node.inputs[: signature.single]:
        return f"leaves out one of the {signature.single} inputs that {node.op_type} needs"
    for name in signature.required:
        if name not in node.attributes:
            return f"has no attribute {name!r}, which {node.op_type} needs"
    if node.op_type == "Constant" and len(node.attributes) != 1:
        return f"has {len(node.attributes)} attributes; Constant takes one, its value"
    for name, attribute in node.attributes.items():
        wanted = signature.types.get(name)
        if wanted is None:
            return f"has an attribute {name!r}, which {node.op_type} does not know"
        if attribute.type.name != wanted:
            return (
                f"has the attribute {name!r} of type {attribute.type.name.lower()}; "
                f"{node.op_type} takes {wanted.lower()}"
            )
    return None


def _held_and_expected(
    tensor: ir.TensorProtocol, shape: tuple[int, ...]
) -> tuple[int | None, int, str]:
    elements = math.prod(shape)
    if tensor.dtype is ir.DataType.STRING:
        return len(tensor.string_data()), elements, "strings"  # type: ignore[attr-defined]
    size = -(-elements * tensor.dtype.bitwidth // 8)
    if isinstance(tensor, ir.ExternalTensor):
        return tensor.length, size, "bytes"
    proto = getattr(tensor, "raw", None)
    if not isinstance(proto, onnx.TensorProto):
        return None, 0, ""
    if proto.HasField("raw_data"):
        return len(proto.raw_data), size, "bytes"
    held = len(getattr(proto, onnx.helper.tensor_dtype_to_field(proto.data_type)))
    if tensor.dtype.bitwidth < 8:
        return held, size, "numbers"  # packed: a byte an entry
    return held, elements * (2 if tensor.dtype.name in _COMPLEX else 1), "numbers"
