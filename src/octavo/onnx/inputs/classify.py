"""Takes each input of a model for something: by what reads it, then by its shape and name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.inputs.dataflow import MOVES, Dataflow, rank_of
from octavo.onnx.inputs.float_uses import is_state, is_step, is_threshold, past_axis, scene
from octavo.onnx.inputs.given import required_inputs
from octavo.onnx.inputs.integer_uses import IntegerUses, Use, integer_uses
from octavo.onnx.inputs.mask_uses import mask_use
from octavo.onnx.inputs.roles import InputKind, Role, has_word

FEW_TYPES = 8  # rows of a table of segments, at most
_SMALL = 8  # elements of an input that is settings rather than data
_MOST_TEXTS = 64
_TEXT_LISTS = (
    *("keys_strings", "cats_strings", "pool_strings"),
    *("classlabels_strings", "string_vocabulary"),
)
_TOWARD_TEXTS = MOVES | frozenset(
    "StringNormalizer ArrayFeatureExtractor Gather StringSplit Concat".split()
)


def kinds_of(model: ir.Model, constants: Constants) -> dict[str, InputKind]:
    """Return what each input without a default is taken for, by the input's name."""
    flow = Dataflow(model, constants)
    return _types_beside_ids(
        {v.name: _kind(v, flow) for v in required_inputs(model.graph) if v.name}
    )


def _kind(value: ir.Value, flow: Dataflow) -> InputKind:
    dtype = value.dtype or ir.DataType.FLOAT
    if dtype is ir.DataType.STRING:
        return InputKind(Role.TEXT, texts=_known_texts(value, flow))
    if dtype is ir.DataType.BOOL:
        return _of_booleans(value, flow)
    return _of_integers(value, flow) if dtype.is_integer() else _of_floats(value, flow)


def _types_beside_ids(kinds: Mapping[str, InputKind]) -> dict[str, InputKind]:
    """Ids of a small table are token types where others are ids of a large one."""
    largest = max((k.rows or 0 for k in kinds.values() if k.role is Role.IDS), default=0)
    return {
        name: replace(kind, role=Role.TYPES)
        if kind.role is Role.IDS and (kind.rows or 0) <= FEW_TYPES < largest
        else kind
        for name, kind in kinds.items()
    }


def _known_texts(value: ir.Value, flow: Dataflow) -> tuple[str, ...]:
    """Categories, labels and words that the first nodes hold which hold any."""
    found: dict[str, None] = {}
    for node, _, _ in flow.reads(value, lambda n, _: n.op_type in _TOWARD_TEXTS):
        for name in _TEXT_LISTS:
            held = node.attributes.get(name)
            if held is not None and held.type is ir.AttributeType.STRINGS:
                found.update(dict.fromkeys(held.as_strings()[:_MOST_TEXTS]))
    return tuple(found)[:_MOST_TEXTS]


def _is_small(value: ir.Value) -> bool:
    """Tell whether it holds one number or a handful, whatever the batch."""
    if value.shape is None or len(value.shape) > 1:
        return False
    return all(isinstance(d, int) and 0 <= d <= _SMALL for d in value.shape)


def _is_one(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(d, int) and d == 1 for d in value.shape)


def _is_pair(value: ir.Value) -> bool:
    return value.shape is not None and len(value.shape) == 2 and value.shape[1] == 2


# Booleans ----------------------------------------------------------------------------------------


def _of_booleans(value: ir.Value, flow: Dataflow) -> InputKind:
    if _is_one(value) or Use.BRANCH in integer_uses(value, flow):
        return InputKind(Role.MODE, choices=(1, 0))
    use = mask_use(value, flow)
    if use is not None:
        return InputKind(Role.MASK, hidden=use.hidden)
    hidden = int(has_word(value.name, "padding", "pad") and has_word(value.name, "mask"))
    return InputKind(Role.MASK, hidden=hidden)


# Integers ----------------------------------------------------------------------------------------


def _of_integers(value: ir.Value, flow: Dataflow) -> InputKind:
    found = scene(value, flow) if value.dtype is ir.DataType.UINT8 else None
    if found is not None:
        return found
    uses = integer_uses(value, flow)
    if _is_small(value) and not uses.rows:
        return _setting(value, uses)
    kind = _looked_up(value, uses) or _counted(value, uses)
    if kind is not None:
        return kind
    if Use.BRANCH in uses and (uses.equal_to or uses.ordered_with):
        return InputKind(Role.MODE, choices=_choices(uses))
    use = mask_use(value, flow)
    if use is not None:
        return InputKind(Role.MASK, hidden=use.hidden)
    if uses.equal_to:
        return InputKind(Role.CATEGORY, choices=tuple(uses.equal_to))
    return InputKind(Role.INDEX if Use.INDEX in uses else _named_role(value, uses))


def _setting(value: ir.Value, uses: IntegerUses) -> InputKind:
    """Classify an input of one number or a handful: a mode, a length, a size."""
    name = value.name
    if _is_one(value) and (uses.equal_to or (Use.BRANCH in uses and uses.ordered_with)):
        return InputKind(Role.MODE, choices=_choices(uses))
    if Use.TOTAL in uses:
        return InputKind(Role.LENGTHS)
    if Use.COUNT in uses or has_word(name, "num", "count", "beams", "k"):
        return InputKind(Role.COUNT)
    if Use.LENGTH in uses or has_word(name, "length", "lengths", "len", "lens"):
        return InputKind(Role.LENGTHS)
    if has_word(name, "sr", "rate", "sampling", "samplerate"):
        return InputKind(Role.RATE)
    if Use.WAVE in uses:
        return InputKind(Role.STEP)
    if has_word(name, "size", "sizes", "shape", "hw"):
        return InputKind(Role.PICTURE_SIZE)
    if Use.INDEX in uses:
        return InputKind(Role.INDEX)
    if uses.equal_to:
        return InputKind(Role.CATEGORY, choices=_choices(uses))
    return InputKind(Role.INTEGERS)


def _looked_up(value: ir.Value, uses: IntegerUses) -> InputKind | None:
    """Ids, token types and positions."""
    is_position = Use.POSITION in uses or has_word(value.name, "position", "positions", "pos")
    if not uses.rows:
        is_wave = Use.WAVE in uses and (is_position or (rank_of(value) or 0) >= 2)
        return InputKind(Role.POSITIONS) if Use.POSITION in uses or is_wave else None
    rows = min(uses.rows)
    if is_position:
        return InputKind(Role.POSITIONS, rows)
    is_few = rows <= FEW_TYPES and has_word(value.name, "type", "types", "segment")
    if Use.TYPE in uses or is_few:
        return InputKind(Role.TYPES, rows)
    if rows == 2 and has_word(value.name, "mask"):
        return InputKind(Role.MASK)
    return InputKind(Role.IDS, rows, avoided=tuple(n for n in uses.equal_to if 0 <= n < rows))


def _counted(value: ir.Value, uses: IntegerUses) -> InputKind | None:
    """Lengths and steps of each item of a batch."""
    rank = rank_of(value)
    if value.shape is not None and any(not isinstance(d, int) or d != 1 for d in value.shape[1:]):
        return None
    if Use.LENGTH in uses:
        return InputKind(Role.LENGTHS, less=int(Use.LAST in uses))
    if rank == 1 and has_word(value.name, "length", "lengths", "len", "lens"):
        return InputKind(Role.LENGTHS)
    return InputKind(Role.STEP) if Use.WAVE in uses else None


def _choices(uses: IntegerUses) -> tuple[int, ...]:
    """Return the numbers an input is compared with, and the neighbours of those that order."""
    beside = [n for o in uses.ordered_with for n in (o, o - 1, o + 1)]
    return tuple(dict.fromkeys([*uses.equal_to, *beside]))


def _named_role(value: ir.Value, uses: IntegerUses) -> Role:
    if has_word(value.name, "mask"):
        return Role.MASK
    if has_word(value.name, "size", "sizes", "shape"):
        return Role.PICTURE_SIZE
    if has_word(value.name, "position", "positions"):
        return Role.POSITIONS
    return Role.COUNT if Use.SIZE in uses else Role.INTEGERS


# Floats ------------------------------------------------------------------------------------------


def _of_floats(value: ir.Value, flow: Dataflow) -> InputKind:
    name, is_small = value.name, _is_small(value)
    if is_threshold(value, flow) or (is_small and has_word(name, "threshold", "iou")):
        return InputKind(Role.THRESHOLD)
    if (rank_of(value) or 2) <= 1 and is_step(value, flow):
        return InputKind(Role.STEP)
    if is_small:
        return InputKind(Role.PICTURE_SIZE if has_word(name, "size", "shape") else Role.SCALE)
    use = mask_use(value, flow)
    if use is not None and (use.is_sure or has_word(name, "mask")):
        return InputKind(Role.ADDED_MASK if use.is_added else Role.MASK, hidden=use.hidden)
    if is_state(value, flow):
        return InputKind(Role.STATE)
    if past_axis(value, flow) is not None:
        return InputKind(Role.PAST)
    found, is_power = scene(value, flow), value in flow.below_logarithms
    if found is not None and (found.role is Role.AUDIO or not is_power):
        return found
    if has_word(name, "mask"):
        return InputKind(Role.MASK)
    if _is_pair(value) and has_word(name, "shape", "size"):
        return InputKind(Role.PICTURE_SIZE)
    if _is_pair(value) and has_word(name, "scale", "factor"):
        return InputKind(Role.SCALE)
    return InputKind(Role.FEATURES, is_power=is_power)
