"""What a converted linear layer must compute, from its integers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.onnx.references.linear import reference_portable as reference
from tests.onnx.rules.support import Array, Converted, peek, quantized_products


def per_row(converted: Converted, x: Array, feeds: Mapping[str, Array], index: int = 0) -> Array:
    """The rule's own statement of the product of `x` and the `index`-th quantized weight."""
    product = [n for n in quantized_products(converted) if n.op_type == "MatMulIntegerToFloat"]
    names = [product[index].input[i] for i in (1, 3, 4, 5)]
    q, scale, x_zero, zero = peek(converted, names, feeds)
    assert q.dtype in (np.int8, np.uint8)
    y = reference(x if x.ndim > 1 else x[None], q, scale, zero, int(x_zero))
    if "Squeeze" in converted.ops:  # a vector W, held as a matrix of one column
        y = y[..., 0]
        return y[0] if x.ndim == 1 else y
    return y[..., 0, :] if x.ndim == 1 else y
