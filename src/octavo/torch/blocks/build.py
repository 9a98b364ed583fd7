"""How a plan is made: a call traced, compiled for all blocks of a structure, bound, and tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from octavo.core.attention_type import AttentionType
from octavo.torch.blocks.calls import BLOCK, Arguments
from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.plan.compiled import Compiled, compile_call
from octavo.torch.blocks.plan.plans import Held
from octavo.torch.blocks.self_check import agrees
from octavo.torch.blocks.trace.layer_index_probe import places_of, watched
from octavo.torch.blocks.traced_calls import AnyPlan, CachedCall, PlainCall

__all__ = ["Held", "Structure", "forget", "new_plan"]

# By a block's class, then by its structure and the form of the call: what was compiled, for
# different sizes, or why that could not be.
_compiled: WeakKeyDictionary[Any, dict[Any, list[Compiled | str]]] = WeakKeyDictionary()


class Structure(NamedTuple):
    """What blocks have to have in common for one to use what was compiled for another."""

    kind: Any
    """Their type."""
    fingerprint: Any
    attention: AttentionType
    """What attention in them may multiply in."""


def new_plan(
    layer: nn.Module,
    structure: Structure,
    held: Held,
    form: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> AnyPlan | str:
    """Make the plan for calls of a block such as this one, or say why there is none."""
    kind, *rest = structure
    key, tensors, objects, sizes = form
    arguments = Arguments(args, kwargs)

    def forward(given: Sequence[Tensor], others: Sequence[Any]) -> Any:
        args, kwargs = arguments.fill(given, others)
        return kind.forward(layer, *args, **kwargs)

    before = _attributes(layer)
    try:
        if objects:
            call: PlainCall = CachedCall(forward, tensors, objects)
        else:
            call = PlainCall(forward, tensors)
        place = places_of(layer)
        known = _compiled.setdefault(kind, {}).setdefault((*rest, key, call.usage_key), [])
        sizes = (*sizes, *call.more_sizes)
        compiled = _compile(layer, known, call, sizes, place, structure.attention)
        if _restored(before):
            known[:] = ["its forward writes attributes"]  # for all blocks of the structure
            raise UnknownStep(str(known[0]))
        plan = call.plan(compiled, held, kind.__name__)
        if not agrees(call.own, plan.flat, compiled.sizes, call.given):
            raise UnknownStep("its program computes something else")
    except UnknownStep as reason:
        _restored(before)
        return str(reason)
    except Exception as error:  # noqa: BLE001  # the block's own forward says so, if it fails too
        _restored(before)
        return f"{type(error).__name__}: {error}"
    return plan


def forget(kind: Any, reason: str) -> None:
    """Let blocks of `kind` be traced again where `reason` is why none was compiled."""
    for known in list(_compiled.get(kind, {}).values()):
        known[:] = [found for found in known if found != reason]


def _compile(
    layer: nn.Module,
    known: list[Compiled | str],
    call: PlainCall,
    sizes: tuple[int, ...],
    place: dict[str, int],
    attention: AttentionType,
) -> Compiled:
    """Return the call as steps, from another block of the same structure or from a new trace."""
    for found in known:
        if isinstance(found, str):
            raise UnknownStep(found)
        if found.sizes.fit(sizes) and found.place in (None, place):
            return found
    try:
        with watched(layer) as read:
            compiled = compile_call(layer, call.traced, call.given, attention)
        compiled.place = place if read else None
        if not compiled.sizes.fit(sizes):
            raise UnknownStep("its sizes cannot be told")
    except UnknownStep as reason:
        known.append(str(reason))
        raise
    known.append(compiled)
    return compiled


_Attributes = list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]


def _attributes(layer: nn.Module) -> _Attributes:
    """Return each module's `__dict__`, a copy of it, and the lengths of its collections."""
    return [
        (own, dict(own), {k: len(v) for k, v in own.items() if type(v) in (list, dict, set)})
        for own in (module.__dict__ for module in layer.modules())
    ]


def _restored(before: _Attributes) -> bool:
    """Restore attributes to what they were `before`; tell whether any was written since."""
    written = False
    for own, held, counts in before:
        changed = {k for k in own.keys() | held.keys() if own.get(k) is not held.get(k)}
        changed -= {"_bound", BLOCK}
        written |= bool(changed) or any(
            len(held[k]) != n for k, n in counts.items() if k != "_bound"
        )
        for key in changed:
            if key in held:
                own[key] = held[key]
            else:
                del own[key]
    return written
