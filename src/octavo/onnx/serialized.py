"""Models as protobuf messages."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of
from octavo.onnx import maps
from octavo.onnx.store import TensorStore
from octavo.onnx.wellformed import tensors_of


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as a message; tensors in files are referred to."""
    proto = ir.serde.serialize_model(model)
    maps.put_back(model, proto)
    return proto


def self_contained(model: ir.Model) -> onnx.ModelProto:
    """The model as one message, which holds all its tensors."""
    inline_attributes(model)
    for graph in graphs_of(model):
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                value.const_value = TensorStore(None).adopt(value.const_value, name)
    return to_proto(model)


def inline_attributes(model: ir.Model) -> None:
    """Brings tensors of attributes that lie in a file into the model: a node has them at hand."""
    for graph in graphs_of(model):
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if any(isinstance(t, ir.ExternalTensor) for t in tensors_of(attribute)):
                    held = [TensorStore(None).adopt(t, t.name or "") for t in tensors_of(attribute)]
                    one = attribute.type is ir.AttributeType.TENSOR
                    node.attributes[name] = ir.Attr(name, attribute.type, held[0] if one else held)
