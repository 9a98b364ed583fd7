"""Attention as exporters write it, twenty nodes and more  ->  one Attention node.

`octavo.graph.analysis.attentions` shows what is looked for. What is computed stays float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.attentions import attentions_of
from octavo.graph.context import Context
from octavo.ir.activation_products import HEADS_FIRST


def reference(
    q: npt.NDArray[Any],
    k: npt.NDArray[Any],
    v: npt.NDArray[Any],
    heads: int,
    scale: float,
    bias: npt.NDArray[Any] | None = None,
) -> npt.NDArray[np.float64]:
    """What is taken over, float64: q [B, S, H*D], k [B, T, H*D], v [B, T, H*E] -> [B, S, H*E]."""

    def split(x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        parted = np.asarray(x, np.float64).reshape(*x.shape[:2], heads, -1)
        turned: npt.NDArray[np.float64] = parted.transpose(HEADS_FIRST)
        return turned

    scores = split(q) @ split(k).swapaxes(-1, -2) * scale
    if bias is not None:
        scores = scores + np.asarray(bias, np.float64)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    held: npt.NDArray[np.float64] = (weights @ split(v)).transpose(HEADS_FIRST)
    return held.reshape(*held.shape[:2], -1)


# docs/notes/native_target.md: "Attention is one node in float32"
def fuse_attention(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Every attention of `graph` that has this form; how many there were."""
    count = 0
    for found in attentions_of(graph, c.constants, c.opset, None):
        last = found.last
        out = last.outputs[0].name or "attention"
        c.replace(last, c.put(found.operator(), name=f"{out}/Attention", outs=[out]))
        count += 1
    return {"attentions became one node each, in float32": count}
