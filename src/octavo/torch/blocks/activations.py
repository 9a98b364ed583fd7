"""Activations that follow a linear layer are computed in its pass: one walk over the outputs.

    dense   QuantizedLinear                      act(dense(x))  ->  dense.activated(x, "gelu")
    act     GELU

No layer changes its meaning: it is the parent that calls the two as one, where its forward is known
for certain to be a chain of its children: nn.Sequential, the feed-forward block of torch.nn's
transformer layers, and a forward of one argument without any branch that names nothing but
children. They are looked up in each call, so one that is replaced or gets a hook is called by
itself from there on. The parent's type is one that stands for its own (`dynamic_type`), so that
copies have forwards of their own, and a class that is patched later is called as it is then.
"""

from __future__ import annotations

import dis
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

from octavo.torch.dynamic_type import (
    has_dynamic_type,
    make_dynamic_type,
    set_type,
    type_behind,
)
from octavo.torch.layers.linear import QuantizedLinear

_BY_TYPE = {
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
}
_TRANSFORMERS = {
    "GELUActivation": "gelu",
    "GELUTanh": "gelu_tanh",
    "NewGELUActivation": "gelu_tanh",
    "FastGELUActivation": "gelu_tanh",
    "SiLUActivation": "silu",
}
_FUNCTIONS = {functional.relu: "relu", functional.gelu: "gelu"}
_BLOCKS = {nn.TransformerEncoderLayer: "dropout2", nn.TransformerDecoderLayer: "dropout3"}

# Classes may be patched later: what they do from there on is not what is computed in the pass.
_CALL = nn.Module.__call__
_LAYER_CALL, _LAYER_FORWARD = QuantizedLinear.__call__, QuantizedLinear.forward
_FORWARDS: dict[Any, Any] = {kind: kind.forward for kind in (*_BY_TYPE, nn.GELU)}

# By a class's forward and the names of the children: many layers of a model are of one class.
_CHAINS: WeakKeyDictionary[Any, dict[tuple[str, ...], tuple[str, ...]]] = WeakKeyDictionary()


def fuse_activations(model: nn.Module) -> list[str]:
    """Let parents call layer and activation as one, in place; return the layers' names."""
    fused = []
    for name, parent in list(model.named_modules()):
        pairs = fuse(parent)
        fused += [f"{name}.{linear}".removeprefix(".") for linear in pairs]
    return fused


def fuse(parent: nn.Module) -> list[str]:
    """Fuse children of `parent` with their activations; return the names of those children.

    What changes is the parent's type (`dynamic_type`).
    """
    if has_dynamic_type(parent) and type(parent)._made_by[0] in (chain_type, feed_forward_type):
        set_type(parent, type_behind(type(parent)))  # other layers in it may be quantized since
    kind = type(parent)
    if has_dynamic_type(parent) or "forward" in parent.__dict__:
        return []
    if kind in _BLOCKS:
        word = fusable(parent.linear1, parent.activation)
        return ["linear1"] if word and set_type(parent, feed_forward_type(kind, word)) else []
    if not any(isinstance(child, QuantizedLinear) for child in parent.children()):
        return []
    chain = None if kind is nn.Sequential else _chain(parent)
    children = parent._modules
    modules = [children[name] for name in (children if chain is None else chain)]
    words = (*(fusable(*two) for two in itertools.pairwise(modules)), "")
    if not any(words) or not set_type(parent, chain_type(kind, chain, words)):
        return []
    names = list(children) if chain is None else chain
    return [name for name, word in zip(names, words, strict=True) if word]


def chain_type(kind: Any, chain: tuple[str, ...] | None, words: tuple[str, ...]) -> type:
    """Return the subclass of `kind` that calls the children `chain` (None: all, in order) fused.

    `words` are the activations that are computed in the pass of each; "" for none. `kind` itself
    where its forward does something else, as after unpickling with other sources.
    """
    own = kind.forward
    known = kind is nn.Sequential if chain is None else _chain_of(own, chain) == chain
    if not known:
        return kind  # type: ignore[no-any-return]

    def forward(self: Any, x: Any) -> Any:
        if kind.forward is not own or not isinstance(x, Tensor):  # patched; traced by torch.fx
            return kind.forward(self, x)
        return run_chain(self, chain, words, x)

    # Callers may give the input by its name, or leave it out.
    forward.__code__ = forward.__code__.replace(co_varnames=own.__code__.co_varnames[:2])
    forward.__defaults__ = own.__defaults__
    forward.__wrapped__ = own  # type: ignore[attr-defined]  # what torch.jit.script compiles
    return make_dynamic_type(kind, {"forward": forward}, chain_type, (kind, chain, words))


def feed_forward_type(kind: Any, word: str) -> type:
    """Return the subclass of a torch.nn transformer layer that fuses the feed-forward block."""
    return make_dynamic_type(kind, feed_forward(kind, word), feed_forward_type, (kind, word))


def feed_forward(kind: Any, word: str) -> dict[str, Callable[..., Any]]:
    """Return the `_ff_block` that replaces that of `kind`, with the activation `word` fused."""
    own = kind._ff_block

    def _ff_block(self: Any, x: Tensor) -> Any:
        if kind._ff_block is not own or fusable(self.linear1, self.activation) != word:
            return kind._ff_block(self, x)
        return run_feed_forward(self, kind, word, x)

    return {"_ff_block": _ff_block}


def run_chain(
    parent: nn.Module, chain: Sequence[str] | None, words: Sequence[str], x: Tensor
) -> Any:
    """Call the children `chain` (None: all) of `parent` in order, fused with their activations."""
    children: Any = parent._modules
    if chain is None:
        modules = list(children.values())
    else:  # one that is gone: as Python says it
        modules = [children[n] if n in children else getattr(parent, n) for n in chain]
    if len(modules) != len(words):  # other children than those that were fused
        words = [""] * len(modules)
    at = 0
    y: Any = x
    while at < len(modules):
        word = words[at]
        if word and fusable(modules[at], modules[at + 1]) == word:
            y = modules[at].activated(y, word)
            at += 2
        else:
            y = modules[at](y)
            at += 1
    return y


def run_feed_forward(layer: Any, kind: type, word: str, x: Tensor) -> Any:
    """Run the fused feed-forward block of `kind`, one of torch.nn's transformer layers."""
    x = layer.linear2(layer.dropout(layer.linear1.activated(x, word)))
    return getattr(layer, _BLOCKS[kind])(x)


def fusable(linear: Any, activation: Any) -> str:
    """Return the kernels' name of `activation` if `linear` can compute it in its pass, else ""."""
    if not isinstance(linear, QuantizedLinear):
        return ""
    word = activation_name(activation)
    if not word or _patched(linear, activation):
        return ""
    return "" if _watched(linear) or _watched(activation) else word


def _patched(linear: Any, activation: Any) -> bool:
    """Tell whether either's class, or nn.Module, was patched since it was first seen."""
    layer, kind = type(linear), type(activation)
    if nn.Module.__call__ is not _CALL or layer.__call__ is not _LAYER_CALL:
        return True
    if layer.forward is not _LAYER_FORWARD:
        return True
    if not isinstance(activation, nn.Module):
        return False
    if kind not in _FORWARDS:
        _FORWARDS[kind] = kind.forward
    return kind.forward is not _FORWARDS[kind]


def activation_name(activation: Any) -> str:
    """Return the kernels' name of a module or function, "" where the kernels lack it."""
    kind = type(activation)
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if kind is nn.GELU:
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    if kind.__module__ == "transformers.activations":
        return _TRANSFORMERS.get(kind.__name__, "")
    return "" if isinstance(activation, nn.Module) else _FUNCTIONS.get(activation, "")


def _watched(module: Any) -> bool:
    """Tell whether a module's call does more than its type's forward: hooks, another forward."""
    if not isinstance(module, nn.Module):
        return False
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in module.__dict__
        or torch_module._has_any_global_hook()
    )


# docs/notes/torch.md: "A parent calls two layers as one"
def _chain(parent: nn.Module) -> tuple[str, ...]:
    """Return the names of children that forward calls one after the other; () if it does more."""
    return _chain_of(type(parent).forward, tuple(parent._modules))


def _chain_of(forward: Any, children: tuple[str, ...]) -> tuple[str, ...]:
    try:
        known = _CHAINS.setdefault(forward, {})
    except TypeError:  # no function: nothing can be known of it
        return ()
    if children not in known:
        known[children] = _called_in_turn(forward, children)
    return known[children]


def _called_in_turn(forward: Any, children: tuple[str, ...]) -> tuple[str, ...]:
    code = getattr(forward, "__code__", None)
    if code is None or code.co_freevars or len(inspect.signature(forward).parameters) != 2:
        return ()
    jumps = {*dis.hasjrel, *dis.hasjabs}
    if not set(code.co_names) <= {*children} or any(
        instruction.opcode in jumps for instruction in dis.get_instructions(code)
    ):
        return ()
    record = _Record()
    try:
        result = forward(_Calls(record), record.last)
    except (TypeError, AttributeError):
        return ()  # it does with a value what only a tensor can do
    return tuple(record.names) if record.straight and result is record.last else ()


class _Record:
    """The calls of children, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.last = object()
        self.straight = True
        """Whether each child got what the one before it returned, and nothing else."""


class _Calls:
    """Stands for a module whose forward names nothing but children, and records their calls.

    Values are bare objects: whatever is done with one but handing it to a child fails. A child may
    have any name, so that nothing here has a plain one.
    """

    def __init__(self, record: _Record) -> None:
        self.__record = record

    def __getattr__(self, name: str) -> Callable[..., object]:
        record = self.__record

        def call(*args: object, **kwargs: object) -> object:
            record.straight &= len(args) == 1 and args[0] is record.last and not kwargs
            record.names.append(name)
            record.last = object()
            return record.last

        return call
