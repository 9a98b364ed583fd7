"""What a recurrent node of ONNX says, and why the kernels may not hold one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.core.recurrent_weights import MOST_INPUTS, Kind
from octavo.graph.lower.recurrent import GATES
from octavo.onnx.operators.reader import ReadContext, attribute_int, input_at

ACTIVATIONS = {
    "LSTM": (("sigmoid", "tanh", "tanh"),),
    "GRU": (("sigmoid", "tanh"),),
    "RNN": (("tanh",), ("relu",)),
}
"""What the kernels compute in one direction; ONNX's default comes first."""


def direction_of(node: ir.Node) -> str:
    """forward, reverse or bidirectional."""
    attribute = node.attributes.get("direction")
    return "forward" if attribute is None else attribute.as_string()


def ways_of(node: ir.Node) -> int:
    """Return the number of directions: 2 for a bidirectional node, else 1."""
    return 2 if direction_of(node) == "bidirectional" else 1


def kind_of(node: ir.Node, op: str | None = None) -> Kind:
    """Return a step's kind; `op` is the ONNX operator `node` stands for, by default its own."""
    op = op or node.op_type
    if op == "LSTM":
        return Kind.LSTM
    if op == "GRU":
        product_first = attribute_int(node, "linear_before_reset", 0)
        return Kind.GRU if product_first else Kind.GRU_RESET_FIRST
    return Kind.RNN_RELU if activations_of(node, op) == ("relu",) else Kind.RNN_TANH


def refused(node: ir.Node, c: ReadContext) -> str | None:
    """Return why `node` stays float, or None where it can be quantized."""
    return _constants_refused(node, c) or _shapes_refused(node, c) or _cell_refused(node, c)


def _cell_refused(node: ir.Node, c: ReadContext) -> str | None:
    """Say what the kernels' cells lack for `node`, and where it can be held; else None."""
    found = [r for r in (_activations_refused(node), _peepholes_refused(node, c)) if r]
    if not found:
        return None
    elsewhere = "; target portable holds it in int8" if node.op_type == "LSTM" else ""
    return f"{', and '.join(found)}{elsewhere}"


def _constants_refused(node: ir.Node, c: ReadContext) -> str | None:
    for index, letter in ((1, "W"), (2, "R"), (3, "B")):
        value = input_at(node, index)
        if (value is not None or index < 3) and not c.constants.is_constant(value):
            return f"its {letter} is computed while the model runs"
    return None


def _shapes_refused(node: ir.Node, c: ReadContext) -> str | None:
    w, r, b = (
        None if v is None else list(c.constants.shape(v))
        for v in (input_at(node, i) for i in (1, 2, 3))
    )
    assert w is not None and r is not None
    if len(w) != 3 or len(r) != 3 or 0 in (*w, *r):
        return f"its W and R have shapes {w} and {r}"
    ways, rows = ways_of(node), len(GATES[node.op_type]) * r[2]
    if w[:2] != [ways, rows] or r[:2] != [ways, rows] or b not in (None, [ways, 2 * rows]):
        return f"its W, R and B have shapes {w}, {r} and {b}, which do not fit each other"
    most = max(w[2], r[2])
    return f"{most} inputs; the kernels have up to {MOST_INPUTS}" if most > MOST_INPUTS else None


def activations_of(node: ir.Node, op: str | None = None) -> tuple[str, ...] | None:
    """Return the activations of each direction; None where the kernels do not have them."""
    attribute = node.attributes.get("activations")
    found = () if attribute is None else tuple(s.lower() for s in attribute.as_strings())
    known = ACTIVATIONS[op or node.op_type]
    if not found:
        return known[0]
    return next((names for names in known if found == names * ways_of(node)), None)


def _activations_refused(node: ir.Node) -> str | None:
    if activations_of(node) is not None:
        return None
    found = ", ".join(node.attributes["activations"].as_strings())
    known = " or ".join(", ".join(names) for names in ACTIVATIONS[node.op_type])
    return f"its activations are {found}; the kernels have {known}, in all directions the same"


def _peepholes_refused(node: ir.Node, c: ReadContext) -> str | None:
    """Return why the node's peepholes, which only an LSTM has, are refused, or None."""
    peepholes = input_at(node, 7)
    if peepholes is None:
        return None
    if not c.constants.is_constant(peepholes) or np.any(c.weights.float32(peepholes)):
        return "it has peepholes (its P), which the kernels have not"
    return None
