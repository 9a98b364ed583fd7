"""Where the numbers of an input go: the nodes that read it, through nodes that keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import onnx_ir as ir

MOST_NODES = 20_000  # looked at for one input

MOVES = frozenset(
    "Cast Identity Unsqueeze Squeeze Reshape Flatten Slice Expand Transpose Tile Split "
    "Dropout OptionalGetElement SequenceAt".split()
)
"""Steps after which a number is still the same number, perhaps elsewhere."""
PICKS = frozenset(["Gather", "GatherND", "GatherElements", "Pad", "Concat", "SplitToSequence"])
"""Steps that give some of the numbers of their first input, or more beside them."""


class Read(NamedTuple):
    """`node` reads `value`, which is an input or made of one, as its input number `slot`."""

    node: ir.Node
    slot: int
    value: ir.Value


Functions = dict[tuple[str, str], ir.Function]


class Flow:
    """Follows values through the nodes, bodies and functions of one model."""

    def __init__(self, model: ir.Model) -> None:
        self._functions: Functions = {(f.domain, f.name): f for f in model.functions.values()}

    def reads(self, value: ir.Value, goes_on: Callable[[ir.Node, int], bool]) -> Iterator[Read]:
        """Who reads `value` or what nodes that it `goes_on` through make of it, each once."""
        stack, seen = [value], {value}
        calls: dict[
            ir.Value, list[ir.Value]
        ] = {}  # results of functions, as their callers see them
        left = MOST_NODES
        while stack and left > 0:
            v = stack.pop()
            outs = list(calls.get(v, ()))
            for node, index in v.uses():
                left -= 1
                called = self._functions.get((node.domain, node.op_type))
                if called is not None and index < len(called.inputs):
                    outs.append(called.inputs[index])
                    for inner, outer in zip(called.outputs, node.outputs, strict=False):
                        calls.setdefault(inner, []).append(outer)
                    continue
                yield Read(node, index, v)
                if goes_on(node, index):
                    outs.extend(node.outputs)
            for out in outs:
                if out not in seen:
                    seen.add(out)
                    stack.append(out)


def moves(node: ir.Node, index: int) -> bool:
    """Whether the outputs of `node` are the numbers of its input `index`, moved or converted."""
    return index == 0 and node.op_type in MOVES


def moves_or_picks(node: ir.Node, index: int) -> bool:
    """Whether the outputs of `node` are numbers of its input `index`, perhaps beside others."""
    op = node.op_type
    return (index == 0 and (op in MOVES or op in PICKS)) or op == "Concat"
