"""A chain of tensor steps, as a transformer block is one, as a single call into the C++ core.

    p = Program()
    x = p.input(3)
    normed = p.norm(x, weight, None, 1e-6, "rms")
    (up,) = p.linear(normed, [layer], ["silu"])
    p.output(up)
    run = p.finish("an example")
    (y,) = run((tensor,), (), threads)

Values have numbers; their sizes and strides are those of each call. Results of kernels are fresh,
float32 where nothing else is said. All bits are the same on every instruction set and for every
number of threads (docs/numbers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.core.kernels.activation import Activation
from octavo.core.program_elements import Elements
from octavo.core.program_values import Length, Size, ValueType

__all__ = ["Normed", "Program", "Run", "Size", "ValueType"]

NORMS = ("layer", "rms")
GATES = ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid")

Run = Callable[[tuple[Any, ...], tuple[int, ...], int], tuple[Any, ...]]
"""`run(tensors, ints, threads)`: new tensors of PyTorch, one for each output.

`tensors` and `ints` are the inputs in the order in which they were made, `threads` 0 stands for
`num_threads()`. Gives up Python's lock where the call is a long one. Raises ValueError, which names
the program, the step and the value, for what does not fit; then nothing was written, but for an
index outside of its tensor, where copies that came before have been made.
"""


@dataclass(frozen=True)
class Normed:
    """What rows go through before linear layers: as `Program.norm` has it; `kept`: a result too."""

    kind: str
    weight: int | None
    bias: int | None
    eps: float
    kept: bool = False


class Program(Elements):
    """What follows what. Steps run in the order in which they are added, once `finish` is called.

    A value is the number that a method returned; a size is an int or a `Size`.
    """

    def _float(self, step: str, value: int, rank: int | None = None) -> int:
        found = self._of_type(step, value, ValueType.FLOAT32)
        if found.rank == 0 or (rank is not None and found.rank != rank):
            self._refuse(step, value, f"needs {rank or 'some'} axes")
        return found.rank

    def _fresh(self, made: int, rank: int) -> int:
        return self._made(made, ValueType.FLOAT32, rank)

    def linear(
        self,
        x: int,
        layers: Sequence[Any],
        activations: Sequence[str] = (),
        residual: int | None = None,
        gate: str = "",
        span: Sequence[int] = (),
        norm: Normed | None = None,
    ) -> tuple[int, ...]:
        """Linear layers (`Linear.native`) over one `x` [..., K], which is quantized once.

        Results are [..., N], each of its layer's activation, whatever that has itself. `residual`
        [..., N] is added to that of a single layer. With a `gate`, one of GATES, two layers give
        one value: the gate's function of the first, multiplied with the second. With a `span`,
        int64 values that name rows of x, only the rows from the first to the last of those are
        computed: the others hold anything. With a `norm`, the layers' x is the normalized one,
        which is the last result where it is kept.
        """
        rank = self._float("linear", x)
        if residual is not None:
            if len(layers) != 1 or gate:
                self._refuse("linear", x, "has a residual, which belongs to a single layer")
            self._float("linear", residual, rank)
        if gate and (
            gate not in GATES or len(layers) != 2 or any(a != "none" for a in activations)
        ):
            self._refuse("linear", x, f"with gate {gate!r}: needs two layers, and one of {GATES}")
        if span and (residual is not None or gate or norm):
            self._refuse("linear", x, "has a span, which goes with no residual, gate or norm")
        for index in span:
            self._index("linear", index)
        words = (gate,) if gate else tuple(activations) or ("none",) * len(layers)
        codes = [Activation.parse(word).code for word in words]
        added = -1 if residual is None else residual
        how = [] if norm is None else self._norm_codes(x, norm)
        eps = 0.0 if norm is None else norm.eps
        made = self._native.linear(x, list(layers), codes, added, bool(gate), list(span), how, eps)
        return tuple(self._fresh(value, rank) for value in made)

    def norm(
        self,
        x: int,
        weight: int | None,
        bias: int | None,
        eps: float,
        kind: str,
        residual: int | None = None,
    ) -> int | tuple[int, int]:
        """Rows of the last axis to variance 1, by "layer" to mean 0 too, then `* weight + bias`.

        With a residual: of `x + residual`, and the result is (that sum, the normalized rows).
        """
        rank = self._float("norm", x)
        if residual is not None:
            self._float("norm", residual, rank)
        code, gain, shift, _ = self._norm_codes(x, Normed(kind, weight, bias, eps))
        added = -1 if residual is None else residual
        made = self._native.norm(code, x, added, gain, shift, eps)
        found = tuple(self._fresh(value, rank) for value in made)
        return found[0] if residual is None else (found[0], found[1])

    def _norm_codes(self, x: int, norm: Normed) -> list[int]:
        if norm.kind not in NORMS:
            self._refuse("norm", x, f"of kind {norm.kind!r}: it is one of {NORMS}")
        for vector in (norm.weight, norm.bias):
            if vector is not None:
                self._float("norm", vector, 1)
        gain, shift = (-1 if v is None else v for v in (norm.weight, norm.bias))
        return [NORMS.index(norm.kind), gain, shift, norm.kept]

    def attention(
        self,
        q: int,
        k: int,
        v: int,
        scale: float,
        bias: int | None = None,
        mask: int | None = None,
        causal: bool = False,
        offset: Length = 0,
        window: Length = 0,
        softcap: float = 0.0,
        bfloat16: bool = False,
    ) -> int:
        """Compute `softmax(scale q k^T + bias) v` [B, H, S, E], whose memory is [B, S, H, E].

        The inputs are q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, E], where H is a multiple of
        Hkv. `bias` and `mask` (bool: the keys that count) broadcast to [B, H, S, T]. `causal`:
        query i counts keys t <= i + offset, with a `window` above 0 only t > i + offset - window.
        `softcap`: products become softcap tanh(product / softcap). Queries without a key are 0.
        `bfloat16`: more than 16 queries multiply in bfloat16.
        """
        for value in (q, k, v):
            self._float("attention", value, 4)
        for added, kind in ((bias, ValueType.FLOAT32), (mask, ValueType.BOOL)):
            if added is not None and self._of_type("attention", added, kind).rank > 4:
                self._refuse("attention", added, "needs four axes or fewer")
        made = self._native.attention(
            q,
            k,
            v,
            scale,
            -1 if bias is None else bias,
            -1 if mask is None else mask,
            causal,
            self._size(offset),
            self._size(window),
            softcap,
            bfloat16,
        )
        return self._fresh(made, 4)

    def rotary(self, x: int, cos: int, sin: int, interleaved: bool = False) -> int:
        """Rotary positions of x [B, H, S, D], in its order of axes and of memory.

        cos and sin are [B or 1, 1, S, R] (leading axes may be missing), R <= D even: of each row
        the first R elements are turned, as pairs of its halves, or (`interleaved`) of neighbours.
        """
        self._float("rotary", x, 4)
        for table in (cos, sin):
            if not 2 <= self._float("rotary", table) <= 4:
                self._refuse("rotary", table, "needs two to four axes")
        return self._fresh(self._native.rotary(x, cos, sin, interleaved), 4)

    def softmax(self, x: int) -> int:
        """Compute the softmax over the last axis."""
        rank = self._float("softmax", x)
        return self._fresh(self._native.softmax(x), rank)

    def mean(self, x: int, keepdim: bool = False) -> int:
        """Compute the mean over the last axis."""
        return self._sum("mean", x, keepdim)

    def sum(self, x: int, keepdim: bool = False) -> int:
        """Compute the sum over the last axis."""
        return self._sum("sum", x, keepdim)

    def _sum(self, step: str, x: int, keepdim: bool) -> int:
        rank = self._float(step, x)
        made = self._native.sum(x, step == "mean", keepdim)
        return self._fresh(made, rank if keepdim else rank - 1)

    def matmul(self, a: int, b: int) -> int:
        """Products of float32 matrices, as torch.matmul of two axes and more."""
        ranks = [self._float("matmul", value) for value in (a, b)]
        for value, rank in zip((a, b), ranks, strict=True):
            if rank < 2:
                self._refuse("matmul", value, "needs two axes or more")
        return self._fresh(self._native.matmul(a, b), max(ranks))

    def cat(self, values: Sequence[int], axis: int) -> int:
        """Join values along an axis, as torch.cat does."""
        if not values:
            raise ValueError("cat: needs a value")
        first = self._value("cat", values[0])
        for value in values:
            if self._of_type("cat", value, first.dtype).rank != first.rank:
                self._refuse("cat", value, f"needs {first.rank} axes, as value {values[0]}")
        along = self._axis("cat", values[0], axis)
        made = self._native.cat(first.dtype.code, list(values), along)
        return self._made(made, first.dtype, first.rank)

    def copy_to(self, x: int, into: int) -> None:
        """Write `x` into the memory of the view `into`; steps that come later read it there."""
        found = self._value("copy_to", x)
        if self._of_type("copy_to", into, found.dtype).rank != found.rank:
            self._refuse("copy_to", x, f"does not fill value {into}")
        self._native.copy_to(x, into)

    def index_copy(self, x: int, into: int, axis: int, index: int) -> None:
        """Do `into.index_copy_(axis, index, x)`: for each of the indices int64 [n] a slice."""
        found = self._value("index_copy", x)
        along = self._axis("index_copy", into, axis)
        if self._of_type("index_copy", into, found.dtype).rank != found.rank:
            self._refuse("index_copy", x, f"does not fill value {into}")
        self._index("index_copy", index, 1)
        self._native.index_copy(x, into, along, index)

    def _index(self, step: str, index: int, rank: int | None = None) -> int:
        found = self._of_type(step, index, ValueType.INT64)
        if rank is not None and found.rank != rank:
            self._refuse(step, index, f"needs {rank} axes")
        return found.rank

    def take(self, x: int, axis: int, index: int) -> int:
        """Select slices along an axis as torch.index_select does, `index` int64 [n]."""
        found, along = self._value("take", x), self._axis("take", x, axis)
        self._index("take", index, 1)
        made = self._native.take(found.dtype.code, x, along, index)
        return self._made(made, found.dtype, found.rank)

    def gather(self, x: int, axis: int, index: int) -> int:
        """Gather elements as torch.gather does: `index` int64 has as many axes as `x`."""
        found, along = self._value("gather", x), self._axis("gather", x, axis)
        self._index("gather", index, found.rank)
        made = self._native.gather(found.dtype.code, x, along, index)
        return self._made(made, found.dtype, found.rank)

    def gathered_product(self, a: int, table: int, index: int, transposed: bool = False) -> int:
        """Compute `gather(a @ table^T, -1, index)` from the products that are looked up alone.

        The result is [.., S, T], or [.., T, S] where `transposed`, of a [.., S, K], table
        [.., W, K] and int64 `index` [.., S, T] with three or four axes; of the table and the index
        those before the last two repeat where they are 1.
        """
        rank = self._float("gathered_product", a)
        if rank not in (3, 4):
            self._refuse("gathered_product", a, "needs three or four axes")
        self._float("gathered_product", table, rank)
        self._index("gathered_product", index, rank)
        return self._fresh(self._native.gathered_product(a, table, index, transposed), rank)

    def embedding(self, table: int, index: int) -> int:
        """Rows [..., width] of a `table` [count, width] by int64 indices [...]."""
        found, rank = self._value("embedding", table), self._index("embedding", index)
        if found.rank != 2:
            self._refuse("embedding", table, "needs two axes")
        made = self._native.embedding(found.dtype.code, table, index)
        return self._made(made, found.dtype, rank + 1)

    def output(self, value: int) -> None:
        """Add the next output: a new tensor, with the strides of `value` where that has no gaps."""
        self._value("output", value)
        self._native.output(value)

    def finish(self, name: str) -> Run:
        """Return what runs the program; `name` is for messages. Nothing is added from here on."""
        self._native.finish(name)
        return self._native
