"""Finds attention by what it computes: softmax over a product with terms, times values.

`attention_scores` reads what is before the Softmax, `attention_results` what is behind it,
`attention_operands` how queries, keys and values lie. Nothing of where they come from has to be
proved: they may be a cache, an encoder's states, or turned by their positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.attention_operands import Operand, OperandReader
from octavo.graph.analysis.attention_results import (
    Result,
    ResultReader,
    Weights,
    made_of_reshapes,
    only_step,
)
from octavo.graph.analysis.attention_scores import (
    Condition,
    NotTakenError,
    ScoreReader,
    Scores,
    Why,
)
from octavo.graph.analysis.attention_sinks import SinkReader
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.element_types import is_float32
from octavo.graph.analysis.heads import HeadSplits, is_standard
from octavo.graph.analysis.joined_heads import JoinedHeads
from octavo.graph.analysis.matrix_products import product_of
from octavo.graph.analysis.numbers import Numbers
from octavo.graph.analysis.ranks import Ranks
from octavo.ir.activation_products import Layout

LAST_AXIS_BY_DEFAULT = 13  # opset of Softmax
MOST_BACK, MOST_ON = 12, 6
"""Nodes from a product to a Softmax, and from there to the next, that are worth a word."""


@dataclass(frozen=True)
class SpelledAttention:
    """One of them, as the graph spells it."""

    q: Operand
    k: Operand
    v: Operand
    scores: Scores
    product: ir.Node
    """That of weights and values."""
    scale: float
    guarded: bool
    zeroed: Condition | None
    result: Result
    softmax: ir.Node
    sinks: ir.Value | None = None
    """[1, heads, 1, 1]: scores without a value."""


@dataclass(frozen=True)
class Refused:
    """A Softmax between two products that is none."""

    softmax: ir.Node
    reason: NotTakenError


def heads_of(q: Operand, k: Operand, v: Operand) -> int:
    """Return the number of heads of Q, as Q, K or V tell it; 0 where none does."""
    return q.heads or k.heads * k.groups or v.heads * v.groups


class AttentionSearch:
    """Looks at the Softmax nodes of one model."""

    def __init__(self, model: ir.Model, constants: ConstantLookup, opset: int) -> None:
        ranks = Ranks(model, constants)
        splits = HeadSplits(constants, ranks, None)
        numbers = Numbers(constants, ranks, splits)
        self._constants, self.ranks = constants, ranks
        self._flattens = opset < LAST_AXIS_BY_DEFAULT
        self._scores = ScoreReader(constants, numbers)
        self.results = ResultReader(constants, numbers, ranks)
        self._operands = OperandReader(constants, numbers, ranks, splits)
        self._sinks = SinkReader(constants)
        self._joined = JoinedHeads(constants, ranks, self._operands)

    def __call__(self, graph: ir.Graph) -> Iterator[SpelledAttention | Refused]:
        """Yield the attentions of `graph`, found or refused, in node order.

        Each is looked for when it is asked for: replacing one may create the inputs of the next.
        """
        for node in [n for n in graph if is_standard(n, "Softmax")]:
            if not self._is_between_products(node):
                continue
            try:
                yield self._found(node)
            except NotTakenError as reason:
                yield Refused(node, reason)

    def _found(self, softmax: ir.Node) -> SpelledAttention:
        if not self._is_over_last_axis(softmax):
            raise NotTakenError(Why.AXIS)
        sunk = self._sinks.before(softmax)
        weights = self.results.weights(softmax, sunk=sunk is not None)
        if sunk is None:
            scores = self._scores(softmax.inputs[0], softmax)
        else:
            scores = self._scores(sunk.scores, sunk.reader)
        a, b = scores.product.inputs[:2]
        product = product_of(scores.product)
        swapped = product is not None and not product.turned
        values, apart = weights.product.inputs[1], None
        reshapes = (*scores.reshapes, *weights.reshapes)
        if reshapes:
            q, k, v, apart = self._parted(scores, weights, swapped)
            reshapes = (*reshapes, apart)
        else:
            q, k, v = self.placed(a, b, values, swapped=swapped)
        if not made_of_reshapes((*scores.sizes, *weights.sizes), reshapes):
            raise NotTakenError(Why.SCORES_READ)
        if not all(is_float32(o.value, self._constants) for o in (q, k, v)):
            raise NotTakenError(Why.TYPE)
        if weights.zeroed is not None and not any(
            c.value is weights.zeroed.value and c.counts == weights.zeroed.counts
            for c in scores.conditions
        ):
            raise NotTakenError(Why.BEHIND, "Where")
        if sunk is not None and sunk.heads != heads_of(q, k, v):
            raise NotTakenError(Why.SHAPES)
        result = self.results.result(weights.product, q, v, apart)
        scale = scores.scale * q.factor * k.factor
        return SpelledAttention(
            *(q, k, v, scores, weights.product, scale, weights.guarded, weights.zeroed),
            result=result,
            softmax=softmax,
            sinks=None if sunk is None else sunk.sinks,
        )

    def _parted(
        self, scores: Scores, weights: Weights, swapped: bool
    ) -> tuple[Operand, Operand, Operand, ir.Node]:
        """Return queries, keys and values of joined batch and heads, and the result's Reshape.

        Raises NotTakenError.
        """
        a, b = scores.product.inputs[:2]
        values, result = weights.product.inputs[1], weights.product.outputs[0]
        q, k = self._joined.operand(a), self._joined.operand(b, swapped=swapped)
        v, apart = self._joined.operand(values), only_step(result, "Reshape")
        if q is None or k is None or v is None or apart is None or v.factor != 1.0:
            raise NotTakenError(Why.SHAPES)
        reshapes = (*scores.reshapes, *weights.reshapes)
        passed = [shape.inputs[0] for shape in (*scores.sizes, *weights.sizes)]
        known = [value for value in passed if value is not None]
        terms = {term.joined for term in scores.terms}
        if len(terms) > 1 or not self._joined.scores_fit(reshapes, known, q, k):
            raise NotTakenError(Why.SHAPES)
        if not self._joined.parts(apart, result, q, v):
            raise NotTakenError(Why.SHAPES)
        return q, k, v, apart

    def placed(
        self, a: ir.Value | None, b: ir.Value | None, values: ir.Value | None, *, swapped: bool
    ) -> tuple[Operand, Operand, Operand]:
        """Return queries [..., S, D], keys [..., T, D] (or `swapped`) and values as they lie.

        Raises NotTakenError.
        """
        q = self._operands.queries(a)
        k, v = self._operands.keys(b, swapped=swapped), self._operands.values(values)
        if k is not None and v is not None and k.groups != v.groups:
            k = self._operands.keys(b, swapped=swapped, grouped=False)
            v = self._operands.values(values, grouped=False)
        if q is None or k is None or v is None or values is None:
            raise NotTakenError(Why.KEYS)
        if v.factor != 1.0:
            k = self._operands.keys(b, swapped=swapped, grouped=False) or k
            v = Operand(values, Layout.HEADS_OUTSIDE)
        heads = heads_of(q, k, v)
        k, v = (
            x.parted if x.parted is not None and x.heads * x.groups != heads else x for x in (k, v)
        )
        return q, k, v

    def _is_over_last_axis(self, softmax: ir.Node) -> bool:
        given = softmax.attributes.get("axis")
        if given is None:
            return not self._flattens or self.ranks(softmax.inputs[0]) == 2
        axis = given.as_int()
        rank = self.ranks(softmax.inputs[0])
        if rank is None and axis == 3:
            rank = 4  # no exporter writes scores of more axes and another axis than the last
        return axis == -1 or (rank is not None and axis == rank - 1)

    def _is_between_products(self, softmax: ir.Node) -> bool:
        """Tell whether products of two activations are near, before and behind."""
        ahead = [softmax]
        found = False
        for _ in range(MOST_ON):
            ahead = [use.node for node in ahead for value in node.outputs for use in value.uses()]
            found = found or any(self._multiplies_activations(node) for node in ahead)
        if not found:
            return False
        back = [softmax]
        for _ in range(MOST_BACK):
            makers = [v.producer() for node in back for v in node.inputs if v is not None]
            back = list({node: None for node in makers if node is not None})[:32]
            if any(self._multiplies_activations(node) for node in back):
                return True
        return False

    def _multiplies_activations(self, node: ir.Node) -> bool:
        if node.op_type not in ("MatMul", "FusedMatMul", "Einsum"):
            return False
        return not any(self._constants.is_constant(v) for v in node.inputs[:2])
