"""Inputs made up for a model: kinds first, then sizes, then numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.onnx import maps
from octavo.onnx.constants import Constants
from octavo.onnx.made_up.analysis import kinds_of
from octavo.onnx.made_up.axes import Axis, Form, forms_of
from octavo.onnx.made_up.fixed import FixedShapes, fed
from octavo.onnx.made_up.flow import Flow
from octavo.onnx.made_up.kinds import Role
from octavo.onnx.made_up.pictures import pictures
from octavo.onnx.made_up.sizes import GUESSES, Sizes, Suggested, is_of_rows
from octavo.onnx.made_up.strides import Picture, Strides, strides_of
from octavo.onnx.made_up.values import Setting, choices, values

Feed = dict[str, npt.NDArray[Any]]

_TIMES = frozenset([Axis.LENGTH, Axis.FRAMES])
MOST_ELEMENTS = 2**21  # of all inputs of a guess with open dimensions
_OF_A_SEQUENCE = 2  # tensors
_MOST_OF_A_SHAPE = 2  # guesses of equal shapes: the second one's rows are short


def made_up(
    model: ir.Model,
    constants: Constants,
    seed: int | Sequence[int] = 0,
    fixed: FixedShapes | None = None,
    way: int = 0,
) -> Iterator[Feed]:
    """Guesses at inputs that the model accepts, the likeliest first; shapes follow no seed.

    What the graph does with an input decides what it gets: `kinds_of`. Open dimensions of one name
    get one size, sums of names their sum, and the axis along which a layer reads its input what
    the layer's weight has. What is `fixed` has the same size in all guesses. Another `way` (below
    `ways`) may lead through other branches: inputs that choose one take another of the numbers
    that they are compared with, or none of them.
    """
    inputs = [v for v in fed(model.graph) if v.name and maps.type_of(v) is None]
    of_maps = [v for v in fed(model.graph) if v.name and maps.type_of(v) is not None]
    forms = forms_of(inputs, kinds_of(model, constants), Flow(model), constants)
    seen: dict[tuple[tuple[int, ...], ...], int] = {}
    suggested = _suggested(forms, model.graph, constants)
    of_rows = is_of_rows(forms)
    for number, guess in enumerate(GUESSES):
        sizes = Sizes(guess, number, dict(fixed.symbols) if fixed else {}, suggested, of_rows)
        shapes = _shapes(forms, sizes, fixed)
        key = tuple(shapes.values())
        guessed = len(sizes.known) > (len(fixed.symbols) if fixed else 0)
        elements = [math.prod(shape) for shape in key]
        if 0 in elements or (guessed and sum(elements) > MOST_ELEMENTS):
            continue  # an empty input shows nothing, and ONNX Runtime's LSTM dies of it
        times = seen.get(key, 0)
        seen[key] = times + 1
        if times >= _MOST_OF_A_SHAPE:
            continue
        seeds = [seed] if isinstance(seed, int) else list(seed)
        rng = np.random.default_rng([*seeds, times] if times else seed)
        setting = _setting(forms, shapes, number, times, way)
        made: Feed = {f.name: _fed(f, shapes[f.name], setting, rng) for f in forms}
        yield made | {v.name or "": maps.made_up(v, rng) for v in of_maps}


def _fed(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """An array, or a list of them where the input is a sequence."""
    if isinstance(form.value.type, ir.SequenceType):
        several: Any = [values(form, shape, setting, rng) for _ in range(_OF_A_SEQUENCE)]
        return several  # type: ignore[no-any-return]
    return values(form, shape, setting, rng)


def ways(model: ir.Model, constants: Constants) -> int:
    """How many ways there are to make up inputs by which a model may choose its branches."""
    kinds = kinds_of(model, constants)
    modes = [v for v in fed(model.graph) if v.name and kinds[v.name].role is Role.MODE]
    found = [choices(kinds[v.name or ""], v.dtype.numpy()) for v in modes if v.dtype is not None]
    return max(map(len, found), default=1)


def _suggested(forms: Sequence[Form], graph: ir.Graph, constants: Constants) -> Suggested:
    """Sizes for the first picture among the inputs, and lengths that tables of positions fix."""
    found: list[Picture] = []
    lengths: dict[str, int] = {}
    for form in forms:
        is_open = [size is None for size in form.sizes]
        timed = [i for i, axis in enumerate(form.axes) if is_open[i] and axis in _TIMES]
        if form.kind.role is Role.IMAGE and not found:
            sizes = dict(zip(form.axes, form.sizes, strict=True))
            strides = strides_of(form.value, graph, constants) if any(is_open) else Strides()
            found = pictures(strides, sizes.get(Axis.OTHER), sizes.get(Axis.HEIGHT))
        elif timed and form.kind.role in (Role.IDS, Role.FEATURES):
            length = strides_of(form.value, graph, constants).length
            if length is not None:
                lengths.setdefault(form.key(timed[-1]), length)
    return Suggested(found, lengths)


def _shapes(
    forms: Sequence[Form], sizes: Sizes, fixed: FixedShapes | None
) -> dict[str, tuple[int, ...]]:
    """By name of the input. Axes over a past and the tokens behind it come last."""
    found = {}
    late = []
    for form in forms:
        if fixed and form.name in fixed.inputs:
            found[form.name] = tuple(fixed.inputs[form.name])
        elif Axis.TOTAL in form.axes:
            late.append(form)
        else:
            found[form.name] = tuple(sizes.of(form, i) for i in range(len(form.axes)))
    lengths = _lengths(forms, found)
    for form in late:
        for i, axis in enumerate(form.axes):
            if axis is Axis.TOTAL:
                total = lengths.get(Axis.PAST, 0) + lengths.get(Axis.LENGTH, 1)
                sizes.known.setdefault(form.key(i), total)
        found[form.name] = tuple(sizes.of(form, i) for i in range(len(form.axes)))
    return {form.name: found[form.name] for form in forms}


def _lengths(forms: Sequence[Form], shapes: dict[str, tuple[int, ...]]) -> dict[Axis, int]:
    """How long the axes of each kind are: the first that is found, of ids before others."""
    found: dict[Axis, int] = {}
    for form in sorted(forms, key=lambda f: f.kind.role is not Role.IDS):
        for axis, size in zip(form.axes, shapes.get(form.name, ()), strict=False):
            found.setdefault(axis, size)
    return found


def _setting(
    forms: Sequence[Form],
    shapes: dict[str, tuple[int, ...]],
    number: int,
    times: int,
    way: int,
) -> Setting:
    lengths = _lengths(forms, shapes)
    return Setting(
        lengths,
        has_past=any(form.kind.role is Role.PAST for form in forms),
        is_short=lengths.get(Axis.BATCH, 1) > 1 or number % 2 == 1 or times > 0,
        plain=number >= 2,
        way=way,
    )
