"""Layers as Octavo's own operators: the target native. One operator, one file.

They run in stock ONNX Runtime once `liboctavo_ort` is registered (`octavo.onnx.session` does it).
Weights are stored as kernels read them, so that nothing is packed when a session opens.
"""

from __future__ import annotations

DOMAIN = "ai.octavo"
VERSION = 1
"""Of the operators: the opset import of `DOMAIN`."""

OPERATORS = (
    "Domain ai.octavo is in octavo's library: open this file with octavo.onnx.session(path), or "
    "call register_custom_ops_library(octavo.onnx.custom_ops_library()) on the session options"
)
"""What a native file says to who opens it without the library."""
