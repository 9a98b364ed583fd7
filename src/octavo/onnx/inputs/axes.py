"""What each axis of an input counts: items of a batch, tokens, pixels, samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import onnx_ir as ir

from octavo.onnx.inputs.dataflow import LOST, Dataflow, Reading, attribute_int, input_at
from octavo.onnx.inputs.float_uses import past_axis
from octavo.onnx.inputs.roles import InputKind, Role, has_word, is_name, name_words


class Axis(Enum):
    """What an axis counts."""

    BATCH = "batch"
    LENGTH = "tokens"
    PAST = "past"
    TOTAL = "past and tokens"
    HEIGHT = "height"
    WIDTH = "width"
    DEPTH = "depth"
    SAMPLES = "samples"
    FRAMES = "frames"
    OTHER = "other"


_OF_TOKENS = frozenset(
    [Role.IDS, Role.TYPES, Role.POSITIONS, Role.INTEGERS, Role.INDEX, Role.CATEGORY]
)
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div")
_MASKS = frozenset([Role.MASK, Role.ADDED_MASK])
_SEQUENCE_WORDS = tuple("seq sequence length len time frames steps tokens t l".split())
_BATCH_WORDS = frozenset(["batch", "n", "b", "bs", "bsz", "batchsize"])
_RECURRENT = frozenset(["LSTM", "GRU", "RNN"])
_SAME_SHAPE_STEPS = frozenset(
    "Cast Identity Relu Tanh Sigmoid Dropout Clip Neg Abs LayerNormalization BatchNormalization "
    "InstanceNormalization".split()
)


@dataclass(frozen=True)
class InputLayout:
    """One input: what it is, and for each axis what it counts, its name (empty where it has none)
    and its size where that is fixed, by the model or by the layer that reads it.
    """

    value: ir.Value
    kind: InputKind
    axes: tuple[Axis, ...]
    symbols: tuple[str, ...]
    sizes: tuple[int | None, ...]

    @property
    def name(self) -> str:
        """Return the name of the input."""
        return self.value.name or ""

    def key(self, i: int) -> str:
        """Equal for axes that are as long as each other: their name, or what they count."""
        if self.symbols[i]:
            return self.symbols[i]
        axis = self.axes[i]
        return f"?{axis.value} {i}" if axis is Axis.OTHER else f"?{axis.value}"


def layouts_of(
    inputs: Sequence[ir.Value], kinds: Mapping[str, InputKind], flow: Dataflow
) -> list[InputLayout]:
    """Return the layouts of the inputs, in their order."""
    found = []
    for value in inputs:
        needs = _first_layer(value, flow)
        found.append(_layout(value, kinds[value.name or ""], needs, past_axis(value, flow)))
    return _with_totals(_masks_over_time(_masks_over_pictures(found)))


def _layout(value: ir.Value, kind: InputKind, needs: _Needs, past: int | None) -> InputLayout:
    dims: list[int | str | None]
    if value.shape is None:
        dims = [None] * (needs.rank or 0)
    else:
        dims = [d if isinstance(d, int) else d.value for d in value.shape]
    rank = len(dims)
    symbols = tuple(d if isinstance(d, str) and is_name(d) else "" for d in dims)
    needed = [needs.dims.get(i, needs.dims.get(i - rank)) for i in range(rank)]
    sizes = tuple(
        d if isinstance(d, int) and d >= 0 else n for d, n in zip(dims, needed, strict=True)
    )
    axes = _axes(kind, sizes, [n is not None for n in needed], needs, past)
    axes = [_named(axis, symbols[i], is_first=i == 0) for i, axis in enumerate(axes)]
    return InputLayout(value, kind, tuple(axes), symbols, sizes)


def _axes(
    kind: InputKind,
    sizes: Sequence[int | None],
    needed: Sequence[bool],
    needs: _Needs,
    past: int | None,
) -> list[Axis]:
    rank = len(sizes)
    if kind.role is Role.IMAGE:
        return _of_picture(rank, kind.channels_last)
    found = [Axis.OTHER] * rank
    if kind.role is Role.AUDIO and rank:
        found[-1] = Axis.SAMPLES
    elif (kind.role in _OF_TOKENS or kind.role in _MASKS) and rank:
        found[-1] = Axis.LENGTH
        if rank >= 3 and kind.role in _MASKS:
            found[-2] = Axis.LENGTH
    elif kind.role is Role.PAST and past is not None:
        found[past] = Axis.PAST
    elif kind.role is Role.FEATURES and rank >= 3:
        open_ones = [i for i in range(1, rank) if sizes[i] is None and not needed[i]]
        rest = [i for i in range(1, rank) if not needed[i] and (sizes[i] or 0) > 1]
        for i in open_ones or sorted(rest, key=lambda i: sizes[i] or 0)[-1:]:
            found[i] = Axis.FRAMES
    if kind.role is Role.STATE and rank >= 2:
        found[-2] = Axis.BATCH
        return found
    batch, time = (needs.batch, needs.time) if rank >= 3 else (None, None)
    if time is not None and batch is not None:
        found[time], found[batch] = Axis.FRAMES, Axis.BATCH
    elif rank >= 3 and sizes[0] is not None and sizes[1] is None and not needed[1]:
        found[1] = Axis.BATCH  # of states and the like, which are stacked by layers
    elif rank >= 2 or (rank == 1 and found[0] is Axis.OTHER):
        found[0] = Axis.BATCH
    return found


def _of_picture(rank: int, channels_last: bool) -> list[Axis]:
    spatial = [Axis.DEPTH, Axis.HEIGHT, Axis.WIDTH]
    if channels_last:
        n = 3 if rank >= 5 else 2
        return [Axis.BATCH] * (rank - n - 1) + spatial[-n:] + [Axis.OTHER]
    n = max(0, min(3, rank - 2))
    return [Axis.BATCH, Axis.OTHER, *spatial[3 - n :]][:rank] if n else [Axis.OTHER] * rank


def _named(axis: Axis, symbol: str, *, is_first: bool) -> Axis:
    """Return the axis that the name `symbol` says, where that is plain, else `axis`."""
    words = name_words(symbol)
    if not words or any(c in symbol for c in "+-*/"):
        return axis
    if "batch" in symbol.lower() or (is_first and words <= _BATCH_WORDS):
        return Axis.BATCH
    if "past" in words:
        return Axis.PAST
    if "total" in words and axis is not Axis.BATCH:
        return Axis.TOTAL
    if axis is Axis.OTHER or axis is Axis.BATCH:
        for word, meant in (("height", Axis.HEIGHT), ("width", Axis.WIDTH)):
            if word in words:
                return meant
    if axis is Axis.BATCH and has_word(symbol, *_SEQUENCE_WORDS):
        return Axis.LENGTH
    return axis


# Inputs beside each other -------------------------------------------------------------------------


def _masks_over_pictures(found: list[InputLayout]) -> list[InputLayout]:
    """Masks of pixels are as high and wide as the pictures beside them."""
    pictures = [layout for layout in found if layout.kind.role is Role.IMAGE]
    if not pictures:
        return found
    spatial = tuple(a for a in pictures[0].axes if a not in (Axis.BATCH, Axis.OTHER))
    return [
        replace(layout, axes=(*layout.axes[: len(layout.axes) - len(spatial)], *spatial))
        if layout.kind.role in _MASKS and len(layout.axes) > len(spatial) > 1
        else layout
        for layout in found
    ]


def _masks_over_time(found: list[InputLayout]) -> list[InputLayout]:
    """Make masks as long as the frames or samples beside them, where there are no ids."""
    of_data = [a for layout in found if layout.kind.role not in _MASKS for a in layout.axes]
    time = next((a for a in of_data if a in (Axis.FRAMES, Axis.SAMPLES)), None)
    if time is None or any(layout.kind.role is Role.IDS for layout in found):
        return found
    return [
        replace(layout, axes=tuple(time if a is Axis.LENGTH else a for a in layout.axes))
        if layout.kind.role in _MASKS
        else layout
        for layout in found
    ]


def _with_totals(found: list[InputLayout]) -> list[InputLayout]:
    """Masks over a past and the tokens behind it have an axis for both."""
    if not any(layout.kind.role is Role.PAST for layout in found):
        return found
    of_tokens = {x.key(len(x.axes) - 1) for x in found if x.kind.role is Role.IDS and x.axes}
    return [
        replace(layout, axes=(*layout.axes[:-1], Axis.TOTAL))
        if layout.kind.role in _MASKS
        and layout.axes
        and layout.axes[-1] is Axis.LENGTH
        and not (layout.symbols[-1] and layout.symbols[-1] in of_tokens)
        else layout
        for layout in found
    ]


# What the first layer needs -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Needs:
    """The rank and the sizes of single axes that a layer needs of its input.

    `time` and `batch` are the axes that a recurrent layer takes for these.
    """

    rank: int | None = None
    dims: Mapping[int, int] = field(default_factory=dict)
    time: int | None = None
    batch: int | None = None


def _first_layer(value: ir.Value, flow: Dataflow) -> _Needs:
    """Return what the first layer that reads `value` needs of its shape."""

    def same_shape(node: ir.Node, index: int) -> bool:
        if node.op_type in _ELEMENTWISE and len(node.inputs) == 2:
            other = flow.sizes(node.inputs[1 - index])
            return other is not None and all(n == 1 for n in other)
        return index == 0 and node.op_type in _SAME_SHAPE_STEPS

    for reading in flow.readings(value, same_shape):
        needs = None if reading.axes == LOST else _needs(reading, flow)
        if needs is not None:
            return needs
    return _Needs()


def _needs(reading: Reading, flow: Dataflow) -> _Needs | None:
    node = reading.node
    if node.op_type in _ELEMENTWISE and len(node.inputs) == 2:
        return _needs_beside_constant(reading, flow)
    if reading.slot != 0 or len(node.inputs) < 2:
        return None
    weight, bias = (
        flow.sizes(v) if flow.is_constant(v) else None
        for v in (input_at(node, 1), input_at(node, 2))
    )
    found = None if weight is None else _sizes_of_layer(node, weight, bias or ())
    if weight is None or found is None:
        return None
    dims = {reading.axis(axis): size for axis, size in found.items()}
    rank = len(weight) if reading.axes is None else sum(a is not None for a in reading.axes)
    time = batch = None
    if node.op_type in _RECURRENT:
        batch_first = attribute_int(node, "layout", 0)
        time, batch = reading.axis(batch_first), reading.axis(1 - batch_first)
    return _Needs(rank, {a: n for a, n in dims.items() if a is not None}, time, batch)


def _needs_beside_constant(reading: Reading, flow: Dataflow) -> _Needs | None:
    """Means and scales that the model has for each frequency, say, tell how many there are."""
    other = input_at(reading.node, 1 - reading.slot)
    constant = flow.sizes(other) if flow.is_constant(other) else None
    known = {
        axis: size
        for i, size in enumerate(constant or (), start=-len(constant or ()))
        if size != 1 and (axis := reading.axis(i)) is not None
    }
    return _Needs(dims=known) if known else None


def _sizes_of_layer(
    node: ir.Node, weight: tuple[int, ...], bias: tuple[int, ...]
) -> dict[int, int] | None:
    """Sizes by axis of what the layer reads; None for other nodes."""
    rank = len(weight)
    if node.op_type in ("MatMul", "FusedMatMul", "Gemm") and attribute_int(node, "transA", 0):
        return None
    if node.op_type in ("MatMul", "FusedMatMul") and rank >= 2:
        inputs = weight[-1 if attribute_int(node, "transB", 0) else -2]
        return {-1: inputs} | {i - rank: n for i, n in enumerate(weight[:-2]) if n != 1}
    if node.op_type == "Gemm" and rank == 2:
        rows = {0: bias[0]} if len(bias) == 2 and bias[0] != 1 else {}
        return {1: weight[1 if attribute_int(node, "transB", 0) else 0]} | rows
    if node.op_type == "Conv" and rank >= 3:
        return {1: weight[1] * attribute_int(node, "group", 1)}
    return {2: weight[2]} if node.op_type in _RECURRENT and rank == 3 else None
