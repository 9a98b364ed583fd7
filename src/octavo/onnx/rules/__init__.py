"""One file an operator. `RULES` maps an operator's name to its rule."""

from __future__ import annotations

from octavo.onnx.rule import Rule
from octavo.onnx.rules.attention import AttentionRule
from octavo.onnx.rules.conv import ConvRule
from octavo.onnx.rules.embed_layer_normalization import EmbedLayerNormalizationRule
from octavo.onnx.rules.fused_matmul import FusedMatMulRule
from octavo.onnx.rules.gather import GatherRule
from octavo.onnx.rules.gemm import GemmRule
from octavo.onnx.rules.gru import GruRule
from octavo.onnx.rules.lstm import LstmRule
from octavo.onnx.rules.matmul import MatMulRule
from octavo.onnx.rules.rnn import RnnRule

RULES: dict[str, Rule] = {
    rule.op: rule
    for rule in (
        AttentionRule(),
        ConvRule(),
        EmbedLayerNormalizationRule(),
        FusedMatMulRule(),
        GatherRule(),
        GemmRule(),
        GruRule(),
        LstmRule(),
        MatMulRule(),
        RnnRule(),
    )
}


def supported_ops() -> tuple[str, ...]:
    """The operators that have a rule, such as `MatMul` and `com.microsoft.Attention`."""
    return tuple(sorted(RULES))


def find_op(name: str) -> str | None:
    """The full name of an operator given with or without its domain; None if there is no rule."""
    if name in RULES:
        return name
    return next((op for op in RULES if op.rpartition(".")[2] == name), None)
