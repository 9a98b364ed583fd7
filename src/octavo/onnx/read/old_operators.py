"""Operators that ONNX's version converter hands on although a newer opset means something else.

Resize and Upsample get written beside them how they count; the others are refused.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from octavo.errors import ModelError, brief
from octavo.graph.analysis.constants import Stored
from octavo.graph.analysis.walk import bodies_of, graphs_of, opset_of

_STANDARD = ("", "ai.onnx")
_RESIZE_SAYS_HOW = 11
_FEW = 64  # elements of a constant that a converter may look at, such as axes and scales
# The opsets between which an operator has changed, and how.
_CHANGED = {
    "Scan": (8, 9, "has no batch axis and no sequence_lens"),
    "Hardmax": (1, 13, "takes the largest along another axis"),
    "GroupNormalization": (18, 21, "takes a scale for each channel instead of each group"),
}


def refuse_changed(model: ir.Model, label: str, needed: int) -> None:
    """Raise ModelError for an operator that means something else in opset `needed`."""
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


def first_not_raised(model: ir.Model, needed: int) -> str:
    """Return which node ONNX's version converter cannot raise, and why; "" where none is alone."""
    for graph in graphs_of(model):
        for node in graph:
            if node.domain in _STANDARD and not bodies_of(node):
                try:
                    onnx.version_converter.convert_version(_alone(node, opset_of(model)), needed)
                except Exception as error:  # noqa: BLE001 - it raises whatever its C++ side throws
                    why = "ONNX has no such operator"
                    if onnx.defs.has(node.op_type):
                        why = brief(error).rpartition(" failed: ")[2]
                    return f"{node.op_type} {node.name or node.outputs[0].name!r}: {why}"
    return ""


def _alone(node: ir.Node, opset: int) -> onnx.ModelProto:
    """Build a model of one node, with its constants that are no weights."""
    given, held = [], []
    for value in dict.fromkeys(v for v in node.inputs if v is not None):
        tensor = Stored().tensor(value)
        if tensor is not None and tensor.size <= _FEW:
            held.append(ir.serde.serialize_tensor(ir.tensor(tensor.numpy(), name=value.name)))
        else:
            dtype = value.dtype or ir.DataType.FLOAT
            shape = (
                None
                if value.shape is None
                else [d if isinstance(d, int) else None for d in value.shape]
            )
            given.append(onnx.helper.make_tensor_value_info(value.name or "", dtype, shape))
    made = [onnx.helper.make_empty_tensor_value_info(v.name or "") for v in node.outputs]
    graph = onnx.helper.make_graph([ir.serde.serialize_node(node)], "", given, made, held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])


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
