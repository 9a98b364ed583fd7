"""Where encoder layers of `transformers` hold their parts, family by family.

A layer counts as one of a family if its class and those of its blocks are transformers' own, as
they were imported, and its blocks have exactly the children of the family. Anything more (an
adapter, another kind of dropout, cross attention) makes it a layer that is not known here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from octavo.torch.stand_ins import type_behind

BERT = frozenset("Bert BertGeneration Camembert Electra Ernie RoCBert Roberta XLMRoberta".split())
"""Models whose layers are copies of BertLayer."""


class Parts(NamedTuple):
    """The parts of one layer; nothing is said of their types."""

    qkv: tuple[Any, Any, Any]
    out: Any
    up: Any
    down: Any
    activation: Any
    norms: tuple[Any, Any]
    head_size: Any
    scale: Any
    config: Any
    dropouts: tuple[Any, ...]
    attended: nn.Module
    """The block that attention's own hooks are put on."""
    facts: tuple[tuple[dict[str, Any], str, Any], ...]
    """Attributes that forwards read: a module's `__dict__`, a key, and the value or None."""
    methods: tuple[tuple[type, str, Any], ...]
    """Methods that forwards call: a class, a name and the function."""


def parts_of(layer: nn.Module) -> Parts | None:
    """The parts of a layer of a known family; None for any other."""
    kind = type_behind(type(layer))
    if not kind.__module__.startswith("transformers.models."):
        return None
    if kind.__name__.removesuffix("Layer") in BERT:
        find: Callable[[Any], Parts | None] = _bert
    elif kind.__name__ == "TransformerBlock" and ".distilbert." in kind.__module__:
        find = _distilbert
    else:
        return None
    try:
        return find(layer)
    except AttributeError:  # another release's
        return None


def _bert(layer: Any) -> Parts | None:
    attention, middle, last = layer.attention, layer.intermediate, layer.output
    inner, after = attention.self, attention.output
    activation = middle.intermediate_act_fn
    children = {
        layer: ("attention", "intermediate", "output"),
        attention: ("self", "output"),
        inner: ("query", "key", "value", "dropout"),
        after: ("dense", "LayerNorm", "dropout"),
        middle: ("dense", *_child("intermediate_act_fn", activation)),
        last: ("dense", "LayerNorm", "dropout"),
    }
    if not _as_imported(children) or layer.is_decoder or layer.chunk_size_feed_forward:
        return None
    return Parts(
        (inner.query, inner.key, inner.value),
        after.dense,
        middle.dense,
        last.dense,
        activation,
        (after.LayerNorm, last.LayerNorm),
        inner.attention_head_size,
        inner.scaling,
        inner.config,
        (inner.dropout, after.dropout, last.dropout),
        inner,
        (
            *_facts(inner, "attention_head_size", "scaling", "is_causal", "config"),
            *_facts(middle, *_attribute("intermediate_act_fn", activation)),
            *_facts(layer, "is_decoder", "chunk_size_feed_forward"),
            (vars(layer), "feed_forward_chunk", None),
        ),
        ((type(layer), "feed_forward_chunk", type(layer).feed_forward_chunk),),
    )


def _distilbert(layer: Any) -> Parts | None:
    attention, ffn = layer.attention, layer.ffn
    children = {
        layer: ("attention", "sa_layer_norm", "ffn", "output_layer_norm"),
        attention: ("q_lin", "k_lin", "v_lin", "out_lin", "dropout"),
        ffn: ("dropout", "lin1", "lin2", *_child("activation", ffn.activation)),
    }
    if not _as_imported(children) or ffn.chunk_size_feed_forward:
        return None
    return Parts(
        (attention.q_lin, attention.k_lin, attention.v_lin),
        attention.out_lin,
        ffn.lin1,
        ffn.lin2,
        ffn.activation,
        (layer.sa_layer_norm, layer.output_layer_norm),
        attention.attention_head_size,
        attention.scaling,
        attention.config,
        (attention.dropout, ffn.dropout),
        attention,
        (
            *_facts(attention, "attention_head_size", "scaling", "is_causal", "config"),
            *_facts(ffn, "chunk_size_feed_forward", *_attribute("activation", ffn.activation)),
            (vars(ffn), "ff_chunk", None),
        ),
        ((type(ffn), "ff_chunk", type(ffn).ff_chunk),),
    )


def _facts(module: nn.Module, *names: str) -> list[tuple[dict[str, Any], str, Any]]:
    return [(vars(module), name, getattr(module, name)) for name in names]


def _child(name: str, value: Any) -> Collection[str]:
    return (name,) if isinstance(value, nn.Module) else ()


def _attribute(name: str, value: Any) -> Collection[str]:
    return () if isinstance(value, nn.Module) else (name,)


def _as_imported(children: Mapping[Any, Collection[str]]) -> bool:
    """Whether the blocks have these children, and classes and methods of transformers' own."""
    module, home = type(next(iter(children))).__module__, _home()
    for block, names in children.items():
        kind = type_behind(type(block))
        if kind.__module__ != module or block._modules.keys() != set(names):
            return False
        for name in _METHODS:
            method = getattr(kind, name, None)
            # A patch of somebody's lies in another file.
            if method is not None and not method.__code__.co_filename.startswith(home):
                return False
    return True


_METHODS = ("forward", "feed_forward_chunk", "ff_chunk")


@cache
def _home() -> str:
    return f"{Path(sys.modules['transformers'].__file__ or '').parent}{os.sep}"
