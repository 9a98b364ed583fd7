"""Activations that follow a linear layer join it: one pass over the outputs in place of two.

    parent                                    parent
      dense        QuantizedLinear              dense        QuantizedLinear(activation="gelu")
      act          GELU                   ->    act          FusedActivation("gelu")
      forward: act(dense(x))                    forward: the same, act returns what it gets

Which layer an activation follows is in the parent's forward, so only parents are looked at whose
forward can be read for certain: nn.Sequential, and a forward of one argument without any branch,
loop or condition, followed by torch.fx.
"""

from __future__ import annotations

import dis
import inspect
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import fx, nn
from torch.nn import functional

from octavo.torch.modules.fused_activation import FusedActivation
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
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def fuse_activations(model: nn.Module) -> list[str]:
    """Fuses where it can, in place. Returns the names of the layers that now apply one."""
    names = {module: name for name, module in model.named_modules()}
    places = Counter(child for module in names for child in module._modules.values())
    fused = []
    for parent in list(names):
        for linear_name, activation_name in _pairs(parent):
            linear = parent._modules[linear_name]
            activation = getattr(parent, activation_name)
            word = activation_word(activation)
            if (
                not isinstance(linear, QuantizedLinear)
                or places[linear] > 1
                or not word
                or linear.activation != "none"
                or _hooked(linear)
                or _hooked(activation)
            ):
                continue
            linear.set_activation(word)
            setattr(parent, activation_name, FusedActivation(word))
            fused.append(names[linear])
    return fused


def activation_word(module: Any) -> str:
    """The kernels' name of what `module` (or function) computes; "" where they do not have it."""
    if module is functional.relu:
        return "relu"
    if module is functional.gelu:
        return "gelu"
    kind = type(module)
    if isinstance(module, nn.GELU):
        return "gelu" if module.approximate == "none" else "gelu_tanh"
    if kind.__module__ == "transformers.activations":
        return _TRANSFORMERS.get(kind.__name__, "")
    return _BY_TYPE.get(kind, "")


def _pairs(parent: nn.Module) -> Iterator[tuple[str, str]]:
    """Names of children (a, b) where b is called with a's output, and nothing else is."""
    if type(parent) in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
        yield "linear1", "activation"  # linear2(dropout(activation(linear1(x))))
        return
    children = {name: child for name, child in parent._modules.items() if child is not None}
    if not any(activation_word(child) for child in children.values()) or not any(
        isinstance(child, QuantizedLinear) for child in children.values()
    ):
        return
    if type(parent) is nn.Sequential:
        names = list(children)
        yield from itertools.pairwise(names)
    elif _is_straight(parent):
        yield from _traced_pairs(parent)


def _is_straight(parent: nn.Module) -> bool:
    """Whether forward is (self, x) and runs the same instructions whatever x is."""
    if "forward" in parent.__dict__:
        return False
    forward = type(parent).forward
    code = getattr(forward, "__code__", None)
    if code is None or len(inspect.signature(forward).parameters) != 2:
        return False
    jumps = {*dis.hasjrel, *dis.hasjabs}
    return not any(instruction.opcode in jumps for instruction in dis.get_instructions(code))


class _Children(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _traced_pairs(parent: nn.Module) -> Iterator[tuple[str, str]]:
    try:
        graph = _Children().trace(parent)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return  # what forward does with x, fx cannot follow: nothing is changed
    calls = [node for node in graph.nodes if node.op == "call_module"]
    times = Counter(node.target for node in calls)
    for node in calls:
        (before, *others) = node.args or (None,)
        if (
            isinstance(before, fx.Node)
            and before.op == "call_module"
            and not others
            and not node.kwargs
            and len(before.users) == 1
            and times[node.target] == times[before.target] == 1
            and "." not in f"{node.target}{before.target}"
        ):
            yield str(before.target), str(node.target)


def _hooked(module: Any) -> bool:
    return any(getattr(module, name, None) for name in _HOOKS)
