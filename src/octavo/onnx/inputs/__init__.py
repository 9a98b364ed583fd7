"""Inputs to run a model on: read from files, or made up from what its graph does with them."""

from __future__ import annotations

from octavo.onnx.inputs.describe import describe, shapes_of
from octavo.onnx.inputs.generate import MOST_ELEMENTS, branches, made_up
from octavo.onnx.inputs.given import (
    CheckInputs,
    Feed,
    FixedShapes,
    read_inputs,
    required_inputs,
)

__all__ = [
    "MOST_ELEMENTS",
    "CheckInputs",
    "Feed",
    "FixedShapes",
    "branches",
    "describe",
    "made_up",
    "read_inputs",
    "required_inputs",
    "shapes_of",
]
