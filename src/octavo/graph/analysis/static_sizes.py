"""Sizes that are the same in every run, and numbers that the graph computes of them.

    Linear [b, s, 64] ─ Shape ─ Gather(2) ─ Div(2) ─ Unsqueeze ─ Slice      the Div is 32

Inputs have the sizes that the model says: ONNX Runtime refuses others. What the model says of other
values is not asked, as it may be stale.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import WHOLE, casts_whole
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.walk import graphs_of
from octavo.ir import DOMAIN
from octavo.ir.embedding import Embedding
from octavo.ir.linear import GroupedLinear, Linear
from octavo.ir.norm import Norm

Size = int | None
Sizes = tuple[Size, ...]
STANDARD = ("", "ai.onnx")
MOST_ELEMENTS = 16
SAME = frozenset(
    "Identity Dropout Cast Relu Gelu Tanh Sigmoid Erf Softmax Sqrt Neg Abs Exp Log Reciprocal Not "
    "Cos Sin Sign IsNaN LayerNormalization Clip Floor Ceil Softplus HardSigmoid LeakyRelu".split()
)
BROADCASTING = frozenset(
    "Add Sub Mul Div Pow Sum Max Min Where And Or Equal Less LessOrEqual Greater "
    "GreaterOrEqual".split()
)
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
}


class StaticSizes:
    """Answers for the values of one model as it is now."""

    def __init__(self, model: ir.Model, constants: ConstantLookup) -> None:
        self._constants = constants
        self._found: dict[ir.Value, Sizes] = {}
        self._numbers: dict[ir.Value, list[Size]] = {}
        self._ways: Mapping[str, Callable[[ir.Node, Sizes], Sizes | None]] = {
            "Concat": self._joined,
            "Gather": self._gathered,
            "GatherElements": lambda node, _: self(node.inputs[1]),
            "MatMul": lambda node, x: _product(x, self(node.inputs[1])),
            "Shape": lambda node, x: (len(self._shape(node, x)),),
            "Slice": self._sliced,
            "Squeeze": self._squeezed,
            "Tile": self._tiled,
            "Transpose": self._transposed,
            "Unsqueeze": self._unsqueezed,
            **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), self._reduced),
        }
        for value in model.graph.inputs:
            if value.shape is not None and not value.is_initializer():
                self._found[value] = tuple(d if isinstance(d, int) else None for d in value.shape)
        for graph in graphs_of(model):
            for node in graph:
                self._learn(node)

    def __call__(self, value: ir.Value | None) -> Sizes | None:
        """Return the sizes of `value`, None for each unknown one; None if nothing is known."""
        tensor = self._constants.tensor(value)
        if value is None or tensor is None:
            return None if value is None else self._found.get(value)
        return tuple(int(d) for d in tensor.shape.numpy())

    def numbers(self, value: ir.Value | None) -> list[Size] | None:
        """Return the elements of a vector (or one number) of whole numbers, as far as known."""
        tensor = self._constants.tensor(value)
        if tensor is None:
            return None if value is None else self._numbers.get(value)
        if tensor.dtype not in WHOLE or tensor.size > MOST_ELEMENTS or len(tensor.shape) > 1:
            return None
        return [int(i) for i in np.asarray(tensor.numpy()).reshape(-1)]

    def _learn(self, node: ir.Node) -> None:
        if node.domain == DOMAIN:
            self._learn_layer(node)
            return
        if node.domain not in STANDARD or not node.outputs or not node.inputs:
            return
        if node.op_type == "Split":
            self._learn_split(node)
            return
        sizes = self._after(node)
        if sizes is not None:
            self._found[node.outputs[0]] = sizes
        numbers = self._computed(node)
        if numbers is not None and sizes is not None and len(numbers) <= MOST_ELEMENTS:
            self._numbers[node.outputs[0]] = numbers

    def _learn_layer(self, node: ir.Node) -> None:
        x = self(node.inputs[0])
        linear, group, norm = Linear.of(node), GroupedLinear.of(node), Norm.of(node)
        table = Embedding.of(node)
        if x is not None and table is not None:
            self._found[node.outputs[0]] = (*x, *table.row)
        parts = () if group is None else group.parts
        if x and norm is not None:
            self._found[node.outputs[0]] = x
        if x and linear is not None and linear.residual is None:
            parts = (linear,)
        for part, value in zip(parts, node.outputs, strict=False):
            if x:
                self._found[value] = (*x[:-1], part.weight.n)

    def _learn_split(self, node: ir.Node) -> None:
        x, axis, count = self(node.inputs[0]), _axis(node, 0), len(node.outputs)
        sizes = self._axes(node, "split", 1)
        if not x:
            return
        axis %= len(x)
        whole = x[axis]
        if sizes is None and whole is not None:
            sizes = [-(-whole // count)] * (count - 1)
            sizes.append(whole - sum(sizes))
        for size, value in zip(sizes or [], node.outputs, strict=False):
            self._found[value] = (*x[:axis], size, *x[axis + 1 :])

    def _after(self, node: ir.Node) -> Sizes | None:
        op, x = node.op_type, self(node.inputs[0])
        if op in BROADCASTING:
            return broadcast([self(v) for v in node.inputs])
        if op == "Reshape":
            return self._reshaped(node, x)
        if op == "Expand":
            return broadcast([x, self._asked(node.inputs[1])])
        if op == "ConstantOfShape":
            return self._asked(node.inputs[0])
        if op == "Range":
            return (None,)
        if x is None or op in SAME:
            return x
        return self._ways[op](node, x) if op in self._ways else None

    def _transposed(self, node: ir.Node, x: Sizes) -> Sizes | None:
        perm = node.attributes.get("perm")
        order = perm.as_ints() if perm is not None else range(len(x))[::-1]
        return tuple(x[i] for i in order) if sorted(order) == [*range(len(x))] else None

    def _tiled(self, node: ir.Node, x: Sizes) -> Sizes | None:
        repeats = self.numbers(node.inputs[1])
        if repeats is None or len(repeats) != len(x):
            return None
        pairs = zip(x, repeats, strict=True)
        return tuple(None if n is None or k is None else n * k for n, k in pairs)

    def _gathered(self, node: ir.Node, x: Sizes) -> Sizes | None:
        axis, index = _axis(node, 0) % len(x) if x else 0, self(node.inputs[1])
        return None if index is None or not x else (*x[:axis], *index, *x[axis + 1 :])

    def _unsqueezed(self, node: ir.Node, x: Sizes) -> Sizes | None:
        axes = self._axes(node, "axes", 1)
        if axes is None:
            return None
        rank, rest = len(x) + len(axes), iter(x)
        added = {a % rank for a in axes}
        return tuple(1 if i in added else next(rest) for i in range(rank))

    def _squeezed(self, node: ir.Node, x: Sizes) -> Sizes | None:
        axes = self._axes(node, "axes", 1)
        if axes is None or not x:
            return None
        gone = {a % len(x) for a in axes}
        return tuple(size for i, size in enumerate(x) if i not in gone)

    def _reduced(self, node: ir.Node, x: Sizes) -> Sizes | None:
        axes, keeps = self._axes(node, "axes", 1), node.attributes.get("keepdims")
        if keeps is not None and not keeps.as_int():
            return self._squeezed(node, x)
        if not axes or not x:
            return None
        own = {a % len(x) for a in axes}
        return tuple(1 if i in own else size for i, size in enumerate(x))

    def _computed(self, node: ir.Node) -> list[Size] | None:
        """Return the elements of what `node` makes, where that is a vector of whole numbers."""
        op, inputs = node.op_type, node.inputs
        if op == "Shape":
            x = self(inputs[0])
            return None if x is None else list(self._shape(node, x))
        if op == "Concat":
            parts = [self._vector(v) for v in inputs]
            return [n for part in parts for n in part]
        first = self.numbers(inputs[0])
        if first is None:
            return None
        if op in ("Identity", "Squeeze", "Unsqueeze") or casts_whole(node):
            rank = self._rank_after(node)
            return first if rank is not None and rank <= 1 else None
        if op == "Gather":
            return self._taken(first, self.numbers(inputs[1]))
        if op == "Slice":
            ends = [self.numbers(v) for v in inputs[1:]]
            known = [None if e is None or len(e) != 1 else e[0] for e in ends]
            if len(known) < 2 or None in known or known[2:] not in ([], [0], [0, 1], [-1], [-1, 1]):
                return None
            return first[known[0] : known[1]]
        second = self.numbers(inputs[1]) if op in _ARITHMETIC and len(inputs) == 2 else None
        if second is None or (1 not in (len(first), len(second)) and len(first) != len(second)):
            return None
        count = max(len(first), len(second))
        pairs = zip(first * (count // len(first)), second * (count // len(second)), strict=True)
        return [
            None if a is None or b is None or (op == "Div" and b == 0) else _ARITHMETIC[op](a, b)
            for a, b in pairs
        ]

    def _rank_after(self, node: ir.Node) -> int | None:
        sizes = self._after(node)
        return None if sizes is None else len(sizes)

    def _vector(self, value: ir.Value | None) -> Sequence[Size]:
        """Return the elements of a part of a vector, or a None for each where they are unknown."""
        numbers, sizes = self.numbers(value), self(value)
        if numbers is not None:
            return numbers
        count = sizes[0] if sizes is not None and len(sizes) == 1 else None
        return [None] * (MOST_ELEMENTS + 1 if count is None else count)

    def _taken(self, vector: Sequence[Size], index: Sequence[Size] | None) -> list[Size] | None:
        if index is None or any(i is None or not -len(vector) <= i < len(vector) for i in index):
            return None
        return [vector[i] for i in index if i is not None]

    def _shape(self, node: ir.Node, x: Sizes) -> Sizes:
        start, end = node.attributes.get("start"), node.attributes.get("end")
        first = None if start is None else start.as_int()
        return x[first : None if end is None else end.as_int()]

    def _axes(self, node: ir.Node, name: str, index: int) -> list[int] | None:
        """Return the axes from attribute `name` (older opsets) or input `index` (newer ones)."""
        given = node.attributes.get(name)
        if given is not None:
            return list(given.as_ints())
        found = self.numbers(node.inputs[index]) if len(node.inputs) > index else None
        known = [] if found is None else [n for n in found if n is not None]
        return known if found is not None and len(known) == len(found) else None

    def _asked(self, shape: ir.Value | None) -> Sizes | None:
        """Return the sizes that `shape` lists, None for -1; at least how many there are."""
        asked, count = self.numbers(shape), self(shape)
        if asked is not None:
            return tuple(None if size == -1 else size for size in asked)
        rank = count[0] if count is not None and len(count) == 1 else None
        return None if rank is None else (None,) * rank

    def _reshaped(self, node: ir.Node, x: Sizes | None) -> Sizes | None:
        asked = self.numbers(node.inputs[1])
        if asked is None:
            return self._asked(node.inputs[1])
        if node.attributes.get("allowzero") is not None and 0 in asked:
            return (None,) * len(asked)
        sizes = [
            (x[i] if x is not None and i < len(x) else None) if size == 0 else size
            for i, size in enumerate(asked)
        ]
        if -1 in sizes:
            known = [size for size in sizes if size != -1]
            rest: Size = None
            if x is not None and None not in x and None not in known and 0 not in known:
                rest = prod(x) // prod(known)  # type: ignore[arg-type]
            sizes = [rest if size == -1 else size for size in sizes]
        return tuple(sizes)

    def _joined(self, node: ir.Node, _: Sizes) -> Sizes | None:
        parts = [self(v) for v in node.inputs]
        known = [p for p in parts if p]
        if len(known) < len(parts) or len({len(p) for p in known}) != 1:
            return None
        axis = _axis(node, 0) % len(known[0])
        return tuple(
            _sum(sizes) if i == axis else _common(sizes)
            for i, sizes in enumerate(zip(*known, strict=True))
        )

    def _sliced(self, node: ir.Node, x: Sizes) -> Sizes | None:
        starts, ends, axes, steps = (
            self._axes(node, name, i)
            for i, name in enumerate(("starts", "ends", "axes", "steps"), 1)
        )
        has_steps = len(node.inputs) > 4
        if len(node.inputs) < 4 and "axes" not in node.attributes:  # then they are the first ones
            axes = None if starts is None else list(range(len(starts)))
        if axes is None or not x:
            return None
        sizes = list(x)
        for i, axis in enumerate(a % len(x) for a in axes):
            whole = sizes[axis]
            sizes[axis] = None
            if whole is not None and starts and ends and (steps or not has_steps):
                step = steps[i] if steps else 1
                sizes[axis] = len(range(whole)[starts[i] : ends[i] : step])
        return tuple(sizes)


def broadcast(of: Sequence[Sizes | None]) -> Sizes | None:
    """Return the sizes that values broadcast to; None where those of one are unknown."""
    known = [sizes for sizes in of if sizes is not None]
    if len(known) < len(of) or not known:
        return None
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(sizes)) + sizes for sizes in known]
    return tuple(_common(sizes) for sizes in zip(*padded, strict=True))


def _common(sizes: Sequence[Size]) -> Size:
    """Return the one size of all `sizes` that are not 1: a number above 1 is that of all."""
    numbers = {size for size in sizes if size is not None and size != 1}
    if len(numbers) == 1:
        return numbers.pop()
    return None if None in sizes or numbers else 1


def _sum(sizes: Sequence[Size]) -> Size:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _product(a: Sizes, b: Sizes | None) -> Sizes | None:
    if b is None or min(len(a), len(b)) < 2:
        return None
    batch = broadcast([a[:-2], b[:-2]])
    return None if batch is None else (*batch, a[-2], b[-1])


def _axis(node: ir.Node, otherwise: int) -> int:
    given = node.attributes.get("axis")
    return otherwise if given is None else given.as_int()
