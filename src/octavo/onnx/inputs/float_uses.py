"""What the nodes that read an input of floating-point numbers or bytes say of it."""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.inputs.dataflow import (
    MOVES,
    Dataflow,
    Reading,
    attribute_int,
    input_at,
    moves,
    moves_or_picks,
    rank_of,
)
from octavo.onnx.inputs.roles import InputKind, Role, has_word

_ELEMENTWISE = frozenset(
    "Cast Identity Add Sub Mul Div Clip Neg Abs Pow Sqrt Relu LeakyRelu Sigmoid Tanh Pad Slice "
    "BatchNormalization InstanceNormalization LayerNormalization Dropout Resize Concat Split "
    "Expand Tile Upsample QuantizeLinear DequantizeLinear FusedConv".split()
)
_SPECTRA = frozenset(["STFT", "DFT", "MelWeightMatrix"])
_CONVOLUTIONS = frozenset(["Conv", "ConvInteger", "FusedConv"])
_TOWARD_WAVES = MOVES | {"Mul", "Div", "Concat", "MatMul"}
_CHANNELS = (1, 3, 4)
_OF_SIGNALS = 3  # axes of the weight of a convolution over time
_RAW, _FRAMED = 256, 4000  # samples of a signal, and of one that is cut into frames, at least
_FEWEST_PIXELS = 24
_PAST_SLOTS = {
    "MultiHeadAttention": (6, 7),
    "GroupQueryAttention": (3, 4),
    "Attention": (4, 5),
    "DecoderMaskedMultiHeadAttention": (5, 6),
}


def scene(value: ir.Value, flow: Dataflow) -> InputKind | None:
    """Tell an image or a sound by the first layer that reads `value`; None for anything else."""
    reading = _first_layer(value, flow)
    rank = rank_of(value)
    if reading is None:
        return _by_shape(value)
    if reading.node.op_type in _SPECTRA:
        return InputKind(Role.AUDIO)
    weight = flow.sizes(input_at(reading.node, 1))
    if weight is None or len(weight) < _OF_SIGNALS:
        return None
    if rank is not None and rank <= 2:  # cut into frames, or with its one channel put in
        return InputKind(Role.AUDIO) if _lasts(value, weight) else None
    if len(weight) == _OF_SIGNALS:
        return InputKind(Role.AUDIO) if weight[1] == 1 and _lasts(value, weight) else None
    if _is_of_frames(value) or rank is None:
        return None
    last = reading.axis(1) == rank - 1
    if rank == len(weight) or (last and rank >= len(weight) - 1):
        return InputKind(Role.IMAGE, channels_last=last, to_255=_to_255(value, flow))
    return None


def _first_layer(value: ir.Value, flow: Dataflow) -> Reading | None:
    """Return how the first convolution or spectrum reads `value`; None where none does."""

    def steps(node: ir.Node, index: int) -> bool:
        if node.op_type == "Gather":  # that swaps channels
            return index == 0 and flow.is_constant(input_at(node, 1))
        return node.op_type in _ELEMENTWISE

    layers = _SPECTRA | _CONVOLUTIONS
    found = flow.readings(value, steps)
    return next((r for r in found if r.node.op_type in layers and r.slot == 0), None)


def _lasts(value: ir.Value, weight: tuple[int, ...]) -> bool:
    """Tell whether the last axis is open, or as long as a signal is, and no picture in a row."""
    last = value.shape[-1] if value.shape is not None and len(value.shape) else None
    is_raw = weight[1] == 1 and len(weight) == _OF_SIGNALS
    return not isinstance(last, int) or last < 0 or last >= (_RAW if is_raw else _FRAMED)


def _is_of_frames(value: ir.Value) -> bool:
    """Tell whether a name says that an axis is time, as in spectrograms."""
    symbols = [d.value for d in value.shape or () if not isinstance(d, int)]
    return any(has_word(symbol, "frames", "frame", "time", "seq") for symbol in symbols)


def _by_shape(value: ir.Value) -> InputKind | None:
    if value.shape is None or len(value.shape) != 4 or _is_of_frames(value):
        return None
    first_is_small, last_is_small = (value.shape[i] in _CHANNELS for i in (1, 3))
    others = value.shape[2:] if first_is_small else value.shape[1:-1]
    if not (first_is_small or last_is_small) or any(
        isinstance(n, int) and 0 <= n < _FEWEST_PIXELS for n in others
    ):
        return None
    is_bytes = value.dtype is ir.DataType.UINT8
    return InputKind(Role.IMAGE, channels_last=not first_is_small, to_255=is_bytes)


def _to_255(value: ir.Value, flow: Dataflow) -> bool:
    """Tell whether values go up to 255: bytes, or numbers that the model itself scales down."""
    if value.dtype is ir.DataType.UINT8:
        return True
    for node, index, _ in flow.reads(value, moves):
        if node.op_type not in ("Div", "Mul", "Sub") or len(node.inputs) != 2 or index:
            continue
        largest = max(map(abs, flow.numbers(node.inputs[1]) or (0.0,)))
        if 0 < largest <= 1 / 50 if node.op_type == "Mul" else largest >= 50:
            return True
    return False


def past_axis(value: ir.Value, flow: Dataflow) -> int | None:
    """Return the axis along which the model appends to `value`, as to a cache of keys, or None."""
    if value.shape is None or len(value.shape) < 3:
        return None
    rank = len(value.shape)
    for node, index, _ in flow.reads(value, _stays):
        if index in _PAST_SLOTS.get(node.op_type, ()):
            return rank - 2
        if node.op_type == "Concat" and index == 0 and len(node.inputs) == 2:
            other = node.inputs[1]
            if other is None or other.is_graph_input() or other.is_initializer():
                continue
            along = attribute_int(node, "axis", 0) % rank
            size = value.shape[along]
            if along and (not isinstance(size, int) or size < 0):
                return along
    return None


def _stays(node: ir.Node, index: int) -> bool:
    is_alone = node.op_type == "Concat" and len(node.inputs) == 1
    return index == 0 and (node.op_type in ("Identity", "Cast") or is_alone)


def is_state(value: ir.Value, flow: Dataflow) -> bool:
    """Tell whether a recurrent layer begins with it."""
    return any(
        node.op_type in ("LSTM", "GRU", "RNN") and index in (5, 6)
        for node, index, _ in flow.reads(value, moves_or_picks)
    )


def is_threshold(value: ir.Value, flow: Dataflow) -> bool:
    """Tell whether scores or overlaps are compared with it."""
    return any(
        node.op_type == "NonMaxSuppression" and index in (3, 4)
        for node, index, _ in flow.reads(value, moves)
    )


def is_step(value: ir.Value, flow: Dataflow) -> bool:
    """Tell whether sines and cosines of it are taken, as of the step of a diffusion."""
    return flow.reaches(value, ("Sin", "Cos"), lambda node, _: node.op_type in _TOWARD_WAVES)
