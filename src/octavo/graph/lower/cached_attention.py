"""CachedAttention with a stock operator: com.microsoft.GroupQueryAttention, which it was."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir import MS
from octavo.ir.cached_attention import CachedAttention


def lower(found: CachedAttention, node: ir.Node, c: Context) -> list[ir.Value]:
    """Its outputs. Only attributes that say something are written: old releases know fewer."""
    stated: dict[str, Any] = {"num_heads": found.heads, "kv_num_heads": found.kv_heads}
    if found.scale:
        stated["scale"] = found.scale
    if found.softcap:
        stated["softcap"] = found.softcap
    if found.window:
        stated["local_window_size"] = found.window
    if found.evicts:
        stated["sliding_window_cache"] = 1
    if found.cos is not None:
        stated |= {"do_rotary": 1, "rotary_interleaved": int(found.interleaved)}
    inputs = [
        *(found.q, found.key, found.value, found.past_key, found.past_value),
        *(found.lengths, found.total, found.cos, found.sin),
        *(found.positions, found.bias, found.sinks),
    ]
    while inputs[-1] is None:
        inputs.pop()
    outs = [o.name or "" for o in node.outputs]
    values = c.emitter.op_n("GroupQueryAttention", inputs, outs=outs, domain=MS, **stated)
    return list(values)
