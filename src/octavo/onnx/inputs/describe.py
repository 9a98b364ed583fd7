"""What was fed, in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.walk import opset_of
from octavo.onnx.constants import Constants
from octavo.onnx.inputs.classify import kinds_of
from octavo.onnx.inputs.roles import InputKind, Role

_MOST_ENTRIES, _MOST_SHAPES = 6, 3
_ROLE_TEXTS = {
    Role.TYPES: "first and second segment",
    Role.POSITIONS: "in their order",
    Role.INDEX: "indices in range",
    Role.CATEGORY: "of each category",
    Role.PAST: "past, normal",
    Role.STATE: "state, normal",
    Role.AUDIO: "sound",
    Role.FEATURES: "normal",
    Role.SCALE: "about 1",
}


def describe(feeds: Sequence[Mapping[str, npt.NDArray[Any]]], model: ir.Model) -> str:
    """Describe inputs that `made_up` gave for `model`: what each was taken for, and its shapes.

    One line: `ids int64 [1, 16] and [2, 32] over 500 rows; mask int64 [1, 16] and [2, 32] ones, one
    row short`. Inputs that are alike are one entry. Empty where nothing was fed.
    """
    kinds = kinds_of(model, Constants(opset_of(model)))
    groups: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        fed = [feed[name] for feed in feeds if name in feed]
        arrays = [a for value in fed for a in _arrays(value)]
        if arrays:
            text = " ".join(filter(None, [_form(arrays), _content(kind, arrays)]))
            groups.setdefault(text, []).append(name)
    entries = [f"{_names(names)} {text}" for text, names in groups.items()]
    more = len(entries) - _MOST_ENTRIES
    return "; ".join(entries[:_MOST_ENTRIES]) + (f"; and {more} more" if more > 0 else "")


def shapes_of(feeds: Sequence[Mapping[str, Any]]) -> str:
    """Return one line on inputs that were given: types and shapes, `ids int64 [4, 128]`."""
    arrays: dict[str, list[Any]] = {}
    for feed in feeds:
        for name, value in feed.items():
            if isinstance(value, np.ndarray):
                arrays.setdefault(name, []).append(value)
    return "; ".join(f"{name} {_form(found)}" for name, found in arrays.items())


def _arrays(fed: Any) -> Sequence[npt.NDArray[Any]]:
    """Return the arrays of a sequence, or the only array; none for maps."""
    return [a for a in (fed if isinstance(fed, list) else [fed]) if isinstance(a, np.ndarray)]


def _names(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} like it"


def _form(arrays: Sequence[npt.NDArray[Any]]) -> str:
    """Type and shapes."""
    shapes = list(dict.fromkeys(str(list(a.shape)) for a in arrays if a.ndim))
    more = len(shapes) - _MOST_SHAPES
    named = shapes[:_MOST_SHAPES] + ([f"{more} more"] if more > 0 else [])
    shape = " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))
    dtype = "text" if arrays[0].dtype == object else str(arrays[0].dtype)
    return " ".join(filter(None, [dtype, shape]))


def _content(kind: InputKind, arrays: Sequence[npt.NDArray[Any]]) -> str:
    role = kind.role
    if kind.is_power:
        return "positive, over five decades"
    if role in _ROLE_TEXTS:
        return _ROLE_TEXTS[role]
    if role is Role.IDS:
        return f"spread over {kind.rows} rows"
    if role in (Role.MASK, Role.ADDED_MASK):
        zeros = bool(kind.hidden) or role is Role.ADDED_MASK  # show what is not hidden
        is_short = any(((a != 0) if zeros else (a == 0)).any() for a in arrays)
        return ("zeros" if zeros else "ones") + (", one row short" if is_short else "")
    if role is Role.LENGTHS:
        return f"lengths to {max(int(a.max()) for a in arrays)}"
    if role is Role.IMAGE:
        return f"image of shapes and print, 0 to {255 if kind.to_255 else 1}"
    if role is Role.INTEGERS:
        return "ones" if all(np.all(a == 1) for a in arrays) else "random"
    if role is Role.TEXT:
        return "known to the model" if kind.texts else ""
    found = list(dict.fromkeys(f"{float(n):g}" for a in arrays for n in a.ravel()[:4]))
    return "= " + ", ".join(found[:4])
