"""Integer convolutions as ai.octavo.Conv.

ConvInteger ─ Cast ─ Mul(scales) ─ Mul(image scale) ─ Add(bias)  ->  Conv(x, W packed, bias)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.stored_integers import as_int8
from octavo.ir.conv import WINDOW, Conv
from octavo.ir.weight import Weight, WeightIntegers
from octavo.onnx.from_portable.context import RecognitionContext
from octavo.onnx.from_portable.quantized_rows import other, read_by, scaled_integers
from octavo.onnx.operators.reader import attribute_int
from octavo.recipe.convolutions import AXES

PER_IMAGE = "activations per image: target native has no scale for a whole tensor"


def recognize(node: ir.Node, t: RecognitionContext) -> bool:
    """Whether `node` was the ConvInteger of such a layer; it is drawn anew then."""
    found, w = scaled_integers(node, t), node.inputs[1]
    if found is None or w is None or not t.constants.is_constant(w):
        return False
    rows, scale, last = found
    if not t.constants.is_constant(scale) or len(t.constants.shape(w)) - 2 not in AXES:
        return False
    if rows.row is not None:
        y, image = last.outputs[0], read_by(last.outputs[0], "Mul")
        if image is None or other(image, y) is not rows.row:
            return False
        last = image
    filters = _filters(node, w, scale, t)
    if filters is None:
        return False
    name = (node.name or "conv").removesuffix("_quant")
    bias, last = _bias(last, filters.shape, t)
    held = None if bias is None else t.emitter.constant(bias, f"{name}_bias", node.graph)
    t.names.nodes.free(node.name)
    out = last.outputs[0].name or "images"
    layer = Conv(rows.x, filters, attribute_int(node, "group", 1), _window(node), held)
    if rows.row is None:
        t.note(name, PER_IMAGE)
    t.replace(last, t.put(layer, name=name, outs=[out]), "Conv")
    return True


def _filters(node: ir.Node, w: ir.Value, scale: ir.Value, t: RecognitionContext) -> Weight | None:
    """The filters; None where they have a zero point."""
    stated = node.inputs[3] if len(node.inputs) > 3 else None
    shape = t.constants.shape(w)
    stored = t.numbers(w)
    zero = np.zeros(1, stored.dtype) if stated is None else t.numbers(stated).reshape(-1)
    if np.any(as_int8(np.zeros(0, stored.dtype), zero)[1]):
        return None

    scales = np.broadcast_to(t.numbers(scale).reshape(-1), shape[0]).astype(np.float32)

    def make() -> WeightIntegers:
        q = np.array(as_int8(t.numbers(w), zero)[0])
        t.constants.release(w)
        return WeightIntegers(q, scales)

    t.constants.release(w)
    name = (w.name or "weight").removesuffix("_quantized")
    return t.once(("filters", w, scale), lambda: Weight((w, scale), name, shape, make, source=w))


def _bias(
    last: ir.Node, shape: tuple[int, ...], t: RecognitionContext
) -> tuple[npt.NDArray[np.float32] | None, ir.Node]:
    """The bias [M] behind `last`, and the node that adds it; None and `last` without one."""
    outputs, rank = shape[0], len(shape)
    add = read_by(last.outputs[0], "Add")
    value = None if add is None else other(add, last.outputs[0])
    if add is not None and value is not None and t.constants.is_constant(value):
        stated = t.constants.shape(value)
        if stated[-(rank - 1) :] == (outputs, *[1] * (rank - 2)) and np.prod(stated) == outputs:
            return np.array(t.numbers(value), np.float32).reshape(-1), add
    return None, last


def _window(node: ir.Node) -> dict[str, Any]:
    """The attributes of the window. Padding by auto_pad leaves no room for pads."""
    window: dict[str, Any] = {k: node.attributes[k] for k in WINDOW if k in node.attributes}
    auto_pad = window.get("auto_pad")
    if auto_pad is not None and auto_pad.as_string() != "NOTSET":
        window.pop("pads", None)
    return window
