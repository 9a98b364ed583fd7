"""The operators of domain ai.octavo: what a quantized layer is, whatever it was read from.

Front ends read layers into these dataclasses, `octavo.graph.rewrite` puts more into them, and then
they are either lowered to stock operators (`octavo.graph.lower`) or written as they are
(`octavo.graph.emit`): with their weights packed, for target native. Written ones run in stock ONNX
Runtime once `liboctavo_ort` is registered (`octavo.onnx.session` does it).
"""

from __future__ import annotations

DOMAIN = "ai.octavo"
MS = "com.microsoft"
"""The domain of ONNX Runtime's own operators, which lowered layers use too."""
WITHOUT_QUANTIZE = 23
"""The opset that an ONNX Runtime runs which has no QuantizeLinear for it."""

OPERATORS = (
    "Domain ai.octavo is in octavo's library: open this file with octavo.onnx.session(path), or "
    "call register_custom_ops_library(octavo.onnx.custom_ops_library()) on the session options"
)
"""What a native file says to who opens it without the library."""
