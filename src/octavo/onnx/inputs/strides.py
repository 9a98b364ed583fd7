"""What convolutions make of the sizes of an input, and which sizes their network insists on.

A table of positions that is added whole says how many there are: 1500 rows behind a stride of 2 are
3000 frames, 197 rows behind patches of 16 x 16 are a class and 14 x 14 of 224 x 224 pixels.

Sizes of pictures are multiples of the product of the strides, so that what is scaled up again fits
what it is joined with. Networks that end in an average see 224 pixels, those that scale up or find
boxes 320 or 640, readers of text lines 48 x 320: their height shrinks faster than their width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import onnx_ir as ir

from octavo.onnx.inputs.dataflow import Dataflow, attribute_int, attribute_ints

Picture = tuple[int, int]
"""Height and width."""

MOST_STRIDE = 128
MOST_WORK = 2e10
"""Multiply-accumulates of convolutions on one picture: a second or so."""
_FEWEST_ROWS = 8
_EXTRA_ROWS = (0, 1, 2, 5)  # of a class, a teacher, registers
_STOPS = frozenset("GlobalAveragePool GlobalMaxPool Gemm MatMul Flatten Softmax Shape".split())
_STRIDED = frozenset("Conv MaxPool AveragePool LpPool ConvInteger FusedConv".split())
_SCALES = frozenset(["Resize", "Upsample"])
_LINES: tuple[Picture, ...] = ((48, 320), (32, 320), (48, 160), (32, 100), (64, 256))
_SCALED_UP: tuple[Picture, ...] = ((320, 320), (256, 320), (640, 640), (512, 512), (224, 224))
_AVERAGED: tuple[Picture, ...] = ((224, 224), (224, 256), (256, 256), (320, 320), (299, 299))
_SHALLOW: tuple[Picture, ...] = ((64, 64), (64, 96), (128, 128), (224, 224), (256, 256))
_LAST: tuple[Picture, ...] = (
    (32, 32), (28, 28), (96, 96), (112, 112), (160, 160), (84, 84), (384, 384), (640, 640),
    (16, 16), (8, 8),
)  # fmt: skip


@dataclass(frozen=True)
class Strides:
    """Of a network of convolutions: pixels a cell at the coarsest, down and across, whether
    anything is scaled up again or averaged, and multiply-accumulates a pixel. The `length` or the
    `picture` that a table of positions asks for.
    """

    down: int = 1
    across: int = 1
    scales_up: bool = False
    averages: bool = False
    work: float = 0.0
    length: int | None = None
    picture: Picture | None = None


def strides_of(value: ir.Value, graph: ir.Graph, flow: Dataflow) -> Strides:
    """Trace what happens to the input `value`, in one pass over the nodes."""
    cell: dict[ir.Value, tuple[float, float]] = {value: (1.0, 1.0)}
    found = Strides()
    for node in graph:
        known = [cell[i] for i in node.inputs if i is not None and i in cell]
        if not known:
            continue
        averages = found.averages or node.op_type in ("GlobalAveragePool", "ReduceMean")
        found = replace(found, averages=averages)
        if node.op_type in _STOPS:
            continue
        before = max(k[0] for k in known), max(k[1] for k in known)
        after = _after(node, before, flow)
        cell.update(dict.fromkeys(node.outputs, after))
        found = replace(
            found,
            down=max(found.down, _whole(after[0])),
            across=max(found.across, _whole(after[1])),
            scales_up=found.scales_up or after[0] < before[0] or node.op_type in _SCALES,
            work=found.work + _work(node, after, flow),
        )
        if node.op_type == "Add" and found.length is None and found.picture is None:
            found = _with_positions(found, node, before, flow)
    return found


def _with_positions(
    found: Strides, node: ir.Node, cell: tuple[float, float], flow: Dataflow
) -> Strides:
    shape = next((flow.sizes(i) for i in node.inputs if flow.is_constant(i)), None)
    if shape is None or len(shape) < 2 or shape[-1] < 2:
        return found
    if len(shape) == 4 and shape[0] == 1 and shape[2] >= _FEWEST_ROWS:
        return replace(found, picture=(round(shape[2] * cell[0]), round(shape[3] * cell[1])))
    rows = shape[-2]
    if rows < _FEWEST_ROWS or math.prod(shape[:-2]) != 1:
        return found
    sides = [math.isqrt(rows - extra) for extra in _EXTRA_ROWS if rows > extra]
    square = next((n for n, e in zip(sides, _EXTRA_ROWS, strict=False) if n * n == rows - e), None)
    picture = None if square is None else (round(square * cell[0]), round(square * cell[1]))
    return replace(found, length=round(rows * max(cell)), picture=picture)


def _whole(stride: float) -> int:
    return min(MOST_STRIDE, max(1, round(stride)))


def _after(node: ir.Node, before: tuple[float, float], flow: Dataflow) -> tuple[float, float]:
    """Pixels a cell behind `node`."""
    op, factors = node.op_type, (1.0, 1.0)
    if op in _STRIDED or op == "ConvTranspose":
        strides = attribute_ints(node, "strides") or (1, 1)
        pair = (strides[-2] if len(strides) > 1 else 1, strides[-1])
        factors = pair if op != "ConvTranspose" else (1 / max(1, pair[0]), 1 / max(1, pair[1]))
    elif op in ("SpaceToDepth", "DepthToSpace"):
        block = max(1, attribute_int(node, "blocksize", 1))
        factors = (block, block) if op == "SpaceToDepth" else (1 / block, 1 / block)
    elif op in _SCALES:
        scales = next((s for s in map(flow.numbers, node.inputs[1:3]) if s), None)
        if scales is None or len(scales) < 2 or min(scales) <= 0:
            return 1.0, 1.0  # to the size of something finer, which says itself how fine
        factors = (1 / scales[-2], 1 / scales[-1])
    return before[0] * factors[0], before[1] * factors[1]


def _work(node: ir.Node, cell: tuple[float, float], flow: Dataflow) -> float:
    if node.op_type not in ("Conv", "ConvTranspose", "FusedConv") or len(node.inputs) < 2:
        return 0.0
    weight = flow.sizes(node.inputs[1])
    return math.prod(weight) / max(1e-6, cell[0] * cell[1]) if weight else 0.0


def pictures(strides: Strides, channels: int | None, height: int | None) -> list[Picture]:
    """Sizes to try, the likeliest first. `height` is that which the model has fixed."""
    is_line = strides.down >= 2 * strides.across and strides.down >= 8
    if is_line or (height is not None and height <= 64):
        likely = _LINES
    elif channels not in (None, 1, 3):
        likely = _SHALLOW
    elif strides.scales_up and strides.down > 1:
        likely = _SCALED_UP
    elif strides.down > 4 or strides.averages:
        likely = _AVERAGED
    else:
        likely = _SHALLOW
    fitting = [_fitted(picture, strides) for picture in likely]
    if strides.picture is not None:
        fitting = [strides.picture, *fitting]
    return list(dict.fromkeys([*fitting, *(_bounded(picture, strides) for picture in _LAST)]))


def _fitted(picture: Picture, strides: Strides) -> Picture:
    """Round `picture` to multiples of the strides, at a size that is not too much work."""
    h, w = _bounded(picture, strides)
    down, across = strides.down, strides.across
    return max(1, round(h / down)) * down, max(1, round(w / across)) * across


def _bounded(picture: Picture, strides: Strides) -> Picture:
    h, w = picture
    while strides.work * h * w > MOST_WORK and min(h, w) >= 2 * max(strides.down, strides.across):
        h, w = h // 2, w // 2
    return h, w
