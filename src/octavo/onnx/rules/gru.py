"""GRU: ONNX Runtime has no int8 operator for it, so it stays float in the portable target."""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.rule import Context, Drawn, Rule, is_float_type
from octavo.recipe import Kind, Scheme


class RecurrentFloatRule(Rule):
    """A recurrent layer for which stock ONNX Runtime has no integer operator."""

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        found = tuple(v for v in node.inputs[1:3] if v is not None and constants.is_constant(v))
        if not found or not all(is_float_type(constants.dtype(v)) for v in found):
            return None
        return found

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        return f"stock ONNX Runtime has no int8 {self.op}; recipe float16 halves its file size"

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        raise AssertionError(f"{self.op} has no integer form and check() says so")


class GruRule(RecurrentFloatRule):
    """W [D, 3H, I], R [D, 3H, H]."""

    op = "GRU"
    kind = Kind.GRU
