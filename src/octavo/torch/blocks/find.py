"""Which modules of a model are blocks: what it has several of, with quantized layers in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import nn

from octavo.core.attention_type import AttentionType
from octavo.errors import listed
from octavo.torch.blocks.activations import feed_forward, feed_forward_type, fuse_activations
from octavo.torch.blocks.block import run_block
from octavo.torch.blocks.guard_facts import Facts, note_code
from octavo.torch.dynamic_type import has_dynamic_type, make_dynamic_type, set_type
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear

_TORCHS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def fuse_blocks(model: nn.Module, attention: AttentionType = AttentionType.FLOAT32) -> list[str]:
    """Let blocks run as one call, in place; return their names.

    `attention` is what attention in them may multiply in.

    What changes is a block's type (`dynamic_type`). Where a block holds others, as a stage of
    Swin does, both may: the inner ones run as one call where the outer one cannot.
    """
    names = {id(module): name for name, module in model.named_modules()}
    found = []
    for module in list(_candidates(model)):
        kind: Any = type(module)
        word = ""
        if has_dynamic_type(module) and kind._made_by[0] is feed_forward_type:
            kind, word = kind._made_by[1]  # its activation still is computed with its layer
        if "_behind" in vars(kind) or "forward" in module.__dict__:
            continue
        note_code(module)
        if set_type(module, one_call_type(kind, word, attention)):
            found.append(names[id(module)])
    return found


IN_BLOCKS = "attention in these blocks multiplies in bfloat16, which the recipe allows"
NO_BLOCKS = "attention: bfloat16 of the recipe changed nothing, since no block runs as one call"


def fused(model: nn.Module, attention: AttentionType = AttentionType.FLOAT32) -> list[str]:
    """Let activations and blocks run within other calls, in place; say which, in words.

    `attention` is the recipe's.
    """
    activation = "the activation that follows a linear layer is computed in the layer's pass"
    block = "blocks run as one call into C++, where a call asks for nothing else"
    found = {activation: fuse_activations(model), block: fuse_blocks(model, attention)}
    found |= _own_forwards(model, found[block])
    notes = [f"{what}: {listed(names, 3)}" for what, names in found.items() if names]
    if attention is not AttentionType.FLOAT32:
        notes.append(IN_BLOCKS if found[block] else NO_BLOCKS)
    return notes


def _own_forwards(model: nn.Module, names: list[str]) -> dict[str, list[str]]:
    """Name the blocks of which no call will be one call into C++, by the reason."""
    found: dict[str, list[str]] = {}
    for name in names:
        facts = Facts(model.get_submodule(name))
        if reason := facts.reason or facts.code.changed():
            found.setdefault(f"these blocks run their own forward ({reason})", []).append(name)
    return found


def _candidates(model: nn.Module) -> Iterator[nn.Module]:
    listed = [
        child
        for parent in model.modules()
        if isinstance(parent, (nn.ModuleList, nn.Sequential))
        for child in parent._modules.values()
        if child is not None
    ]
    counts = Counter(type(child) for child in listed)
    repeated = {id(c) for c in listed if counts[type(c)] > 1}
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == 1:
            repeated |= {id(child) for child in module}
        if isinstance(module, (QuantizedModule, nn.ModuleList)):
            continue
        known = id(module) in repeated or isinstance(module, _TORCHS)
        if known and sum(isinstance(m, QuantizedLinear) for m in module.modules()) > 1:
            yield module


def one_call_type(
    kind: Any, word: str = "", attention: AttentionType = AttentionType.FLOAT32
) -> type:
    """Return the subclass of `kind`, a type of blocks, that runs as one call.

    `word`: the activation in torch's feed-forward.
    """

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run_block(self, kind, args, kwargs)

    methods = {"forward": forward, **(feed_forward(kind, word) if word else {})}
    other = () if attention is AttentionType.FLOAT32 else (attention,)
    made: Any = make_dynamic_type(kind, methods, one_call_type, (kind, word, *other))
    if made is not kind:
        made._attention_type = attention
    return made  # type: ignore[no-any-return]
