"""Conv ─ MaxPool of results that lie side by side  ->  Conv with that pool.

ONNX Runtime turns images into its blocked layout before a MaxPool and back behind it, which takes
longer than the pool. In float16 models a Cast stands between the two, and they stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.convolution import MOST_POOL
from octavo.graph.analysis.walk import only_reader
from octavo.graph.context import Context
from octavo.ir.conv import Conv


def reference(y: npt.NDArray[Any], pool: Sequence[int]) -> npt.NDArray[np.float64]:
    """Compute the reference in float64: y [N, M, ...] -> the largest of each `pool`."""
    largest: npt.NDArray[np.float64] = np.asarray(y, np.float64)
    for axis, size in enumerate(pool, 2):
        whole = largest.shape[axis] // size
        kept = np.take(largest, range(whole * size), axis)
        largest = kept.reshape(*kept.shape[:axis], whole, size, *kept.shape[axis + 1 :])
        largest = largest.max(axis + 1)
    return largest


# docs/notes/native_target.md: "A convolution takes the MaxPool behind it"
def fold(node: ir.Node, c: Context) -> ir.Node | None:
    """Fold a max pooling behind the Conv `node` into it; return the new node, or None."""
    layer = Conv.of(node)
    if layer is None or not layer.takes_pool:
        return None
    reader = only_reader(node.outputs[0])
    if reader is None:
        return None
    pool = _pool(reader[0])
    if pool is None or len(pool) != len(layer.weight.shape) - 2:
        return None
    return c.absorb(node, reader[0], replace(layer, pool=pool))


def _pool(node: ir.Node) -> tuple[int, ...] | None:
    """Return the sizes of `node`'s pools; None for another operator and unsupported pools.

    Those overlap, leave gaps, reach over the image's edge or say where the largest was.
    """
    a = node.attributes
    if node.op_type != "MaxPool" or node.domain not in ("", "ai.onnx") or "kernel_shape" not in a:
        return None
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]) or (
        "auto_pad" in a and a["auto_pad"].as_string() not in ("NOTSET", "VALID")
    ):
        return None
    kernel = tuple(a["kernel_shape"].as_ints())
    plain = {
        "strides": (1,) * len(kernel),
        "dilations": (1,) * len(kernel),
        "pads": (0,) * (2 * len(kernel)),
    }
    given = {
        name: tuple(a[name].as_ints()) if name in a else usual for name, usual in plain.items()
    }
    rounds_up = "ceil_mode" in a and a["ceil_mode"].as_int() != 0
    if given != {**plain, "strides": kernel} or rounds_up or prod(kernel) > MOST_POOL:
        return None
    return kernel
