"""Where encoder layers of `transformers` hold their parts: a table, a family an entry.

A layer counts as one of a family if its class and those of its blocks are transformers' own, as
they were imported, and its blocks have exactly the children of the family. Anything more (an
adapter, another kind of dropout, cross attention) makes it a layer that is not known here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from octavo.torch.blocks.dynamic_type import type_behind
from octavo.torch.blocks.encoder_steps import POST_NORM, Step

BERT_LIKE = frozenset(
    "Bert BertGeneration Camembert Electra Ernie RoCBert Roberta XLMRoberta".split()
)
"""Models whose layers are copies of BertLayer."""


@dataclass(frozen=True)
class Family:
    """Layers of one structure; parts and blocks have their dotted names below the layer ("": it).

    `is_layer` tells by a class. `blocks` has the children of each block; an activation counts where
    it is a module. `attention` is the block whose attributes say how attention is computed, and on
    which its own hooks are put. `off` are attributes that have to be false, or 0. `chunk` is the
    method that the feed-forward block goes through.
    """

    is_layer: Callable[[type], bool]
    blocks: Mapping[str, Collection[str]]
    qkv: tuple[str, str, str]
    out: str
    up: str
    activation: str
    down: str
    norms: tuple[str, str]
    attention: str
    off: tuple[str, ...]
    chunk: str
    steps: tuple[Step, ...] = POST_NORM


FAMILIES = (
    Family(
        is_layer=lambda kind: kind.__name__.removesuffix("Layer") in BERT_LIKE,
        blocks={
            "": ("attention", "intermediate", "output"),
            "attention": ("self", "output"),
            "attention.self": ("query", "key", "value", "dropout"),
            "attention.output": ("dense", "LayerNorm", "dropout"),
            "intermediate": ("dense", "intermediate_act_fn"),
            "output": ("dense", "LayerNorm", "dropout"),
        },
        qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
        out="attention.output.dense",
        up="intermediate.dense",
        activation="intermediate.intermediate_act_fn",
        down="output.dense",
        norms=("attention.output.LayerNorm", "output.LayerNorm"),
        attention="attention.self",
        off=("is_decoder", "chunk_size_feed_forward"),
        chunk="feed_forward_chunk",
    ),
    Family(
        is_layer=lambda kind: (
            kind.__name__ == "TransformerBlock" and ".distilbert." in kind.__module__
        ),
        blocks={
            "": ("attention", "sa_layer_norm", "ffn", "output_layer_norm"),
            "attention": ("q_lin", "k_lin", "v_lin", "out_lin", "dropout"),
            "ffn": ("dropout", "lin1", "lin2", "activation"),
        },
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        out="attention.out_lin",
        up="ffn.lin1",
        activation="ffn.activation",
        down="ffn.lin2",
        norms=("sa_layer_norm", "output_layer_norm"),
        attention="attention",
        off=("ffn.chunk_size_feed_forward",),
        chunk="ffn.ff_chunk",
    ),
)


class LayerParts(NamedTuple):
    """The parts of one layer; nothing is said of their types."""

    qkv: tuple[Any, Any, Any]
    out: Any
    up: Any
    down: Any
    activation: Any
    norms: tuple[Any, Any]
    dropouts: tuple[Any, ...]
    attention: Any
    """The block that attention's own hooks are put on."""
    head_size: Any
    scale: Any
    config: Any
    facts: tuple[tuple[dict[str, Any], str, Any], ...]
    """Attributes that forwards read: a module's `__dict__`, a key, and the value or None."""
    method: tuple[type, str, Any]
    """The method that forward calls: a class, a name and the function."""
    steps: tuple[Step, ...]


def parts_of(layer: nn.Module) -> LayerParts | None:
    """The parts of a layer of a known family; None for any other."""
    kind = type_behind(type(layer))
    if not kind.__module__.startswith("transformers.models."):
        return None
    family = next((f for f in FAMILIES if f.is_layer(kind)), None)
    try:
        return None if family is None else _parts(family, layer)
    except AttributeError:  # another release's
        return None


def _parts(family: Family, layer: nn.Module) -> LayerParts | None:
    activation = _found(layer, family.activation)
    own = family.activation.rpartition(".")[2]
    blocks = {
        name: [c for c in children if c != own or isinstance(activation, nn.Module)]
        for name, children in family.blocks.items()
    }
    if not _as_imported(family, layer, blocks) or any(_found(layer, n) for n in family.off):
        return None
    attention: Any = _found(layer, family.attention)
    owner, chunk = _owner(layer, family.chunk)
    read = [*family.off, *([] if isinstance(activation, nn.Module) else [family.activation])]
    facts = [
        (vars(holder), key, getattr(holder, key))
        for holder, key in (_owner(layer, name) for name in read)
    ]
    facts += [
        (vars(attention), key, getattr(attention, key))
        for key in ("attention_head_size", "scaling", "is_causal", "config")
    ]
    dropouts = [
        f"{name}.dropout".removeprefix(".")
        for name, children in blocks.items()
        if "dropout" in children
    ]
    q, k, v = (_found(layer, name) for name in family.qkv)
    first, last = (_found(layer, name) for name in family.norms)
    return LayerParts(
        qkv=(q, k, v),
        out=_found(layer, family.out),
        up=_found(layer, family.up),
        down=_found(layer, family.down),
        activation=activation,
        norms=(first, last),
        dropouts=tuple(_found(layer, name) for name in dropouts),
        attention=attention,
        head_size=attention.attention_head_size,
        scale=attention.scaling,
        config=attention.config,
        facts=(*facts, (vars(owner), chunk, None)),
        method=(type(owner), chunk, getattr(type(owner), chunk)),
        steps=family.steps,
    )


def _found(layer: nn.Module, name: str) -> Any:
    return attrgetter(name)(layer) if name else layer


def _owner(layer: nn.Module, name: str) -> tuple[Any, str]:
    """What holds the attribute of that dotted name, and how it is called there."""
    block, _, key = name.rpartition(".")
    return _found(layer, block), key


def _as_imported(family: Family, layer: nn.Module, blocks: Mapping[str, Collection[str]]) -> bool:
    """Whether the blocks have these children, and classes and methods of transformers' own."""
    module, home = type(layer).__module__, _home()
    methods = ("forward", family.chunk.rpartition(".")[2])
    for name, children in blocks.items():
        block = _found(layer, name)
        kind = type_behind(type(block))
        if kind.__module__ != module or block._modules.keys() != set(children):
            return False
        for method in (getattr(kind, m, None) for m in methods):
            # A patch of somebody's lies in another file.
            if method is not None and not method.__code__.co_filename.startswith(home):
                return False
    return True


@cache
def _home() -> str:
    return f"{Path(sys.modules['transformers'].__file__ or '').parent}{os.sep}"
