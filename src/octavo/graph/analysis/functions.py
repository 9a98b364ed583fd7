"""What elementwise nodes compute, in float64: functions that are compared with those of kernels."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.ir import MS

Float64 = npt.NDArray[np.float64]

_erf: Callable[[Any], Float64] = np.vectorize(erf, otypes=[np.float64])


def _sigmoid(x: Float64) -> Float64:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def gelu_erf(x: Float64) -> Float64:
    """Compute `x/2 (1 + erf(x / sqrt 2))`."""
    return x / 2 * (1 + _erf(x / np.sqrt(2)))


def gelu_by_tanh(x: Float64) -> Float64:
    """Compute `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`."""
    values: Float64 = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return values


_STANDARD: dict[str, Callable[..., Float64]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Neg": np.negative,
    "Exp": np.exp,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Erf": _erf,
    "Tanh": np.tanh,
    "Sigmoid": _sigmoid,
    "Relu": lambda x: np.maximum(x, 0),
    "Identity": np.positive,
}


def function_of(node: ir.Node) -> Callable[..., Float64] | None:
    """Return the node's function of one or two operands that broadcast; None for others."""
    if node.op_type == "Gelu" and node.domain in ("", "ai.onnx"):
        form = node.attributes.get("approximate")
        by_tanh = form is not None and form.as_string() == "tanh"
        return gelu_by_tanh if by_tanh else gelu_erf
    if node.domain == MS:
        if node.op_type == "QuickGelu":
            alpha = node.attributes.get("alpha")
            factor = 1.702 if alpha is None else alpha.as_float()
            return lambda x: x * _sigmoid(factor * x)
        return {"Gelu": gelu_erf, "FastGelu": gelu_by_tanh}.get(node.op_type)
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Swish":
        alpha = node.attributes.get("alpha")
        factor = 1.0 if alpha is None else alpha.as_float()
        return lambda x: x * _sigmoid(factor * x)
    return _STANDARD.get(node.op_type)
