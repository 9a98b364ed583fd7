"""Element types of values, where the model does not say: from what they are made of."""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import STANDARD
from octavo.graph.analysis.constants import ConstantLookup
from octavo.ir import DOMAIN, MS

MOST_STEPS = 64
SAME = frozenset(
    "Abs Add Ceil Clip Concat Conv Cos CumSum Div Dropout Elu Erf Exp Expand Flatten Gather "
    "GatherElements GatherND Gelu Gemm HardSigmoid HardSwish Identity InstanceNormalization "
    "GroupNormalization LayerNormalization LeakyRelu Log LogSoftmax MatMul Max Mean Min Mul Neg "
    "Pad Pow Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape RMSNormalization "
    "RotaryEmbedding ScatterElements ScatterND Sigmoid Sin Slice Softmax Softplus Split Sqrt "
    "Squeeze Sub Sum Swish Tanh Tile Transpose Trilu Unsqueeze Where FusedMatMul FastGelu BiasGelu "
    "SkipLayerNormalization SkipSimplifiedLayerNormalization SimplifiedLayerNormalization "
    "QuickGelu Attention MultiHeadAttention GroupQueryAttention".split()
)
"""Their first output has the type of their first input; that of Where is the second's."""
ONE_OPERAND = frozenset(
    "Gather GatherElements GatherND Reshape Slice Expand Pad Split Tile".split()
)
"""Whose second input is of another type."""
TESTS = frozenset(
    "And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Xor".split()
)


def element_type(value: ir.Value | None, constants: ConstantLookup) -> ir.DataType | None:
    """Return the element type of `value`; None where it is not known."""
    stack = [value]
    for _ in range(MOST_STEPS):
        if not stack:
            return None
        found = stack.pop()
        if found is None:
            continue
        dtype = _stated(found, constants)
        if dtype is not None:
            return dtype
        node = found.producer()
        if node is None or node.domain not in (*STANDARD, MS) or node.op_type not in SAME:
            continue
        first = 1 if node.op_type == "Where" else 0
        count = 1 if node.op_type in ONE_OPERAND else 2
        stack += list(reversed(node.inputs[first : first + count]))
    return None


def is_float32(value: ir.Value | None, constants: ConstantLookup) -> bool:
    """Tell whether `value` is known to be float32."""
    return element_type(value, constants) is ir.DataType.FLOAT


def _stated(value: ir.Value, constants: ConstantLookup) -> ir.DataType | None:
    tensor = constants.tensor(value)
    if tensor is not None:
        return tensor.dtype
    if value.dtype is not None:
        return value.dtype
    node = value.producer()
    if node is None:
        return None
    if node.domain == DOMAIN:
        return ir.DataType.FLOAT  # all that our operators give
    if node.op_type == "Cast" and node.domain in STANDARD:
        return ir.DataType(node.attributes["to"].as_int())
    if node.op_type in TESTS and node.domain in STANDARD:
        return ir.DataType.BOOL
    if node.op_type == "ConstantOfShape" and "value" in node.attributes:
        return node.attributes["value"].as_tensor().dtype
    return None
