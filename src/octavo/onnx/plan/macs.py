"""How much each layer multiplies in one run, as far as the model tells.

Sizes that the model leaves open are those of inputs made up for it. What cannot be counted is None:
a layer whose sizes depend on values, an operator that nothing is known of, and what stands in a
branch or a loop, which runs or does not.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from octavo.core.feeds import shape_text
from octavo.graph.analysis.walk import graphs_of
from octavo.onnx.constants import Constants
from octavo.onnx.inputs import Feed, made_up, required_inputs
from octavo.onnx.operators.reader import attribute_int, op_name
from octavo.onnx.plan.inventory import Site
from octavo.onnx.read.map_types import attached_types
from octavo.onnx.read.normalize import quiet_logger
from octavo.recipe import Kind

Shape = tuple[int, ...]

_UNKNOWN = frozenset("ConvInteger MatMulInteger QLinearConv QLinearMatMul DeformConv Scan".split())
"""Standard operators that multiply and are not counted; all others work element by element."""


def count_macs(
    model: ir.Model, sites: Sequence[Site], constants: Constants
) -> tuple[tuple[int | None, ...], str]:
    """Count the multiply-accumulates of each layer in one run.

    The text returned says for which inputs, where sizes are open. Changes the shapes that `model`
    states.
    """
    feed = next(made_up(model, constants), {})
    is_open = _state_shapes(model, feed)
    if not attached_types(model):  # ONNX's inference knows nothing of maps, and may die of them
        with quiet_logger("onnx_ir.passes.common.shape_inference", logging.CRITICAL):
            ShapeInferencePass(check_type=False, strict_mode=False)(model)
    return tuple(_count(site, constants) for site in sites), shape_text(feed) if is_open else ""


def uncounted_products(model: ir.Model, sites: Sequence[Site], constants: Constants) -> int:
    """Count the nodes that sum up products and are no layers: their work is in no layer's."""
    layers = {site.node for site in sites}
    return sum(
        _multiplies(node) and node not in layers and not constants.is_constant(node.outputs[0])
        for graph in graphs_of(model)
        for node in graph
    )


def _multiplies(node: ir.Node) -> bool:
    if node.domain in ("", "ai.onnx"):
        return node.op_type in _UNKNOWN or op_name(node) in _COUNTS
    return any(part in node.op_type for part in ("MatMul", "Conv", "Gemm", "Attention", "LSTM"))


def _state_shapes(model: ir.Model, feed: Feed) -> bool:
    """Give the inputs the shapes of `feed`; return whether any size was open."""
    is_open = False
    for value in required_inputs(model.graph):
        sizes = None if value.shape is None else value.shape.dims
        if sizes is None or not all(isinstance(size, int) for size in sizes):
            is_open = True
            array = feed.get(value.name or "")
            if isinstance(array, np.ndarray):
                value.shape = ir.Shape(array.shape)
    return is_open


def _count(site: Site, constants: Constants) -> int | None:
    if site.layer.scope:
        return None
    if site.layer.kind is Kind.EMBEDDING:
        return 0
    count = _COUNTS.get(op_name(site.node))
    if count is not None:
        return count(site, constants)
    standard = site.node.domain in ("", "ai.onnx")
    return 0 if standard and site.node.op_type not in _UNKNOWN else None


def _shape(value: ir.Value | None, constants: Constants) -> Shape | None:
    """Return the sizes of a value, where all are known, else None."""
    if value is None:
        return None
    if constants.is_constant(value):
        return constants.shape(value)
    if value.shape is None or not all(isinstance(size, int) for size in value.shape.dims):
        return None
    return tuple(int(size) for size in value.shape.dims)  # type: ignore[arg-type]


def _product(site: Site, constants: Constants) -> int | None:
    """Count the multiplications of [.., M, K] @ [.., K, N]: for each output a sum over K."""
    node = site.node
    out = _shape(node.outputs[0], constants)
    left, right = (_shape(value, constants) for value in node.inputs[:2])
    if out is None:
        return None
    if left is not None:
        return math.prod(out) * left[-2 if attribute_int(node, "transA", 0) else -1]
    if right is not None:
        turned = attribute_int(node, "transB", 0) or len(right) == 1
        return math.prod(out) * right[-1 if turned else -2]
    return None


def _convolution(site: Site, constants: Constants) -> int | None:
    """Count the multiplications of a convolution.

    Each output is a sum over the filter; of a transposed one each input goes to a filter.
    """
    node = site.node
    value = node.inputs[0] if node.op_type == "ConvTranspose" else node.outputs[0]
    places, filters = _shape(value, constants), _shape(node.inputs[1], constants)
    if places is None or filters is None:
        return None
    return math.prod(places) * math.prod(filters[1:])


def _recurrent(site: Site, constants: Constants) -> int | None:
    """Count the multiplications of both products of every step and item."""
    x = _shape(site.node.inputs[0], constants)
    if x is None or site.layer.macs_per_row is None:
        return None
    return x[0] * x[1] * site.layer.macs_per_row


def _attention(site: Site, constants: Constants) -> int | None:
    """com.microsoft.Attention: Q, K and V of each token, and two products of them."""
    node, x = site.node, _shape(site.node.inputs[0], constants)
    per_row = site.layer.macs_per_row
    has_past = len(node.inputs) > 4 and node.inputs[4] is not None
    if x is None or per_row is None or has_past or "qkv_hidden_sizes" in node.attributes:
        return None
    batch, length, _ = x
    return batch * length * (per_row + 2 * length * constants.shape(site.weights[0])[1] // 3)


def _einsum(site: Site, constants: Constants) -> int | None:
    """Once for every combination of the indices that the equation names."""
    equation = site.node.attributes["equation"].as_string().replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, value in zip(terms, site.node.inputs, strict=True):
        shape = _shape(value, constants)
        if shape is None or "." in term or len(shape) != len(term):
            return None
        sizes |= dict(zip(term, shape, strict=True))
    return math.prod(sizes.values())


_COUNTS: Mapping[str, Callable[[Site, Constants], int | None]] = {
    **dict.fromkeys(("MatMul", "Gemm", "com.microsoft.FusedMatMul"), _product),
    **dict.fromkeys(("Conv", "ConvTranspose"), _convolution),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "com.microsoft.Attention": _attention,
    "Einsum": _einsum,
}
