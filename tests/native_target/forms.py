"""Graphs as text, their conversion to target native, and comparisons with the float model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from octavo.onnx import session
from tests.graphs import FLOAT, INT8, MS, Array, Converted, build, error, node
from tests.graphs import convert as convert_to
from tests.graphs import run as run_float


def nodes_of(text: str) -> list[onnx.NodeProto]:
    """Statements `a=Op(b,c,attribute:1)` apart by `;`.

    `a|b=Op(...)` has two outputs, `ms:Op` is com.microsoft's, `_` is an input or output that is
    not given; lists are `axes:-1/2`.
    """
    return [_node(statement) for statement in text.split(";")]


def _node(statement: str) -> onnx.NodeProto:
    outs, _, call = statement.strip().partition("=")
    op, _, operands = call.strip().removesuffix(")").partition("(")
    domain, _, op_type = op.rpartition(":")
    attributes: dict[str, Any] = {"domain": {"ms": MS}[domain]} if domain else {}
    inputs = []
    for operand in operands.split(","):
        key, found, value = operand.strip().partition(":")
        if found:
            attributes[key] = _value(value)
        else:
            inputs.append("" if key == "_" else key)
    return node(
        op_type, inputs, ["" if o == "_" else o.strip() for o in outs.split("|")], **attributes
    )


def _value(text: str) -> Any:
    if "/" in text:
        return [int(part) for part in text.split("/") if part]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def spelt(
    nodes: str | Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any] | tuple[int, Sequence[Any] | None] | None],
    stored: Mapping[str, Array],
    outputs: Any = ("y",),
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of nodes or their text; `inputs` are float32 unless a type is before their shape.

    It holds those of the arrays `stored` that its nodes read, and that nothing else gives.
    """
    made = nodes_of(nodes) if isinstance(nodes, str) else nodes
    given = {name for each in made for name in each.output} | set(inputs)
    read = {name for each in made for name in each.input} - given
    kept = {name: array for name, array in stored.items() if name in read}
    typed = {n: s if _is_typed(s) else (FLOAT, s) for n, s in inputs.items()}
    return build(made, typed, outputs, kept, opset=opset)


def branch(output: str, text: str, stored: Mapping[str, Array] | None = None) -> onnx.GraphProto:
    """Statements as the graph of a branch, which gives `output`."""
    out = [helper.make_tensor_value_info(output, FLOAT, None)]
    held = [numpy_helper.from_array(array, name) for name, array in (stored or {}).items()]
    return helper.make_graph(nodes_of(text), output, [], out, held)


def _is_typed(given: Any) -> bool:
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], int)
    return pair and (given[1] is None or isinstance(given[1], list | tuple))


def convert(model: onnx.ModelProto, folder: Path, **options: Any) -> Converted:
    """Converts to target native and reads back; the comparison is the test's."""
    return convert_to(model, folder, target="native", **options)


def convert_convolutions(model: onnx.ModelProto, folder: Path, **options: Any) -> Converted:
    """As `convert`, asking for convolutions: the first and the last are float by default."""
    asked = {} if "recipe" in options else {"op_types_to_quantize": ["Conv"]}
    return convert(model, folder, **asked, **options)


def run(
    done: Converted | Path, feeds: Mapping[str, Array], names: Sequence[str] | None = None
) -> list[Array]:
    path = done if isinstance(done, Path) else done.path
    return list(session(path).run(names, dict(feeds)))


def agrees(
    given: onnx.ModelProto,
    done: Converted | Path,
    feeds: Mapping[str, Array],
    bound: float = INT8,
    names: Sequence[str] | None = None,
) -> None:
    for y, exact in zip(run(done, feeds, names), run_float(given, feeds, names), strict=True):
        assert y.dtype == exact.dtype
        assert error(y, exact) < bound


def ours(done: Converted) -> list[onnx.NodeProto]:
    return [n for n in done.proto.graph.node if n.domain == "ai.octavo"]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node as Python values, bytes as text."""
    found = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}


def constant(done: Converted, name: str) -> Array:
    (found,) = (i for i in done.proto.graph.initializer if i.name == name)
    return np.asarray(numpy_helper.to_array(found))
