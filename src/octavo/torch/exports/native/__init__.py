"""Layers as Octavo's operators, over packed buffers as they are. One operator, one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.torch.exports.drawing import Drawing, Outputs
from octavo.torch.exports.native import conv, embedding, linear, recurrent
from octavo.torch.exports.native.constants import AS_PORTABLE

__all__ = ["AS_PORTABLE", "DRAWERS"]

DRAWERS: Mapping[str, Callable[[ir.Node, Drawing], Outputs]] = {
    "linear": linear.draw,
    "embedding": embedding.draw,
    "conv": conv.draw,
    "recurrent": recurrent.draw,
}
"""By the names of the operators in `torch.ops.octavo`; others have their portable form."""
