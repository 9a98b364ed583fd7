"""Blocks of a model (layers of an encoder or decoder) that run as one call into C++.

A block's forward is traced once for each form of its calls, and becomes a program over its weights
(`octavo.core.program`). What is left out are the modules, views and small operators between the
kernels, which on short inputs take several times as long as those. A program runs in calls that it
knows throughout. Hooks, other code or other parts in the block, training mode, gradients, autocast,
tracing, sizes that the trace was not about, a step that no program has: each leaves the call to the
block's own forward. Before a program runs for the first time, both compute made-up inputs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from octavo.core.guards import call_form
from octavo.torch.blocks.calls import Arguments
from octavo.torch.blocks.compiled import Compiled, compile_call
from octavo.torch.blocks.facts import Facts, State, state_of
from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.plans import Held
from octavo.torch.blocks.traced_calls import AnyPlan, CachedCall, PlainCall
from octavo.torch.blocks.trial import agrees

BLOCK = "_octavo_block"
"""Where a block keeps what runs it: an attribute of its own `__dict__`."""

_FORMS = 16
"""Forms of calls that a block has plans for; with more, something in them varies from call to
call."""
_log = logging.getLogger("octavo.torch.blocks")
_compiled: WeakKeyDictionary[Any, dict[Any, list[Compiled | str]]] = WeakKeyDictionary()


class _Making(threading.local):
    """Whether this thread makes a plan: blocks inside run their own forwards meanwhile."""

    now = False


_making = _Making()


def run_block(layer: nn.Module, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The forward of a block: a program where that computes the same, else its type's own."""
    if not torch.compiler.is_dynamo_compiling() and not _making.now:
        block = layer.__dict__.get(BLOCK)
        if block is None or block.layer is not layer:  # a shallow copy has what it was made from
            block = layer.__dict__[BLOCK] = Block(layer, kind)
        form = call_form(args, kwargs)
        if form is not None:
            found = block.plan(form, args, kwargs)
            if found is not None:
                plan, state = found
                return plan.run(form[1], form[2], state)
    return kind.forward(layer, *args, **kwargs)


class Block:
    """A block and its plans; copies and files of it hold the module alone."""

    def __init__(self, layer: nn.Module, kind: Any) -> None:
        self.layer, self.kind = layer, kind
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"layer": self.layer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.layer, self.kind = None, None  # made anew by the first call

    def _forget(self) -> None:
        self._facts: Facts | None = None
        self._guards: Any = None
        self._held = Held(self.layer)
        self._plans: dict[bytes, list[AnyPlan]] = {}
        self.reasons: dict[bytes, str] = {}
        """Why calls of a form are left to the block's own forward."""

    def plan(self, form: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The plan for a call and what its `fits` said; None where the block's own forward runs."""
        if not self._ready():
            return None
        key, _, objects, sizes = form
        for plan in self._plans.get(key, ()):
            state = plan.fits(sizes, objects)
            if state is not None:
                break
        else:
            if key in self.reasons:
                return None
            plan = self._made(form, args, kwargs)
            state = None if plan is None else plan.fits(sizes, objects)
            if state is None:
                return None
        if self._held.trainable and torch.is_grad_enabled():
            return None
        return plan, state

    def _ready(self) -> bool:
        """Whether a call of the block still is a call of what its plans were made of."""
        state = State.CHANGED if self._guards is None else state_of(self._guards)
        if state is State.AS_IT_WAS:
            return True
        if state is State.CHANGED:
            self._forget()
            self._facts = Facts(self.layer)
        elif state is State.WRITTEN:
            self._held = Held(self.layer)
            self._plans = {}
        assert self._facts is not None
        if not self._facts.silence():
            return False
        self._guards = self._facts.guards(self._held.sources)
        return state_of(self._guards) is State.AS_IT_WAS

    def _made(self, form: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AnyPlan | None:
        key = form[0]
        plans = self._plans.setdefault(key, [])
        try:
            if len(self._plans) > _FORMS or len(plans) >= _FORMS:
                raise UnknownStep("its calls vary in more ways than are worth tracing")
            with _no_plans_inside():
                plan = self._new_plan(form, Arguments(args, kwargs))
        except UnknownStep as reason:
            return self._leave(key, str(reason))
        except Exception as error:  # the block's own forward may do better, and says so if not
            return self._leave(key, f"{type(error).__name__}: {error}")
        plans.insert(0, plan)
        assert self._facts is not None
        self._guards = self._facts.guards(self._held.sources)
        return plan

    def _leave(self, key: bytes, reason: str) -> None:
        self.reasons[key] = reason
        _log.info("a %s runs its own forward: %s", self.kind.__qualname__, reason)

    def _new_plan(self, form: Any, arguments: Arguments) -> AnyPlan:
        key, tensors, objects, sizes = form

        def forward(given: Sequence[Tensor], others: Sequence[Any]) -> Any:
            args, kwargs = arguments.fill(given, others)
            return self.kind.forward(self.layer, *args, **kwargs)

        if objects:
            call: PlainCall = CachedCall(forward, tensors, objects)
        else:
            call = PlainCall(forward, tensors)
        compiled = self._compiled(key, call, (*sizes, *call.more_sizes))
        plan = call.plan(compiled, self._held, self.kind.__name__)
        if not agrees(call.own, plan.flat, compiled.sizes, call.given):
            raise UnknownStep("its program computes something else")
        return plan

    def _compiled(self, key: bytes, call: PlainCall, sizes: tuple[int, ...]) -> Compiled:
        """The call as steps, as another block of the same structure has it already, or traced."""
        assert self._facts is not None
        place = (self._facts.fingerprint, key, call.usage_key)
        known = _compiled.setdefault(self.kind, {}).setdefault(place, [])
        for found in known:
            if isinstance(found, str):
                raise UnknownStep(found)
            if found.sizes.fit(sizes):
                return found
        try:
            compiled = compile_call(self.layer, call.traced, call.given)
            if not compiled.sizes.fit(sizes):
                raise UnknownStep("its sizes cannot be told")
        except UnknownStep as reason:
            known.append(str(reason))
            raise
        known.append(compiled)
        return compiled


@contextmanager
def _no_plans_inside() -> Iterator[None]:
    _making.now = True
    try:
        yield
    finally:
        _making.now = False
