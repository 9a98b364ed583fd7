"""Inputs to run a model on."""

from __future__ import annotations

from octavo.onnx.feeds import (
    MOST_ELEMENTS,
    CheckInputs,
    Feed,
    FixedShapes,
    branches,
    describe,
    fed,
    made_up,
    read_inputs,
    shapes_of,
)

__all__ = [
    "MOST_ELEMENTS",
    "CheckInputs",
    "Feed",
    "FixedShapes",
    "branches",
    "describe",
    "fed",
    "made_up",
    "read_inputs",
    "shapes_of",
]
