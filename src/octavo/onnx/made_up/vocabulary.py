"""The texts that a model knows: categories, labels and words that its nodes hold."""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.made_up.flow import MOVES, Flow

_MOST = 64
_HELD = (
    "keys_strings",
    "cats_strings",
    "pool_strings",
    "classlabels_strings",
    "string_vocabulary",
)
_STEPS = MOVES | frozenset(
    "StringNormalizer ArrayFeatureExtractor Gather StringSplit Concat".split()
)


def words(value: ir.Value, flow: Flow) -> tuple[str, ...]:
    """Of the first nodes that hold any, at most some dozens."""
    found: dict[str, None] = {}
    for node, _, _ in flow.reads(value, lambda n, i: n.op_type in _STEPS):
        for name in _HELD:
            held = node.attributes.get(name)
            if held is not None and held.type is ir.AttributeType.STRINGS:
                found.update(dict.fromkeys(held.as_strings()[:_MOST]))
    return tuple(found)[:_MOST]
