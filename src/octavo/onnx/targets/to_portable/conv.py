"""ai.octavo.Conv with ONNX Runtime's operators.

Conv(x, W, ..., B)  ->  quantize_images(x) ─ ConvInteger(uint8 filters) ─ Mul(scales) ─ Add(B)
                        and MaxPool behind the activation, where the node has pools

Filters are uint8, moved up by 128: ONNX Runtime's ConvInteger is slow with int8 ones.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.convolution import unpack_filters
from octavo.graph.activate import activate
from octavo.graph.conv import conv_integer, quantize_images
from octavo.graph.integers import moved_up
from octavo.graph.linear import QuantizedWeightValues
from octavo.graph.native.conv import ConvNode, FilterValues
from octavo.onnx.targets.to_portable.linear import MOST_INPUTS
from octavo.onnx.targets.turning import Outputs, Turning


def draw(node: ir.Node, t: Turning) -> Outputs:
    """The images, float32 [batch, M, ...]."""
    found = ConvNode.of(node)
    assert found is not None
    e, out, f = t.emitter, node.outputs[0].name or "images", found.filters
    t.names.nodes.free(node.name)
    name, rank, inputs = node.name or out, len(f.shape), prod(f.shape[1:])
    attributes = {**found.window, "group": f.group, "kernel_shape": list(f.shape[2:])}
    bias = t.array(found.bias)
    if inputs > MOST_INPUTS:
        t.note(name, f"computed in float: the sums of {inputs} inputs would overflow int32")
        wide = t.once(("float", f.w), lambda: t.hold(_in_float(f, t), f"{f.w.name}_float"))
        y = e.op("Conv", [found.x, wide, found.bias], out=f"{out}_image", name=name, **attributes)
    else:
        zero = t.activations.zero_point(found.x)
        key = ("images", found.x, node.graph)
        images = t.once(key, lambda: quantize_images(e, found.x, rank, zero))
        w = t.once(("filters", f.w, f.scale), lambda: _filters(f, t))
        column = bias.reshape(1, -1, *[1] * (rank - 2))
        added = t.hold(np.array(column), found.bias.name) if np.any(bias) else None
        y = conv_integer(e, images, w, added, attributes, name=name, out=f"{out}_image")
    y = activate(e, y, found.activation, out=f"{out}_{found.activation}")
    if found.pool:
        sizes = list(found.pool)
        y = e.op("MaxPool", [y], out=f"{out}_pool", kernel_shape=sizes, strides=sizes)
    return [y]


def _integers(f: FilterValues, t: Turning) -> npt.NDArray[np.int8]:
    packed = np.ascontiguousarray(t.array(f.w)).reshape(-1).view(np.uint8)
    q = unpack_filters(packed, f.shape, f.group)
    t.constants.release(f.w)
    return q


def _scales(f: FilterValues, t: Turning, axes: int) -> npt.NDArray[np.float32]:
    return np.array(t.array(f.scale)).reshape(-1, *[1] * axes)


def _filters(f: FilterValues, t: Turning) -> QuantizedWeightValues:
    """uint8 filters; scales [M, 1, ...] beside the output [batch, M, ...]."""
    q, scale = moved_up(_integers(f, t)), _scales(f, t, len(f.shape) - 2)
    zero = t.emitter.scalar(128, np.uint8)
    return QuantizedWeightValues(t.hold(q, f.w.name), t.hold(scale, f.scale.name), zero)


def _in_float(f: FilterValues, t: Turning) -> npt.NDArray[np.float32]:
    wide: npt.NDArray[np.float32] = _integers(f, t) * _scales(f, t, len(f.shape) - 1)
    return wide
