"""Nodes as text: `a=Op(b,c,attribute:1); ...`."""

from __future__ import annotations

from typing import Any

import onnx

from tests.graphs import MS, node

DOMAINS = {"ms": MS}


def nodes_of(text: str) -> list[onnx.NodeProto]:
    """Statements apart by `;`. `a|b=Op(...)` has two outputs, `ms:Op` is com.microsoft's, `_` is
    an input or output that is not given; lists are `axes:-1/2`."""
    return [_node(statement) for statement in text.split(";")]


def _node(statement: str) -> onnx.NodeProto:
    outs, _, call = statement.strip().partition("=")
    op, _, operands = call.strip().removesuffix(")").partition("(")
    domain, _, op_type = op.rpartition(":")
    attributes: dict[str, Any] = {"domain": DOMAINS[domain]} if domain else {}
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
