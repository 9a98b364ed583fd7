"""Activations that follow a linear layer are computed in its pass: one walk over the outputs.

    dense   QuantizedLinear                      act(dense(x))  ->  dense.activated(x, "gelu")
    act     GELU

No layer changes its meaning: it is the parent that calls the two as one, where its forward is known
for certain to be a chain of its children: nn.Sequential, the feed-forward block of torch.nn's
transformer layers, and a forward of one argument without any branch that names nothing but
children. They are looked up in each call, so one that is replaced or gets a hook is called by
itself from there on.
"""

from __future__ import annotations

import dis
import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

from octavo.torch.modules.linear import QuantizedLinear

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

FUSED, FUSED_BLOCK = "forward", "_ff_block"

# By a class's forward and the names of the children: many layers of a model are of one class.
_CHAINS: WeakKeyDictionary[Any, dict[tuple[str, ...], tuple[str, ...]]] = WeakKeyDictionary()


def fuse_activations(model: nn.Module) -> list[str]:
    """Lets parents call layer and activation as one, in place; returns the layers' names."""
    fused = []
    for name, parent in list(model.named_modules()):
        pairs = fuse(parent)
        fused += [f"{name}.{linear}".removeprefix(".") for linear in pairs]
    return fused


def fuse(parent: nn.Module) -> list[str]:
    """The names of the children that are now called with their activation.

    What changes is one entry of the parent's own `__dict__`, `FUSED` or `FUSED_BLOCK`.
    """
    if "forward" in parent.__dict__:
        return []
    if type(parent) in _BLOCKS:
        if not fusable(parent.linear1, parent.activation):
            return []
        parent.__dict__[FUSED_BLOCK] = partial(run_block, parent)
        return ["linear1"]
    if not any(isinstance(child, QuantizedLinear) for child in parent.children()):
        return []
    plain = type(parent) is nn.Sequential
    chain = list(parent._modules) if plain else _chain(parent)
    found = [
        before
        for before, after in itertools.pairwise(chain)
        if fusable(parent._modules[before], parent._modules[after])
    ]
    if found:
        fused = partial(run_chain, parent, None if plain else tuple(chain))
        fused.__dict__["__signature__"] = inspect.signature(parent.forward)  # torch.export reads it
        parent.__dict__[FUSED] = fused
    return found


def run_chain(
    parent: nn.Module, chain: Sequence[str] | None, *args: Tensor, **kwargs: Tensor
) -> Any:
    """The forward of a parent whose children (None: all, in order) are called one by one."""
    if kwargs or len(args) != 1:
        forward = type(parent).forward
        if args or list(kwargs) != [forward.__code__.co_varnames[1]]:
            return forward(parent, *args, **kwargs)  # which says what is wrong
        args = tuple(kwargs.values())
    children: Any = parent._modules
    modules = list(children.values()) if chain is None else [children[name] for name in chain]
    at, x = 0, args[0]
    while at < len(modules):
        word = fusable(modules[at], modules[at + 1]) if at + 1 < len(modules) else ""
        x = modules[at].activated(x, word) if word else modules[at](x)
        at += 2 if word else 1
    return x


def run_block(layer: Any, x: Tensor) -> Tensor:
    """The feed-forward block of torch.nn's transformer layers."""
    word = fusable(layer.linear1, layer.activation)
    if not word:
        plain: Tensor = type(layer)._ff_block(layer, x)
        return plain
    x = layer.linear2(layer.dropout(layer.linear1.activated(x, word)))
    last: Tensor = getattr(layer, _BLOCKS[type(layer)])(x)
    return last


def fusable(linear: Any, activation: Any) -> str:
    """The kernels' name of `activation`, if `linear` can compute it in its pass; else ""."""
    if not isinstance(linear, QuantizedLinear):
        return ""
    word = activation_word(activation)
    return word if word and not (_watched(linear) or _watched(activation)) else ""


def activation_word(activation: Any) -> str:
    """The kernels' name of what a module or function computes; "" where they do not have it."""
    kind = type(activation)
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if kind is nn.GELU:
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    if kind.__module__ == "transformers.activations":
        return _TRANSFORMERS.get(kind.__name__, "")
    return "" if isinstance(activation, nn.Module) else _FUNCTIONS.get(activation, "")


def _watched(module: Any) -> bool:
    """Whether a call of the module does more than its type's forward: hooks, a patched forward."""
    if not isinstance(module, nn.Module):
        return False
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in module.__dict__
        or torch_module._has_any_global_hook()
    )


def _chain(parent: nn.Module) -> Sequence[str]:
    """Names of the children that forward calls one after the other; () where it does more."""
    forward = type(parent).forward
    children = tuple(parent._modules)
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
    calls = _Calls()
    first = calls.last
    try:
        result = forward(calls, first)
    except (TypeError, AttributeError):
        return ()  # it does with a value what only a tensor can do
    return tuple(calls.names) if calls.straight and result is calls.last else ()


class _Calls:
    """Stands for a module whose forward names nothing but children, and records their calls.

    Values are bare objects: whatever is done with one but handing it to a child fails.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.last = object()
        self.straight = True
        """Whether each child got what the one before it returned, and nothing else."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            self.straight &= len(args) == 1 and args[0] is self.last and not kwargs
            self.names.append(name)
            self.last = object()
            return self.last

        return call
