"""Operators that ONNX's version converter hands on although a newer opset means something else.

Resize and Upsample get written beside them how they count; the others are refused.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.errors import ModelError
from octavo.graph.analysis.constants import Stored
from octavo.graph.analysis.walk import graphs_of, opset_of

_STANDARD = ("", "ai.onnx")
_RESIZE_SAYS_HOW = 11
# The opsets between which an operator has changed, and how.
_CHANGED = {
    "Scan": (8, 9, "has no batch axis and no sequence_lens"),
    "Hardmax": (1, 13, "takes the largest along another axis"),
    "GroupNormalization": (18, 21, "takes a scale for each channel instead of each group"),
}


def refuse_changed(model: ir.Model, label: str, needed: int) -> None:
    """Raises ModelError for an operator that means something else in opset `needed`."""
    opset = opset_of(model)
    for graph in graphs_of(model):
        for node in graph:
            first, changed, how = _CHANGED.get(node.op_type, (needed, needed, ""))
            if node.domain in _STANDARD and first <= opset < changed <= needed:
                raise ModelError(
                    f"{label} has opset {opset} and the conversion needs {needed}, where "
                    f"{node.op_type} {node.name or node.outputs[0].name!r} {how}. Export the model "
                    f"again with opset {changed} or newer"
                )


def keep_resizing(model: ir.Model, was: int) -> None:
    """Lets each Resize of a model raised from opset `was` take the elements that it did."""
    if was >= _RESIZE_SAYS_HOW or opset_of(model) < _RESIZE_SAYS_HOW:
        return
    for graph in graphs_of(model):
        for node in graph:
            if node.op_type == "Resize" and node.domain in _STANDARD:
                for name, value in _how_of_ten(node).items():
                    node.attributes[name] = ir.AttrString(name, value)


def _how_of_ten(node: ir.Node) -> dict[str, str]:
    """Attributes that say what ONNX Runtime does where an opset below 11 says nothing."""
    scales = Stored().tensor(node.inputs[2]) if len(node.inputs) > 2 else None
    shrinks = scales is not None and bool((scales.numpy() < 1).any())
    nearest = "ceil" if shrinks else "floor"
    return {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
