"""Inputs made up for a model: kinds first, then sizes, then numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.inputs.axes import Axis, InputLayout, layouts_of
from octavo.onnx.inputs.classify import kinds_of
from octavo.onnx.inputs.dataflow import Dataflow, input_at
from octavo.onnx.inputs.given import Feed, FixedShapes, required_inputs
from octavo.onnx.inputs.roles import Role
from octavo.onnx.inputs.sizes import GUESSES, Sizes, Suggested, grown, is_of_rows
from octavo.onnx.inputs.strides import Strides, pictures, strides_of
from octavo.onnx.inputs.values import Setting, choices, draw_values
from octavo.onnx.read import map_types

MOST_ELEMENTS = 2**21  # of all inputs of a guess with open dimensions
MOST_GROWN = 2**18  # of those whose sizes grow: one that is too short fails at once
_OF_A_SEQUENCE = 2  # tensors
_MOST_OF_A_SHAPE = 2  # guesses of equal shapes: the second one's rows are short


def made_up(
    model: ir.Model,
    constants: Constants,
    seed: int | Sequence[int] = 0,
    fixed: FixedShapes | None = None,
    branch: int = 0,
    *,
    grows: bool = False,
) -> Iterator[Feed]:
    """Guesses at inputs that the model accepts, the likeliest first; shapes follow no seed.

    What the graph does with an input decides what it gets: `kinds_of`. Open dimensions of one name
    get one size, sums of names their sum, and the axis along which a layer reads its input what
    the layer's weight has. What is `fixed` has the same size in all guesses. Another `branch`
    (below `branches`) may lead through other branches: inputs that choose one take another of the
    numbers that they are compared with, or none of them.

    Where it `grows`, the guesses are those to make when none of the others was taken: convolutions
    without padding need a least size, and a Reshape a multiple of some number.
    """
    required = [v for v in required_inputs(model.graph) if v.name]
    inputs = [v for v in required if map_types.map_type(v) is None]
    of_maps = [v for v in required if map_types.map_type(v) is not None]
    flow = Dataflow(model, constants)
    layouts = layouts_of(inputs, kinds_of(model, constants), flow)
    seen: dict[tuple[tuple[int, ...], ...], int] = {}
    suggested, of_rows = _suggested(layouts, model.graph, flow), is_of_rows(layouts)
    known: Mapping[str, int] = fixed.symbols if fixed else {}
    guesses, most = GUESSES, MOST_ELEMENTS
    if grows:
        of_ids = any(layout.kind.role is Role.IDS for layout in layouts)
        guesses, most = tuple(grown(_named_sizes(model.graph, flow), of_ids=of_ids)), MOST_GROWN
    for number, guess in enumerate(guesses):
        sizes = Sizes(guess, number, known, suggested, of_rows and not grows)
        shapes = _shapes(layouts, sizes, fixed)
        key = tuple(shapes.values())
        elements = [math.prod(shape) for shape in key]
        if 0 in elements or (len(sizes.known) > len(known) and sum(elements) > most):
            continue  # an empty input shows nothing, and ONNX Runtime's LSTM dies of it
        times = seen.get(key, 0)
        seen[key] = times + 1
        if times >= _MOST_OF_A_SHAPE:
            continue
        seeds = [seed] if isinstance(seed, int) else list(seed)
        rng = np.random.default_rng([*seeds, times] if times else seed)
        lengths = _lengths(layouts, shapes)
        setting = Setting(
            lengths,
            has_past=any(layout.kind.role is Role.PAST for layout in layouts),
            is_short=lengths.get(Axis.BATCH, 1) > 1 or number % 2 == 1 or times > 0,
            plain=number >= 2,
            branch=branch,
        )
        made: Feed = {x.name: _values(x, shapes[x.name], setting, rng) for x in layouts}
        yield made | {v.name or "": map_types.make_up_map(v, rng) for v in of_maps}


def _values(
    layout: InputLayout, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """Draw an array, or a list of them where the input is a sequence."""
    if isinstance(layout.value.type, ir.SequenceType):
        several: Any = [draw_values(layout, shape, setting, rng) for _ in range(_OF_A_SEQUENCE)]
        return several  # type: ignore[no-any-return]
    return draw_values(layout, shape, setting, rng)


def branches(model: ir.Model, constants: Constants) -> int:
    """Count the values of `branch` by which a model may take other branches."""
    kinds = kinds_of(model, constants)
    modes = [v for v in required_inputs(model.graph) if v.name and kinds[v.name].role is Role.MODE]
    found = [choices(kinds[v.name or ""], v.dtype.numpy()) for v in modes if v.dtype is not None]
    return max(map(len, found), default=1)


def _named_sizes(graph: ir.Graph, flow: Dataflow) -> Iterator[int]:
    """Numbers that a Reshape asks for, and what they are of each channel before it."""
    channels: set[int] = set()
    for node in graph:
        if node.op_type == "Conv":
            weight = flow.sizes(input_at(node, 1))
            channels.update((weight or ())[:1])
        elif node.op_type == "Reshape":
            for number in flow.numbers(input_at(node, 1)) or ():
                yield int(number)
                yield from (int(number) // n for n in channels if n > 1 and number % n == 0)


def _suggested(layouts: Sequence[InputLayout], graph: ir.Graph, flow: Dataflow) -> Suggested:
    """Sizes for the first picture among the inputs, and lengths that tables of positions fix."""
    found = Suggested()
    for layout in layouts:
        is_open = [size is None for size in layout.sizes]
        timed = [
            i
            for i, axis in enumerate(layout.axes)
            if is_open[i] and axis in (Axis.LENGTH, Axis.FRAMES)
        ]
        if layout.kind.role is Role.IMAGE and not found.pictures:
            sizes = dict(zip(layout.axes, layout.sizes, strict=True))
            strides = strides_of(layout.value, graph, flow) if any(is_open) else Strides()
            channels, height = sizes.get(Axis.OTHER), sizes.get(Axis.HEIGHT)
            found.pictures.extend(pictures(strides, channels, height))
        elif timed and layout.kind.role in (Role.IDS, Role.FEATURES):
            length = strides_of(layout.value, graph, flow).length
            if length is not None:
                found.lengths.setdefault(layout.key(timed[-1]), length)
    return found


def _shapes(
    layouts: Sequence[InputLayout], sizes: Sizes, fixed: FixedShapes | None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes by name of the input.

    Inputs with an axis over a past and the tokens behind it come last.
    """
    found = dict(fixed.inputs) if fixed else {}
    late = [x for x in layouts if x.name not in found and Axis.TOTAL in x.axes]
    for layout in layouts:
        if layout not in late and layout.name not in found:
            found[layout.name] = sizes.shape(layout)
    lengths = _lengths(layouts, found)
    total = lengths.get(Axis.PAST, 0) + lengths.get(Axis.LENGTH, 1)
    for layout in late:
        for i, axis in enumerate(layout.axes):
            if axis is Axis.TOTAL:
                sizes.known.setdefault(layout.key(i), total)
        found[layout.name] = sizes.shape(layout)
    return {layout.name: tuple(found[layout.name]) for layout in layouts}


def _lengths(
    layouts: Sequence[InputLayout], shapes: Mapping[str, tuple[int, ...]]
) -> dict[Axis, int]:
    """Return how long the axes of each kind are: the first length found, with ids before others."""
    found: dict[Axis, int] = {}
    for layout in sorted(layouts, key=lambda x: x.kind.role is not Role.IDS):
        for axis, size in zip(layout.axes, shapes.get(layout.name, ()), strict=False):
            found.setdefault(axis, size)
    return found
