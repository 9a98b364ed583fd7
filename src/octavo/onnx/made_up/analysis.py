"""Takes each input of a model for something: by what reads it, then by its shape and name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.fixed import fed
from octavo.onnx.made_up.floats import is_past, is_state, is_step, is_threshold, scene
from octavo.onnx.made_up.flow import Flow
from octavo.onnx.made_up.integers import Facts, facts
from octavo.onnx.made_up.kinds import InputKind, Role
from octavo.onnx.made_up.masks import MaskUse, mask_use
from octavo.onnx.made_up.names import says
from octavo.onnx.made_up.vocabulary import words

FEW_TYPES = 8  # rows of a table of segments, at most
_SMALL = 8  # elements of an input that is settings rather than data


def kinds_of(model: ir.Model, constants: Constants) -> dict[str, InputKind]:
    """By name, what each input without a default is taken for."""
    flow = Flow(model)
    found = {v.name: _kind(v, flow, constants) for v in fed(model.graph) if v.name}
    return _types_beside_ids(model, found)


def _kind(value: ir.Value, flow: Flow, constants: Constants) -> InputKind:
    dtype = value.dtype or ir.DataType.FLOAT
    if dtype is ir.DataType.STRING:
        return InputKind(Role.TEXT, "its type", words=words(value, flow))
    if dtype is ir.DataType.BOOL:
        return _of_booleans(value, flow, constants)
    if dtype.is_integer():
        return _of_integers(value, flow, constants)
    return _of_floats(value, flow, constants)


def _types_beside_ids(model: ir.Model, kinds: Mapping[str, InputKind]) -> dict[str, InputKind]:
    """Ids of a small table are token types where others are ids of a large one."""
    rows = [k.rows or 0 for k in kinds.values() if k.role is Role.IDS]
    largest = max(rows, default=0)
    return {
        name: replace(kind, role=Role.TYPES)
        if kind.role is Role.IDS and (kind.rows or 0) <= FEW_TYPES < largest
        else kind
        for name, kind in kinds.items()
    }


def is_small(value: ir.Value) -> bool:
    """Whether it holds one number or a handful, whatever the batch."""
    if value.shape is None or len(value.shape) > 1:
        return False
    sizes = [d if isinstance(d, int) and d >= 0 else None for d in value.shape]
    return not sizes or (sizes[0] is not None and sizes[0] <= _SMALL)


def rank_of(value: ir.Value) -> int | None:
    """The number of axes, where the model states it."""
    return None if value.shape is None else len(value.shape)


def _is_one(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(d, int) and d == 1 for d in value.shape)


# Booleans ----------------------------------------------------------------------------------------


def _of_booleans(value: ir.Value, flow: Flow, constants: Constants) -> InputKind:
    told = facts(value, flow, constants)
    if _is_one(value) or told.steers:
        return InputKind(Role.MODE, "a condition", choices=(1, 0))
    use = mask_use(value, flow, constants)
    if use is not None:
        return InputKind(Role.MASK, use.why, hidden=use.hidden)
    hidden = int(says(value.name, "padding", "pad") and says(value.name, "mask"))
    return InputKind(Role.MASK, "its type", hidden=hidden)


# Integers ----------------------------------------------------------------------------------------


def _of_integers(value: ir.Value, flow: Flow, constants: Constants) -> InputKind:
    if value.dtype is ir.DataType.UINT8:
        found = scene(value, flow, constants)
        if found is not None:
            return found
    told = facts(value, flow, constants)
    if is_small(value) and not told.rows:
        return _setting(value, told)
    kind = _looked_up(value, told) or _counted(value, told)
    if kind is not None:
        return kind
    if told.steers and (told.equal_to or told.ordered_with):
        return InputKind(Role.MODE, "If", choices=_choices(told))
    use = mask_use(value, flow, constants)
    if use is not None:
        return InputKind(Role.MASK, use.why, hidden=use.hidden)
    return _compared(value, told) or _by_name(value, told)


def _setting(value: ir.Value, told: Facts) -> InputKind:
    """One number, or a handful: a mode, a length, a size."""
    if _is_one(value) and (told.equal_to or (told.steers and told.ordered_with)):
        return InputKind(Role.MODE, "Equal", choices=_choices(told))
    if told.is_total:
        return InputKind(Role.LENGTHS, "GroupQueryAttention")
    if told.is_count or says(value.name, "num", "count", "beams", "k"):
        return InputKind(Role.COUNT, "how many")
    if told.is_length or says(value.name, "length", "lengths", "len", "lens"):
        return InputKind(Role.LENGTHS, "a range")
    if says(value.name, "sr", "rate", "sampling", "samplerate"):
        return InputKind(Role.RATE, "its name")
    if told.waves:
        return InputKind(Role.STEP, "Sin and Cos")
    if says(value.name, "size", "sizes", "shape", "hw"):
        return InputKind(Role.PICTURE_SIZE, "its name")
    if told.indexes_data:
        return InputKind(Role.INDEX, "Gather")
    if told.equal_to:
        return InputKind(Role.CATEGORY, "Equal", choices=_choices(told))
    return InputKind(Role.INTEGERS, "a setting")


def _looked_up(value: ir.Value, told: Facts) -> InputKind | None:
    """Ids, token types and positions."""
    is_position = told.is_position or says(value.name, "position", "positions", "pos")
    if not told.rows:
        if told.is_position or (told.waves and (is_position or (rank_of(value) or 0) >= 2)):
            return InputKind(Role.POSITIONS, "Sin and Cos")
        return None
    rows = min(told.rows)
    if is_position:
        return InputKind(Role.POSITIONS, "Gather", rows)
    if told.is_type or (rows <= FEW_TYPES and says(value.name, "type", "types", "segment")):
        return InputKind(Role.TYPES, "Gather", rows)
    if rows == 2 and says(value.name, "mask"):
        return InputKind(Role.MASK, "Gather")
    avoided = tuple(n for n in told.equal_to if 0 <= n < rows)
    return InputKind(Role.IDS, "Gather", rows, avoided)


def _counted(value: ir.Value, told: Facts) -> InputKind | None:
    """Lengths and steps of each item of a batch."""
    if (rank_of(value) or 0) > 1 and value.shape is not None:
        others = [d for d in value.shape[1:] if not isinstance(d, int) or d != 1]
        if others:
            return None
    if told.is_length:
        less = int(told.is_last)  # the place of the last token, which is one less
        return InputKind(Role.LENGTHS, "compared with a range", less=less)
    if rank_of(value) == 1 and says(value.name, "length", "lengths", "len", "lens"):
        return InputKind(Role.LENGTHS, "its name")
    return InputKind(Role.STEP, "Sin and Cos") if told.waves else None


def _choices(told: Facts) -> tuple[int, ...]:
    """The numbers that it is compared with, and one beside each of those that order."""
    beside = [n for o in told.ordered_with for n in (o, o - 1, o + 1)]
    return tuple(dict.fromkeys([*told.equal_to, *beside]))


def _compared(value: ir.Value, told: Facts) -> InputKind | None:
    if told.equal_to:
        return InputKind(Role.CATEGORY, "Equal", choices=tuple(told.equal_to))
    if told.indexes_data:
        return InputKind(Role.INDEX, "Gather")
    return None


def _by_name(value: ir.Value, told: Facts) -> InputKind:
    if says(value.name, "mask"):
        return InputKind(Role.MASK, "its name")
    if says(value.name, "size", "sizes", "shape"):
        return InputKind(Role.PICTURE_SIZE, "its name")
    if says(value.name, "position", "positions"):
        return InputKind(Role.POSITIONS, "its name")
    if told.is_size:
        return InputKind(Role.COUNT, "a size")
    return InputKind(Role.INTEGERS, "its type")


# Floats ------------------------------------------------------------------------------------------


def _of_floats(value: ir.Value, flow: Flow, constants: Constants) -> InputKind:
    if is_threshold(value, flow) or (is_small(value) and says(value.name, "threshold", "iou")):
        return InputKind(Role.THRESHOLD, "NonMaxSuppression")
    if (rank_of(value) or 2) <= 1 and is_step(value, flow):
        return InputKind(Role.STEP, "Sin and Cos")
    if is_small(value):
        if says(value.name, "size", "shape"):
            return InputKind(Role.PICTURE_SIZE, "its name")
        if _is_one(value) or says(value.name, "scale", "scales", "speed", "factor"):
            return InputKind(Role.SCALE, "one number")
        return InputKind(Role.SCALE, "a handful of numbers")
    use = mask_use(value, flow, constants)
    if use is not None and (use.is_sure or says(value.name, "mask")):
        return _float_mask(use)
    if is_state(value, flow):
        return InputKind(Role.STATE, "a recurrent layer")
    if is_past(value, flow) is not None:
        return InputKind(Role.PAST, "Concat")
    found = scene(value, flow, constants)
    if found is not None:
        return found
    if says(value.name, "mask"):
        return InputKind(Role.MASK, "its name")
    if _is_pair(value) and says(value.name, "shape", "size"):
        return InputKind(Role.PICTURE_SIZE, "its name")
    if _is_pair(value) and says(value.name, "scale", "factor"):
        return InputKind(Role.SCALE, "its name")
    return InputKind(Role.FEATURES, "its type")


def _float_mask(use: MaskUse) -> InputKind:
    role = Role.ADDED_MASK if use.is_added else Role.MASK
    return InputKind(role, use.why, hidden=use.hidden)


def _is_pair(value: ir.Value) -> bool:
    return value.shape is not None and len(value.shape) == 2 and value.shape[1] == 2
