"""What an input of floating-point numbers or bytes is: an image, a sound, a cache, features."""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.flow import MOVES, Flow, moves_or_picks
from octavo.onnx.made_up.kinds import InputKind, Role
from octavo.onnx.made_up.names import says
from octavo.onnx.made_up.paths import Reading, readings
from octavo.onnx.made_up.stored import attribute_int, numbers, read_by, sizes

_ELEMENTWISE = frozenset(
    "Cast Identity Add Sub Mul Div Clip Neg Abs Pow Sqrt Relu LeakyRelu Sigmoid Tanh Pad Slice "
    "BatchNormalization InstanceNormalization LayerNormalization Dropout Resize Concat Split "
    "Expand Tile Upsample QuantizeLinear DequantizeLinear FusedConv".split()
)
_SPECTRA = frozenset(["STFT", "DFT", "MelWeightMatrix"])
_CHANNELS = (1, 3, 4)
_OF_SIGNALS = 3  # axes of the weight of a convolution over time
_FRAMED = 4000  # samples that are cut into frames, at least
_FEWEST_PIXELS = 24
_PAST_SLOTS = {
    "MultiHeadAttention": (6, 7),
    "GroupQueryAttention": (3, 4),
    "Attention": (4, 5),
    "DecoderMaskedMultiHeadAttention": (5, 6),
}
_THRESHOLDS = frozenset([("NonMaxSuppression", 3), ("NonMaxSuppression", 4)])


def first_layer(value: ir.Value, flow: Flow, constants: Constants) -> Reading | None:
    """How the first convolution or spectrum reads `value`; None where none does."""

    def steps(node: ir.Node, index: int) -> bool:
        if node.op_type == "Gather":  # that swaps channels
            return index == 0 and constants.is_constant(read_by(node, 1))
        return node.op_type in _ELEMENTWISE

    for reading in readings(value, flow, constants, steps):
        op = reading.node.op_type
        if op in _SPECTRA and reading.slot == 0:
            return reading
        if op in ("Conv", "ConvInteger", "FusedConv") and reading.slot == 0:
            return reading
    return None


def scene(value: ir.Value, flow: Flow, constants: Constants) -> InputKind | None:
    """An image or a sound, by the first layer that reads it; None for anything else."""
    reading = first_layer(value, flow, constants)
    rank = None if value.shape is None else len(value.shape)
    if reading is None:
        return _by_shape(value)
    op = reading.node.op_type
    if op in _SPECTRA:
        return InputKind(Role.AUDIO, op)
    weight = sizes(read_by(reading.node, 1), constants)
    if weight is None or len(weight) < 3:
        return None
    if rank is not None and rank <= 2:  # cut into frames, or with its one channel put in
        return InputKind(Role.AUDIO, "Conv over frames") if _lasts(value, weight) else None
    if len(weight) == 3:
        is_signal = weight[1] == 1 and _lasts(value, weight)
        return InputKind(Role.AUDIO, "Conv over one channel") if is_signal else None
    if _is_of_frames(value):
        return None
    if rank is not None and rank < len(weight) - 1:
        return None
    channel_axis = reading.axis(1)
    last = rank is not None and rank > 1 and channel_axis == rank - 1
    if rank == len(weight) - 1 and not last:
        return None  # such as spectra, which get their channel in the model
    if rank == len(weight) or last:
        return InputKind(Role.IMAGE, op, channels_last=last, to_255=_to_255(value, flow, constants))
    return None


def _lasts(value: ir.Value, weight: tuple[int, ...]) -> bool:
    """Whether the last axis is open, or as long as a signal is, and no picture in a row."""
    if value.shape is None or not len(value.shape):
        return True
    last = value.shape[-1]
    is_raw = weight[1] == 1 and len(weight) == _OF_SIGNALS
    return not isinstance(last, int) or last < 0 or last >= (256 if is_raw else _FRAMED)


def _is_of_frames(value: ir.Value) -> bool:
    """Whether a name says that an axis is time, as in spectrograms."""
    symbols = [d.value for d in value.shape or () if not isinstance(d, int)]
    return any(says(symbol, "frames", "frame", "time", "seq") for symbol in symbols)


def _by_shape(value: ir.Value) -> InputKind | None:
    if value.shape is None or len(value.shape) != 4:
        return None
    first, last = value.shape[1], value.shape[-1]
    small = [n if isinstance(n, int) and n in _CHANNELS else None for n in (first, last)]
    if small == [None, None]:
        return None
    others = value.shape[2:] if small[0] else value.shape[1:-1]
    if any(isinstance(n, int) and 0 <= n < _FEWEST_PIXELS for n in others):
        return None
    if _is_of_frames(value):
        return None
    is_bytes = value.dtype is ir.DataType.UINT8
    return InputKind(Role.IMAGE, "its shape", channels_last=not small[0], to_255=is_bytes)


def _to_255(value: ir.Value, flow: Flow, constants: Constants) -> bool:
    """Whether values go up to 255: bytes, or numbers that the model itself scales down."""
    if value.dtype is ir.DataType.UINT8:
        return True
    for node, index, _ in flow.reads(value, lambda n, i: i == 0 and n.op_type in MOVES):
        if node.op_type not in ("Div", "Mul", "Sub", "Add") or len(node.inputs) != 2 or index:
            continue
        found = _most(node.inputs[1], constants)
        if found is None:
            continue
        if node.op_type == "Mul" and 0 < found <= 1 / 50:
            return True
        if node.op_type in ("Div", "Sub") and found >= 50:
            return True
    return False


def _most(value: ir.Value | None, constants: Constants) -> float | None:
    found = numbers(value, constants)
    return max(map(abs, found)) if found else None


def is_past(value: ir.Value, flow: Flow) -> int | None:
    """The axis along which the model puts more behind `value`, as a cache of keys has it."""
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


def is_state(value: ir.Value, flow: Flow) -> bool:
    """Whether a recurrent layer begins with it."""
    return any(
        node.op_type in ("LSTM", "GRU", "RNN") and index in (5, 6)
        for node, index, _ in flow.reads(value, moves_or_picks)
    )


def is_threshold(value: ir.Value, flow: Flow) -> bool:
    """Whether scores or overlaps are compared with it."""
    return any(
        (node.op_type, index) in _THRESHOLDS
        for node, index, _ in flow.reads(value, lambda n, i: i == 0 and n.op_type in MOVES)
    )


def is_step(value: ir.Value, flow: Flow) -> bool:
    """Whether sines and cosines of it are taken, as of the step of a diffusion."""
    toward = MOVES | {"Mul", "Div", "Concat", "MatMul"}
    return any(
        node.op_type in ("Sin", "Cos")
        for node, _, _ in flow.reads(value, lambda n, i: n.op_type in toward)
    )
