"""What stands between the product of queries and keys and the Softmax over it.

    Q, K ─ MatMul ─ Mul(scale) ─ Add(mask) ─ Softmax
    Q, K ─ MatMul ─ Where(mask, ., -inf) ─ Softmax
    Q, K ─ MatMul ─ Div(cap) ─ Tanh ─ Mul(cap) ─ Add(bias) ─ Add(Where(mask, 0, -inf)) ─ Softmax

in any order in which it comes to `softcap * tanh(scale q k^T / softcap) + bias`, where some keys do
not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.heads import is_standard
from octavo.graph.analysis.matrix_products import product_of
from octavo.graph.analysis.numbers import Numbers

FLOAT = int(ir.DataType.FLOAT)
ABSORBS = -1e30
"""In float32 what is added to such a number is lost: it takes the place of a score."""
HIDES = -1e3
"""What takes the place of a score, and is at most this, hides its key."""


class Why(Enum):
    """Reasons why a Softmax between two products is no attention that we take."""

    AXIS = "its softmax is not over the last axis"
    SCORES_READ = "its scores are read elsewhere too"
    WEIGHTS_READ = "its weights are read elsewhere too, as where a model returns attentions"
    BETWEEN = "between product and softmax stands what we do not know"
    BEHIND = "between softmax and product stands what we do not know"
    KEYS = "its keys lie in an order that is not known"
    TYPE = "its values are not known to be float32"
    SHAPES = "its sizes cannot be followed from the one product to the other"


class NotTakenError(Exception):
    """Why; `what` is the operator that is in the way, if one is."""

    def __init__(self, why: Why, what: str = "") -> None:
        self.why, self.what = why, what

    def __str__(self) -> str:
        return f"{self.why.value} ({self.what})" if self.what else self.why.value


@dataclass(frozen=True)
class Term:
    """`factor * value` is added to the scores."""

    value: ir.Value
    factor: float = 1.0
    joined: bool = False
    """Batch and heads are one axis of it: it was added before a Reshape parted them."""


@dataclass(frozen=True)
class Condition:
    """Hides keys where `value` is not `counts`: `fill` replaces the score or is added to it."""

    value: ir.Value
    counts: bool
    fill: float
    added: bool = False
    behind: int = 0
    """The number of terms that were added to the scores before the condition."""


@dataclass(frozen=True)
class Scores:
    """`outer * tanh(scale a b)` or `scale a b`, with terms and conditions."""

    product: ir.Node
    scale: float = 1.0
    outer: float | None = None
    """None: there is no tanh."""
    reshapes: tuple[ir.Node, ...] = ()
    """What parts batch and heads, or joins them, from the product on."""
    sizes: tuple[ir.Node, ...] = ()
    """Nodes Shape that read the scores; only shapes of Reshapes may be made of them."""
    terms: tuple[Term, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def scaled(self, factor: float) -> Scores:
        """Return the scores times `factor`. Raises NotTakenError where hidden keys would count."""
        if self.conditions and factor <= 0:
            raise NotTakenError(Why.BETWEEN, "a factor below 0")
        terms = tuple(replace(t, factor=t.factor * factor) for t in self.terms)
        conditions = tuple(replace(c, fill=c.fill * factor) for c in self.conditions)
        if any(c.fill > HIDES for c in conditions):
            raise NotTakenError(Why.BETWEEN, "a factor that leaves hidden keys a weight")
        found = replace(self, terms=terms, conditions=conditions)
        if self.outer is None:
            return replace(found, scale=self.scale * factor)
        # tanh is odd: its sign goes inside, since a softcap is above 0.
        scale = math.copysign(1.0, factor) * self.scale
        return replace(found, scale=scale, outer=self.outer * abs(factor))

    def capped(self) -> Scores:
        """Its hyperbolic tangent."""
        if self.outer is not None or self.terms or self.conditions:
            raise NotTakenError(Why.BETWEEN, "Tanh of a sum")
        return replace(self, outer=1.0)

    def plus(self, term: Term) -> Scores:
        """Return the scores with `term` added."""
        return replace(self, terms=(*self.terms, term))

    def reshaped(self, reshape: ir.Node) -> Scores:
        """Behind a Reshape that parts batch and heads, or joins them again."""
        if self.conditions and not self.reshapes:
            raise NotTakenError(Why.BETWEEN, "Where before a Reshape")
        terms = self.terms
        if not self.reshapes:
            terms = tuple(replace(term, joined=True) for term in terms)
        return replace(self, terms=terms, reshapes=(*self.reshapes, reshape))

    def where(self, condition: Condition) -> Scores:
        """Return the scores with `condition`, which tells the keys that do not count."""
        placed = replace(condition, behind=len(self.terms))
        return replace(self, conditions=(*self.conditions, placed))


class ScoreReader:
    """Reads scores backwards, from what a Softmax reads to the product."""

    def __init__(self, constants: ConstantLookup, numbers: Numbers) -> None:
        self._constants, self._number = constants, numbers
        self._ways: Mapping[str, Callable[[ir.Node], Scores]] = {
            "Add": self._sum,
            "Cast": self._passed,
            "Div": self._quotient,
            "Dropout": self._passed,
            "Identity": self._passed,
            "Mul": self._multiple,
            "Reshape": lambda node: self(node.inputs[0], node).reshaped(node),
            "Sub": self._difference,
            "Tanh": lambda node: self(node.inputs[0], node).capped(),
            "Where": self._choice,
        }

    def __call__(self, value: ir.Value | None, reader: ir.Node) -> Scores:
        """Read `value`, which `reader` alone may read, as scores. Raises NotTakenError."""
        node = None if value is None else value.producer()
        if value is None or node is None or self._constants.tensor(value) is not None:
            raise NotTakenError(Why.BETWEEN)
        read = reader_beside_sizes(value)
        if read is None or read[0] is not reader:
            raise NotTakenError(Why.SCORES_READ)
        scores = self._made_by(node)
        return replace(scores, sizes=(*scores.sizes, *read[2]))

    def _made_by(self, node: ir.Node) -> Scores:
        product = product_of(node)
        if product is not None:
            if self._constants.tensor(node.inputs[1]) is not None:
                raise NotTakenError(Why.BETWEEN, "a layer")
            return Scores(node, product.factor)
        if node.domain not in ("", "ai.onnx") or node.op_type not in self._ways:
            raise NotTakenError(Why.BETWEEN, node.op_type)
        return self._ways[node.op_type](node)

    def _passed(self, node: ir.Node) -> Scores:
        if not passes(node, self._constants):
            raise NotTakenError(Why.BETWEEN, node.op_type)
        return self(node.inputs[0], node)

    def _multiple(self, node: ir.Node) -> Scores:
        for i in (1, 0):
            factor = self._number(node.inputs[i])
            if factor is not None and factor != 0 and math.isfinite(factor):
                return self(node.inputs[1 - i], node).scaled(factor)
        raise NotTakenError(Why.BETWEEN, "Mul")

    def _quotient(self, node: ir.Node) -> Scores:
        divisor = self._number(node.inputs[1])
        if not divisor or not math.isfinite(divisor):
            raise NotTakenError(Why.BETWEEN, "Div")
        return self(node.inputs[0], node).scaled(1.0 / divisor)

    def _sum(self, node: ir.Node) -> Scores:
        scores, i = self._either(node, (0, 1))
        added = node.inputs[1 - i]
        assert added is not None
        while (parts := self._chosen(added)) is not None:
            added, condition = parts
            scores = scores.where(condition)
        return scores if self._number(added) == 0 else scores.plus(Term(added))

    def _difference(self, node: ir.Node) -> Scores:
        taken = node.inputs[1]
        assert taken is not None
        return self(node.inputs[0], node).plus(Term(taken, -1.0))

    def _choice(self, node: ir.Node) -> Scores:
        """Read Where(condition, scores, fill), or Where(condition, fill, scores)."""
        condition, *sides = node.inputs
        for i, fill in ((0, self._number(sides[1])), (1, self._number(sides[0]))):
            if fill is not None and fill <= HIDES and condition is not None:
                return self(sides[i], node).where(Condition(condition, i == 0, fill))
        raise NotTakenError(Why.BETWEEN, "Where")

    def _chosen(self, added: ir.Value) -> tuple[ir.Value, Condition] | None:
        """Return bias and condition of Where(condition, bias, fill) if `fill` absorbs scores."""
        node = added.producer()
        if node is None or not is_standard(node, "Where"):
            return None
        condition, *sides = node.inputs
        for i, fill in ((0, self._number(sides[1])), (1, self._number(sides[0]))):
            bias = sides[i]
            if fill is not None and fill <= ABSORBS and condition is not None and bias is not None:
                return bias, Condition(condition, i == 0, fill, added=True)
        return None

    def _either(self, node: ir.Node, inputs: tuple[int, int]) -> tuple[Scores, int]:
        """Return the first of two inputs that is scores, and its index."""
        first: NotTakenError | None = None
        for i in inputs:
            try:
                return self(node.inputs[i], node), i
            except NotTakenError as refused:
                if first is None or first.why is Why.BETWEEN:
                    first = refused
        assert first is not None
        raise first


def reader_beside_sizes(value: ir.Value) -> tuple[ir.Node, int, list[ir.Node]] | None:
    """Return the only reader of `value` besides Shapes, its input, and the Shapes; else None."""
    uses = list(value.uses())
    shapes = [use.node for use in uses if is_standard(use.node, "Shape")]
    rest = [use for use in uses if not is_standard(use.node, "Shape")]
    producer = value.producer()
    if len(rest) != 1 or producer is None or value.is_graph_output():
        return None
    if any(use.node.graph is not producer.graph for use in uses):
        return None
    return rest[0].node, rest[0].idx, shapes


def passes(node: ir.Node, constants: ConstantLookup) -> bool:
    """Tell whether `node` hands its first input on as it is, outside of training."""
    if is_standard(node, "Cast"):
        return node.attributes["to"].as_int() == FLOAT
    if not (is_standard(node, "Identity") or is_standard(node, "Dropout")):
        return False
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return False
    mode = constants.tensor(node.inputs[2]) if len(node.inputs) > 2 else None
    return len(node.inputs) < 3 or (mode is not None and not mode.numpy().any())
