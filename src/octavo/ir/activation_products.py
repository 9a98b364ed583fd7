"""Operators whose operands are activations alone: they hold no weights.

    Attention(Q, K, V, [bias], [mask], [sinks])
        ->  `softmax(softcap(scale Q K^T) + bias) V` of all heads
    MatMul(A, B)  ->  A [..., M, K] times B [..., K, N], or B [..., N, K] with `transpose_b`

Q, K, V and the result lie as `Layout` has it. K and V may have fewer heads than Q: query head h
reads head h // (heads / kv_heads). Bias (float32), mask (bool: which keys count) and the products
[..., heads, S, T] broadcast with each other, so that the result may be larger than Q. Sinks [heads]
(float32) are a score of each head that takes its share of the weights and has no value. `shape`
says what is made of a result that lies as rows, as the Reshape did that ends attentions. All is
float32, but for what `bfloat16` says.

Rows of MatMul's A are quantized as a linear layer's input is, columns of B to int8 with one scale
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written, attribute, given_inputs

AS_IT_IS, REST, SIZE_OF_Q = 0, -1, -2
"""Elements of `shape`, beside numbers: the size that there is, what is left, the size of Q."""
HEADS_FIRST = (0, 2, 1, 3)
LAST_SWAPPED = (0, 1, 3, 2)
"""Orders of the axes [B, L, heads, D]."""
WHOLE = (AS_IT_IS, AS_IT_IS, REST)


class Layout(IntEnum):
    """How one of Q, K, V and the result lies."""

    ROWS = 0
    """[B, L, heads * D], as linear layers leave it."""
    HEADS_INSIDE = 1
    """[B, L, heads, D]"""
    HEADS_OUTSIDE = 2
    """[..., heads, L, D]; an axis that is missing has size 1."""


class Hidden(IntEnum):
    """Says what a query gives where mask and causality together hide every key."""

    ZERO = 0
    MEAN = 1
    """The softmax over `fill` as the score of each hidden key; without a bias the mean of V."""


class Causal(IntEnum):
    """Which keys come too late to count."""

    NO = 0
    FIRST = 1
    """The first query sees the first key, the next one key more."""
    LAST = 2
    """The last query sees every key, the one before one less: keys of a cache come first."""


class Guard(IntEnum):
    """Which queries give 0 instead of what is no number."""

    NO = 0
    WEIGHTS = 1
    """Guards queries with weights of NaN, and those without a key whose bias is -inf."""
    BIAS = 2
    """Guards queries of which every key is hidden, or has a bias of -inf or the lowest number."""


ROWS = (Layout.ROWS,) * 4


@dataclass(frozen=True)
class Attention(Operator):
    """It holds no weights. `heads` are those of what lies as rows; 0 where nothing does."""

    OPS: ClassVar[tuple[str, ...]] = ("Attention",)
    LEAST: ClassVar[int] = 3

    q: ir.Value
    k: ir.Value
    v: ir.Value
    bias: ir.Value | None
    heads: int
    scale: float
    shape: tuple[int, ...] = WHOLE
    mask: ir.Value | None = None
    layouts: tuple[Layout, ...] = ROWS
    """Of Q, K, V and the result."""
    softcap: float = 0.0
    """Scores become `softcap * tanh(scores / softcap)`; 0: they stay."""
    causal: Causal = Causal.NO
    window: int = 0
    """How many keys, up to the last that counts, a causal query sees; 0: all."""
    groups: int = 1
    """Heads of Q for each head of K and V."""
    hidden: Hidden = Hidden.ZERO
    fill: float = 0.0
    """With Hidden.MEAN: the score of hidden keys, to which the bias is added; 0: the lowest."""
    replaces: bool = False
    """The bias is not added to `fill`."""
    guard: Guard = Guard.NO
    fits: bool = False
    """Bias and mask are no larger than the products, or the run is refused."""
    joined_bias: bool = False
    """Bias is [B * heads, S, T]."""
    sinks: ir.Value | None = None
    bfloat16: bool = False
    """More than a few queries multiply in bfloat16 (docs/numbers.md)."""

    @property
    def kv_heads(self) -> int:
        """The heads of K and V, where they lie as rows."""
        return self.heads // self.groups

    def write(self, p: Packer) -> Written:
        stated: dict[str, Any] = {
            name: int(getattr(self, name)) for name in FLAGS if getattr(self, name)
        }
        if self.shape != WHOLE:
            stated["shape"] = list(self.shape)
        if self.layouts != ROWS:
            stated["layouts"] = [int(layout) for layout in self.layouts]
        if self.softcap:
            stated["softcap"] = self.softcap
        if self.fill:
            stated["fill"] = self.fill
        if self.groups > 1:
            stated["groups"] = self.groups
        given = [name for name in ADDED if getattr(self, name) is not None]
        if given not in ([], ["bias"]):
            stated["given"] = " ".join(given)
        return Written(self.inputs(), {"heads": self.heads, "scale": self.scale, **stated})

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Attention:
        q, k, v, *rest = inputs
        added = dict(zip(["bias"], rest, strict=False))
        if "given" in node.attributes:
            added = given_inputs(node, rest, ADDED)
        held = {name: attribute(node, name) for name in FLAGS if name in node.attributes}
        types = {"causal": Causal, "window": int, "hidden": Hidden, "guard": Guard}
        more = {name: types.get(name, bool)(number) for name, number in held.items()}
        if "layouts" in node.attributes:
            more["layouts"] = tuple(Layout(i) for i in attribute(node, "layouts"))
        stated = [n for n in ("softcap", "fill", "groups") if n in node.attributes]
        more |= {name: attribute(node, name) for name in stated}
        return cls(
            q,
            k,
            v,
            added.get("bias"),
            attribute(node, "heads"),
            attribute(node, "scale"),
            tuple(attribute(node, "shape")) if "shape" in node.attributes else WHOLE,
            added.get("mask"),
            sinks=added.get("sinks"),
            **more,
        )


ADDED = ("bias", "mask", "sinks")
"""Inputs that an Attention may have, in order."""
FLAGS = (
    "causal",
    "window",
    "hidden",
    "replaces",
    "guard",
    "fits",
    "joined_bias",
    "bfloat16",
)
"""Attributes of Attention that are whole numbers, and left out where they are 0."""


@dataclass(frozen=True)
class MatMul(Operator):
    """`a` and `b` are float32 of rank 2 or more; their leading dimensions broadcast."""

    OPS: ClassVar[tuple[str, ...]] = ("MatMul",)
    LEAST: ClassVar[int] = 2

    a: ir.Value
    b: ir.Value
    transpose_b: bool = False
    per_tensor_b: bool = False
    """Stock operators get one scale for all of B, where it is not a file that has one a column."""

    def write(self, p: Packer) -> Written:
        return Written(self.inputs(), {"transpose_b": int(self.transpose_b)})

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> MatMul:
        return cls(inputs[0], inputs[1], bool(attribute(node, "transpose_b")))
