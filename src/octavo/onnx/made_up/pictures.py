"""Sizes of pictures that a network is likely to see, by its strides and by what it costs.

Sizes are multiples of the product of the strides, so that what is scaled up again fits what it is
joined with. Networks that end in an average see 224 pixels, those that scale up or find boxes 320
or 640, readers of text lines 48 x 320: their height shrinks faster than their width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.stored import attribute_int, attribute_ints, numbers, sizes

Picture = tuple[int, int]
"""Height and width."""

MOST_WORK = 2e10
"""Multiply-accumulates of convolutions on one picture: a second or so."""
MOST_STRIDE = 128
_LINES: tuple[Picture, ...] = ((48, 320), (32, 320), (48, 160), (32, 100), (64, 256))
_SCALED_UP: tuple[Picture, ...] = ((320, 320), (256, 320), (640, 640), (512, 512), (224, 224))
_AVERAGED: tuple[Picture, ...] = ((224, 224), (224, 256), (256, 256), (320, 320), (299, 299))
_SHALLOW: tuple[Picture, ...] = ((64, 64), (64, 96), (128, 128), (224, 224), (256, 256))
_LAST: tuple[Picture, ...] = (
    (32, 32), (28, 28), (96, 96), (112, 112), (160, 160), (84, 84), (384, 384), (640, 640),
    (16, 16), (8, 8),
)  # fmt: skip
_STOPS = frozenset("GlobalAveragePool GlobalMaxPool Gemm MatMul Flatten Softmax Shape".split())
_STRIDED = frozenset("Conv MaxPool AveragePool LpPool ConvInteger FusedConv".split())
_LAST_AXES = 2


@dataclass(frozen=True)
class Strides:
    """Of a network of convolutions: pixels a cell at the coarsest, down and across, whether
    anything is scaled up again, and multiply-accumulates a pixel.
    """

    down: int = 1
    across: int = 1
    scales_up: bool = False
    averages: bool = False
    work: float = 0.0


def strides_of(value: ir.Value, graph: ir.Graph, constants: Constants) -> Strides:
    """What happens to the picture `value`, in one pass over the nodes."""
    cell: dict[ir.Value, tuple[float, float]] = {value: (1.0, 1.0)}
    down = across = 1.0
    scales_up = averages = False
    work = 0.0
    for node in graph:
        known = [cell[i] for i in node.inputs if i is not None and i in cell]
        if not known:
            continue
        if node.op_type in _STOPS:
            averages = averages or node.op_type == "GlobalAveragePool"
            continue
        averages = averages or node.op_type == "ReduceMean"
        before = max(k[0] for k in known), max(k[1] for k in known)
        after = _after(node, before, constants)
        scales_up = scales_up or after[0] < before[0] or node.op_type in ("Resize", "Upsample")
        work += _work(node, after, constants)
        down, across = max(down, after[0]), max(across, after[1])
        cell.update(dict.fromkeys(node.outputs, after))
    return Strides(_whole(down), _whole(across), scales_up, averages, work)


def _whole(stride: float) -> int:
    return min(MOST_STRIDE, max(1, round(stride)))


def _after(node: ir.Node, before: tuple[float, float], constants: Constants) -> tuple[float, float]:
    """Pixels a cell behind `node`."""
    op, factors = node.op_type, (1.0, 1.0)
    if op in _STRIDED or op == "ConvTranspose":
        strides = attribute_ints(node, "strides") or (1, 1)
        pair = (strides[-2] if len(strides) > 1 else 1, strides[-1])
        factors = pair if op != "ConvTranspose" else (1 / max(1, pair[0]), 1 / max(1, pair[1]))
    elif op in ("SpaceToDepth", "DepthToSpace"):
        block = max(1, attribute_int(node, "blocksize", 1))
        factors = (block, block) if op == "SpaceToDepth" else (1 / block, 1 / block)
    elif op in ("Resize", "Upsample"):
        scales = next((s for s in (numbers(i, constants) for i in node.inputs[1:3]) if s), None)
        if scales is None or len(scales) < _LAST_AXES or min(scales) <= 0:
            return 1.0, 1.0  # to the size of something finer, which says itself how fine
        factors = (1 / scales[-2], 1 / scales[-1])
    return before[0] * factors[0], before[1] * factors[1]


def _work(node: ir.Node, cell: tuple[float, float], constants: Constants) -> float:
    if node.op_type not in ("Conv", "ConvTranspose", "FusedConv") or len(node.inputs) < 2:
        return 0.0
    weight = sizes(node.inputs[1], constants)
    return math.prod(weight or ()) / max(1e-6, cell[0] * cell[1]) if weight else 0.0


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
    return list(dict.fromkeys([*fitting, *(_bounded(picture, strides) for picture in _LAST)]))


def _fitted(picture: Picture, strides: Strides) -> Picture:
    """A multiple of the strides that is not too much work."""
    h, w = _bounded(picture, strides)
    return _multiple(h, strides.down), _multiple(w, strides.across)


def _multiple(size: int, of: int) -> int:
    return max(1, round(size / of)) * of


def _bounded(picture: Picture, strides: Strides) -> Picture:
    h, w = picture
    while strides.work * h * w > MOST_WORK and min(h, w) >= 2 * max(strides.down, strides.across):
        h, w = h // 2, w // 2
    return h, w
