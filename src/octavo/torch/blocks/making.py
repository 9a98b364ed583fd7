"""How a plan is made: a call traced, compiled for all blocks of a structure, bound, and tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from octavo.torch.blocks.calls import Arguments
from octavo.torch.blocks.compiled import Compiled, compile_call
from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.plans import Held
from octavo.torch.blocks.traced_calls import AnyPlan, CachedCall, PlainCall
from octavo.torch.blocks.trial import agrees

__all__ = ["Held", "new_plan"]

# By a block's class, then by its structure and the form of the call: what was compiled, for
# different sizes, or why that could not be.
_compiled: WeakKeyDictionary[Any, dict[Any, list[Compiled | str]]] = WeakKeyDictionary()


def new_plan(
    layer: nn.Module,
    kind: Any,
    fingerprint: Any,
    held: Held,
    form: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> AnyPlan | str:
    """The plan for calls such as this one of a block, a `kind`; or why there is none."""
    key, tensors, objects, sizes = form
    arguments = Arguments(args, kwargs)

    def forward(given: Sequence[Tensor], others: Sequence[Any]) -> Any:
        args, kwargs = arguments.fill(given, others)
        return kind.forward(layer, *args, **kwargs)

    try:
        if objects:
            call: PlainCall = CachedCall(forward, tensors, objects)
        else:
            call = PlainCall(forward, tensors)
        known = _compiled.setdefault(kind, {}).setdefault((fingerprint, key, call.usage_key), [])
        compiled = _compile(layer, known, call, (*sizes, *call.more_sizes))
        plan = call.plan(compiled, held, kind.__name__)
        if not agrees(call.own, plan.flat, compiled.sizes, call.given):
            raise UnknownStep("its program computes something else")
    except UnknownStep as reason:
        return str(reason)
    except Exception as error:  # noqa: BLE001  # the block's own forward says so, if it fails too
        return f"{type(error).__name__}: {error}"
    return plan


def _compile(
    layer: nn.Module, known: list[Compiled | str], call: PlainCall, sizes: tuple[int, ...]
) -> Compiled:
    """The call as steps: as another block of the same structure has it already, or traced."""
    for found in known:
        if isinstance(found, str):
            raise UnknownStep(found)
        if found.sizes.fit(sizes):
            return found
    try:
        compiled = compile_call(layer, call.traced, call.given)
        if not compiled.sizes.fit(sizes):
            raise UnknownStep("its sizes cannot be told")
    except UnknownStep as reason:
        known.append(str(reason))
        raise
    known.append(compiled)
    return compiled
