"""nn.EmbeddingBag over a table of integers or 16-bit floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from octavo.core.embedding import MODES
from octavo.core.embedding import Embedding as Kernel
from octavo.core.live_buffers import Read
from octavo.errors import OptionError, did_you_mean
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.inputs import as_leaf, is_proxy
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.table import QuantizedTable, checked, core, in_kernel, rows_of

Call = Callable[..., Tensor]


@quantized(
    replaces=nn.EmbeddingBag,
    kind=Kind.EMBEDDING,
    dtypes=("uint8",),
    inputs=lambda module, is_deep: [(4, 16), (16,)],
    onnx=("embedding_bag",),
)
class QuantizedEmbeddingBag(QuantizedTable):
    """Sums, means or maxima [bags, embedding_dim] of rows, in the float table's dtype.

    Rows are added in float32. `mode` is "sum", "mean" or "max".
    """

    OWN = ("mode", "include_last_offset")
    CONFIG = (*QuantizedTable.CONFIG, *OWN)

    def __init__(
        self, *table: Any, mode: str = "mean", include_last_offset: bool = False, **options: Any
    ) -> None:
        """Make a layer without weights; `table` and `options` are those of every QuantizedTable."""
        super().__init__(*table, **options)
        if mode not in MODES:
            raise OptionError(f"mode: unknown {mode!r}.{did_you_mean(mode, MODES)}")
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(
        self,
        input: Tensor,  # noqa: A002  # as torch's layer calls it
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the bags of the indices `input`, int32 or int64.

        Bags are the rows of `input` [bags, length], or parts of `input` [count] that begin at
        `offsets` [bags] ([bags + 1] with `include_last_offset`). `per_sample_weights`, in the shape
        of `input` and of any float dtype, weigh the rows of a sum. Raises ValueError, TypeError
        and IndexError, which name the argument.
        """
        given = (input, offsets, per_sample_weights)
        if any(map(is_proxy, given)):
            return as_leaf(self, *given)
        last = self.include_last_offset and input.dim() == 1
        if input.is_nested:
            offsets, last = input.offsets(), True
            if per_sample_weights is not None:
                per_sample_weights = per_sample_weights.values().reshape(-1)
            input = input.values().reshape(-1)  # noqa: A001
        _check(input, offsets, per_sample_weights, self.mode, last)
        padding = -1 if self.padding_idx is None else self.padding_idx
        weights = None if per_sample_weights is None else per_sample_weights.float()
        how = (MODES.index(self.mode), last, padding)
        if ops.direct(input) and (weights is None or ops.direct(weights)):
            bags = self._ready()(input, offsets, weights, *how)
        else:
            held = (self.table, self.scale, self.zero_point)
            bags = embedding_bag(input, offsets, weights, *held, *how)
        return self._in_kind(bags)

    def _kernel(self) -> Call:
        return kernel(self.table, self.scale, self.zero_point)


def _check(
    indices: Tensor, offsets: Tensor | None, weights: Tensor | None, mode: str, last: bool
) -> None:
    if indices.dim() == 1 and offsets is None:
        raise ValueError("offsets: are needed where input has one axis")
    if indices.dim() == 2 and offsets is not None:
        raise ValueError("offsets: need to be None where input has two axes, [bags, length]")
    if indices.dim() not in (1, 2):
        raise ValueError(
            f"input: needs shape [bags, length], or [count] and offsets, not {tuple(indices.shape)}"
        )
    if offsets is not None and (offsets.dim() != 1 or (last and not offsets.shape[0])):
        least = ", one at least with include_last_offset" * last
        raise ValueError(f"offsets: need one axis{least}, not shape {tuple(offsets.shape)}")
    if weights is None:
        return
    if mode != "sum":
        raise ValueError(f"per_sample_weights: mode {mode!r} has none; only 'sum' does")
    if weights.shape != indices.shape:
        raise ValueError(
            f"per_sample_weights: needs the shape of input, {tuple(indices.shape)}, not "
            f"{tuple(weights.shape)}"
        )


def _check_starts(starts: Tensor, count: int) -> None:
    """Raise ValueError for offsets that do not fit, as the core does.

    Torch's own function takes some of those, and reads beyond its memory.
    """
    before = torch.cat([starts.new_zeros(1), starts[:-1]])
    bad = (starts < before) | (starts > count) | (starts != 0) & (torch.arange(len(starts)) == 0)
    for place in torch.nonzero(bad)[:1, 0].tolist():
        raise ValueError(
            f"offsets: have to begin with 0 and ascend to at most {count}, the number of indices; "
            f"offset {place} is {int(starts[place])}"
        )


def kernel(table: Tensor, scale: Tensor | None, zero_point: Tensor | None) -> Call:
    """Build a callable with the operator's arguments over these tensors, which it keeps alive."""
    if scale is not None and in_kernel(table, zero_point):
        return caller(core(table, scale, zero_point))

    def call(
        indices: Tensor, offsets: Any, weights: Any, mode: int, last: bool, padding: int
    ) -> Tensor:
        places = checked(indices)
        starts = None if offsets is None else checked(offsets, "offsets").long()
        if starts is None:  # torch's own function does not take bags of length 0
            starts = torch.arange(len(places)) * places.shape[1]
        # The rows that occur, behind one of zeros, so that every padding is row 0 of these.
        rows = rows_of(table, scale, zero_point, places.reshape(-1))
        rows = torch.cat([rows.new_zeros(1, rows.shape[-1]), rows])
        own = torch.arange(1, len(rows)).masked_fill_(places.reshape(-1) == padding, 0)
        _check_starts(starts, len(own))
        if len(starts) == last:  # which torch's own function reads beyond
            return rows.new_empty(0, rows.shape[-1])
        return functional.embedding_bag(
            own,
            rows,
            starts,
            mode=MODES[mode],
            per_sample_weights=None if weights is None else weights.detach().reshape(-1),
            include_last_offset=last,
            padding_idx=0,
        )

    return call


def caller(table: Kernel) -> Call:
    """Build the function that hands tensors to a table over addresses.

    The function's arguments are those of the operator.
    """
    dim, run = table.dim, table.run_bag
    threads = torch.get_num_threads

    def call(
        indices: Tensor, offsets: Any, weights: Any, mode: int, last: bool, padding: int
    ) -> Tensor:
        places = checked(indices)
        starts = None if offsets is None else checked(offsets, "offsets")
        weights = None if weights is None else weights.detach().contiguous()
        bags = _bags(places, starts, last)
        out = torch.empty((bags, dim), dtype=torch.float32)
        run(
            places.data_ptr(),
            places.dtype is torch.int64,
            places.numel(),
            0 if starts is None else starts.data_ptr(),
            starts is not None and starts.dtype is torch.int64,
            bags,
            last,
            places.shape[1] if starts is None else 0,
            0 if weights is None else weights.data_ptr(),
            padding,
            mode,
            out.data_ptr(),
            dim,
            threads(),
        )
        return out

    return call


def _bags(indices: Tensor, offsets: Tensor | None, last: bool) -> Any:
    return indices.shape[0] if offsets is None else offsets.shape[0] - last


_bound = ops.KernelCache(Read.LIVE)


def _run(
    indices: Tensor,
    offsets: Tensor | None,
    weights: Tensor | None,
    table: Tensor,
    scale: Tensor | None,
    zero_point: Tensor | None,
    mode: int,
    last: bool,
    padding: int,
) -> Tensor:
    if not 0 <= mode < len(MODES):
        raise ValueError(f"mode: {mode} is not in 0..{len(MODES) - 1}, the places in {MODES}")
    if last and offsets is None:
        raise ValueError("offsets: are needed where the last of them is the last bag's end")
    if not -1 <= padding < len(table):
        raise ValueError(f"padding: {padding} is not in -1..{len(table) - 1}, the rows; -1: none")
    _check(indices, offsets, weights, MODES[mode], last)
    if weights is not None and weights.dtype is not torch.float32:
        raise TypeError(f"per_sample_weights: needs float32, not {weights.dtype}")
    made = _bound.get(table, (scale, zero_point), lambda: kernel(table, scale, zero_point))
    return made(indices, offsets, weights, mode, last, padding)


def _fake(
    indices: Tensor, offsets: Tensor | None, weights: Any, table: Tensor, *others: Any
) -> Tensor:
    last = others[-2]
    return table.new_empty((_bags(indices, offsets, last), table.shape[1]), dtype=torch.float32)


embedding_bag = ops.define(
    "embedding_bag",
    "(Tensor indices, Tensor? offsets, Tensor? weights, Tensor table, Tensor? scale, "
    "Tensor? zero_point, int mode, bool last, int padding) -> Tensor",
    _run,
    _fake,
)
