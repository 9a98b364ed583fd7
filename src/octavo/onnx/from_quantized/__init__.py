"""Quantized files as the float models that they stand for, over the same integers.

What Octavo's portable target writes, and what ONNX Runtime's quantizers write, becomes float
operators again. Their weights are `StoredWeight` or `StoredBlocks`: float numbers that nobody has
to compute, as readers of `octavo.onnx.operators` take the integers behind them. One kind of layer,
one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of
from octavo.onnx.from_quantized import attention, blocks, conv, linear, qdq_pairs, recurrent, tables
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.from_quantized.split_qkv import split_qkv

RESTORERS: Mapping[str, Callable[[ir.Node, RestoringContext], bool]] = {
    "MatMulIntegerToFloat": linear.restore,
    "MatMulInteger": linear.restore,
    "DynamicQuantizeMatMul": linear.restore,
    "Gather": tables.restore,
    "ConvInteger": conv.restore,
    "DynamicQuantizeLSTM": recurrent.restore,
    "GRU": recurrent.restore,
    "RNN": recurrent.restore,
    "QAttention": attention.restore,
    "MatMulNBits": blocks.restore_linear,
    "GatherBlockQuantized": blocks.restore_table,
}
"""By the node that holds a layer's integers."""


def restore(t: RestoringContext) -> None:
    """Draws every layer of a known form as a float one."""
    for graph in graphs_of(t.model):
        split_qkv(graph, t)
        _restore(graph, RESTORERS, t)
    for graph in graphs_of(t.model):
        _restore(graph, {"DequantizeLinear": qdq_pairs.restore}, t)
    t.finish()


def _restore(
    graph: ir.Graph,
    by: Mapping[str, Callable[[ir.Node, RestoringContext], bool]],
    t: RestoringContext,
) -> None:
    for node in [node for node in graph if node.op_type in by]:
        if node.graph is not None:
            by[node.op_type](node, t)
