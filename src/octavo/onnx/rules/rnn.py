"""RNN: ONNX Runtime has no int8 operator for it, so it stays float in the portable target."""

from __future__ import annotations

from octavo.onnx.rules.gru import RecurrentFloatRule
from octavo.recipe import Kind


class RnnRule(RecurrentFloatRule):
    """W [D, H, I], R [D, H, H]."""

    op = "RNN"
    kind = Kind.RNN
