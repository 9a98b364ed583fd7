"""Conversions to the native target, for the tests of its forms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from octavo.onnx import session
from tests.onnx.rules.support import Array, Converted
from tests.onnx.rules.support import convert as convert_to


def convert(model: onnx.ModelProto, folder: Path, **options: Any) -> Converted:
    """Converts to target native and reads back; the comparison is the test's."""
    return convert_to(model, folder, target="native", **options)


def convert_convolutions(model: onnx.ModelProto, folder: Path, **options: Any) -> Converted:
    """As `convert`, asking for convolutions: the first and the last are float by default."""
    asked = {} if "recipe" in options else {"op_types_to_quantize": ["Conv"]}
    return convert(model, folder, **asked, **options)


def run(done: Converted, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of the converted model."""
    return list(session(done.path).run(None, dict(feeds)))


def ours(done: Converted) -> list[onnx.NodeProto]:
    """The nodes of domain ai.octavo."""
    return [n for n in done.proto.graph.node if n.domain == "ai.octavo"]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def constant(done: Converted, name: str) -> Array:
    """An initializer's numbers."""
    (found,) = (i for i in done.proto.graph.initializer if i.name == name)
    return np.asarray(numpy_helper.to_array(found))
