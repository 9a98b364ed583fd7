"""Blocks under torch.compile: a call of one becomes the operator `octavo::block`.

Dynamo runs `run` on what stands for values. Whether the call has a program is asked for with the
real block meanwhile, whose plan may be made then, as in the first call outside. The own forward is
traced too: from it dynamo learns what the compiled code depends on (attributes, training mode).
Nobody reads what it computes, which compilers behind AOTAutograd leave out.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.comptime import comptime
from torch._guards import tracing
from torch._subclasses.fake_tensor import FakeTensor

from octavo.core.guards import call_form
from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.plan.block_operator import block, describe
from octavo.torch.blocks.plan.plans import Plan

_log = logging.getLogger("octavo.torch.blocks")


class _Answer(threading.local):
    """What was found out last, on its way to the code that dynamo traces."""

    found: Any = None


_answer = _Answer()


def run(layer: Any, kind: Any, plans: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what the block's forward returns; `plans(layer, kind)` makes its `Block`."""
    tensors: list[Tensor] = []
    form = _form((args, kwargs), tensors)  # noqa: F841  # `_find` reads it
    comptime(_find)
    found = _found()
    own = kind.forward(layer, *args, **kwargs)
    if found is None:
        return own
    key, names, places, structure = found
    made = block(tensors, [_tensor(layer, name) for name in names], key)
    flat = []
    for where, place in places:
        flat.append(made[place] if where == 0 else tensors[place] if where == 1 else place)
    if structure == "leaf":
        return flat[0]
    return tuple(flat) if structure == "tuple" else flat


def _form(value: Any, tensors: list[Tensor]) -> Any:
    """Describe a call by tuples and constants, except its tensors, which go to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return ("tensor",)
    if value is None or isinstance(value, (bool, int, float, str)):
        return ("value", value)
    if type(value) is tuple or type(value) is list:
        word = "tuple" if type(value) is tuple else "list"
        return (word, tuple([_form(part, tensors) for part in value]))
    if type(value) is dict:
        return ("dict", tuple([(key, _form(part, tensors)) for key, part in value.items()]))
    return ("object",)


def _filled(form: Any, tensors: Any) -> Any:
    """Return the value that a form describes; its tensors are the next ones of `tensors`."""
    word, *rest = form
    if word == "tensor":
        return next(tensors)
    if word == "value":
        return rest[0]
    if word == "dict":
        return {key: _filled(part, tensors) for key, part in rest[0]}
    if word == "object":
        raise UnknownStep("an argument is an object")
    parts = [_filled(part, tensors) for part in rest[0]]
    return tuple(parts) if word == "tuple" else parts


def _tensor(layer: Any, name: str) -> Tensor:
    """Return a block's parameter or buffer by its dotted name."""
    found: Any = layer
    for part in name.split("."):
        found = getattr(found, part)
    return found


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _found() -> Any:
    return _answer.found


def _find(context: Any) -> None:
    """Leave in `_answer` what `run`, whose locals `context` has, does with the call."""
    _answer.found = None
    try:
        layer, kind, plans, form, tensors = (
            context.get_local(name) for name in ("layer", "kind", "plans", "form", "tensors")
        )
        behind = layer._i_will_not_complain_if_bc_breaks_VariableTracker()
        fakes = [proxy.node.meta["example_value"] for proxy in tensors.as_proxy()]
        _answer.found = _operator(
            behind.value,
            kind.as_python_constant(),
            plans.as_python_constant(),
            form.as_python_constant(),
            fakes,
        )
    except UnknownStep as reason:
        _log.info("a block is compiled as its own forward: %s", reason)
    except Exception as error:  # noqa: BLE001  # other versions of dynamo; the own forward works
        _log.info("a block is compiled as its own forward: %s: %s", type(error).__name__, error)


def _operator(layer: nn.Module, kind: Any, plans: Any, form: Any, fakes: list[Any]) -> Any:
    """Return the operator's arguments for a call, and where each value that it returns is from.

    A value is made by the operator, an argument, or a constant, with which one it is.
    """
    if getattr(torch.compiler, "is_exporting", bool)():
        raise UnknownStep("it is exported")
    with tracing(None):  # what runs here is no part of what dynamo traces
        args, kwargs = _filled(form, iter([_example(fake) for fake in fakes]))
        called = call_form(args, kwargs)
        plan = None if called is None else plans(layer, kind).plan(called, args, kwargs)
        if plan is None or type(plan[0]) is not Plan:
            raise UnknownStep("it has no program for the call")
        compiled = plan[0].compiled
        spec = compiled.structure
        leaves = all(child.is_leaf() for child in spec.children())
        structure = "leaf" if spec.is_leaf() else spec.type.__name__
        if not leaves or structure not in ("leaf", "tuple", "list"):
            raise UnknownStep("what it returns is nested")
        constants = [place for where, place in plan[0].places if where == 2]
        if not all(c is None or isinstance(c, (bool, int, float, str)) for c in constants):
            raise UnknownStep("it returns what is no plain value")
        found = describe(layer, compiled, kind.__name__)
    return found.key, tuple(found.weights), tuple(plan[0].places), structure


def _example(fake: Any) -> Tensor:
    """Return a real tensor with the sizes and dtype of a fake one.

    Raises UnknownStep where none can stand for it.
    """
    if type(fake) is not FakeTensor or fake.device.type != "cpu" or fake.layout != torch.strided:
        raise UnknownStep("an argument is no plain tensor in the processor's memory")
    if fake.requires_grad and torch.is_grad_enabled():
        raise UnknownStep("an argument asks for gradients")
    sizes = [n if isinstance(n, int) else n.node.hint for n in fake.shape]
    if not all(isinstance(n, int) for n in sizes):
        raise UnknownStep("a size is not known before it is computed")
    made = torch.zeros(sizes, dtype=fake.dtype)
    # In a trial, zeros are taken for what a mask adds to scores: [N, 1, queries, keys].
    is_mask = len(sizes) == 4 and sizes[1] == 1
    return made if is_mask or not made.is_floating_point() else made + 1
