"""Recognizes `x * gate(x)`, gates between 0 and a constant: GELU, SiLU and the like written out.

    Mul(x, Sigmoid(x))                               SiLU, QuickGelu
    Mul(Mul(x, 0.5), Add(Erf(Div(x, 1.41)), 1))      GELU, and likewise with Tanh
    Mul(x, Tanh(Softplus(x)))                        Mish
    Mul(x, HardSigmoid(x)), Mul(x, Clip(Add(x, 3), 0, 6))     HardSwish, before or after / 6

The gate must be of the same x: `a * sigmoid(b)` takes any sign.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup

ARGUMENT_STEPS = frozenset("Mul Div Add Pow Cast".split())
MAX_NODES = 24


def is_gated(node: ir.Node, constants: ConstantLookup) -> bool:
    """Tell whether the node ends `x * gate(x)`: see the module's list."""
    if node.op_type == "Div" and not _constant(node, 1, constants):
        return False
    factors = _factors(node, constants)
    for factor in factors:
        argument = _gate_argument(factor, constants)
        if argument is not None:
            sources = _sources(argument, constants)
            others = [f for f in factors if f is not factor]
            if len(others) == 1 and sources == {id(others[0])}:
                return True
    return False


def _factors(node: ir.Node, constants: ConstantLookup) -> list[ir.Value]:
    """Return the non-constant factors of a product, through nested Mul and Div by constants."""
    found, stack, seen = [], list(node.inputs), 0
    while stack and seen < MAX_NODES:
        value = stack.pop()
        seen += 1
        if value is None:
            continue
        if constants.is_constant(value):
            tensor = constants.tensor(value)
            if tensor is None or not _is_positive(tensor):
                return []
            continue
        maker = value.producer()
        if maker is not None and (
            maker.op_type == "Mul" or (maker.op_type == "Div" and _constant(maker, 1, constants))
        ):
            stack.extend(maker.inputs)
        else:
            found.append(value)
    return found


def _gate_argument(value: ir.Value, constants: ConstantLookup) -> ir.Value | None:
    """Return the argument of a gate, as `sigmoid(.)`, `1 + erf(.)` or `1 + tanh(.)`, else None."""
    node = value.producer()
    if node is None:
        return None
    if node.op_type in ("Sigmoid", "HardSigmoid") or _cuts_below_zero(node, constants):
        return node.inputs[0]
    if node.op_type == "Tanh":
        return _softplus_argument(node.inputs[0])
    if node.op_type != "Add":
        return None
    for index in (0, 1):
        inner = node.inputs[index]
        maker = None if inner is None else inner.producer()
        if (
            maker is not None
            and maker.op_type in ("Erf", "Tanh")
            and _is_one(node.inputs[1 - index], constants)
        ):
            return maker.inputs[0]
    return None


def _softplus_argument(value: ir.Value | None) -> ir.Value | None:
    node = None if value is None else value.producer()
    return node.inputs[0] if node is not None and node.op_type == "Softplus" else None


def _sources(argument: ir.Value, constants: ConstantLookup) -> set[int]:
    """Return the ids of values an argument is computed from, through steps with constants."""
    found: set[int] = set()
    stack, seen = [argument], 0
    while stack and seen < MAX_NODES:
        value = stack.pop()
        seen += 1
        if constants.is_constant(value):
            continue
        maker = value.producer()
        if maker is not None and maker.op_type in ARGUMENT_STEPS and _is_step(maker, constants):
            stack.extend(i for i in maker.inputs if i is not None)
        else:
            found.add(id(value))
    return found


def _is_step(node: ir.Node, constants: ConstantLookup) -> bool:
    """Tell whether the node belongs to an argument and not to what the argument is made from.

    The layer's own bias addition has a vector; a step of the formula has single positive numbers:
    `x * sigmoid(-x)` is no SiLU.
    """
    tensors = [constants.tensor(i) for i in node.inputs if i is not None]
    return all(t is None or _is_positive(t) for t in tensors)


def _is_positive(tensor: ir.TensorProtocol) -> bool:
    return tensor.size == 1 and float(tensor.numpy().ravel()[0]) > 0.0


def _constant(node: ir.Node, index: int, constants: ConstantLookup) -> bool:
    value = node.inputs[index]
    return value is not None and constants.is_constant(value)


def _is_one(value: ir.Value | None, constants: ConstantLookup) -> bool:
    tensor = constants.tensor(value)
    return tensor is not None and tensor.size == 1 and float(tensor.numpy().ravel()[0]) == 1.0


def _cuts_below_zero(node: ir.Node, constants: ConstantLookup) -> bool:
    """Tell whether the node is Clip(., 0, a number)."""
    if node.op_type != "Clip":
        return False
    if len(node.inputs) == 3:
        tensors = [constants.tensor(i) for i in node.inputs[1:]]
        ends = [None if t is None else float(t.numpy().ravel()[0]) for t in tensors]
    else:
        stated = [node.attributes.get(name) for name in ("min", "max")]
        ends = [None if a is None else a.as_float() for a in stated]
    return ends[0] == 0.0 and ends[1] is not None
