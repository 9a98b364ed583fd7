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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from octavo.core.attention_type import AttentionType
from octavo.core.guards import call_form
from octavo.torch.blocks.calls import BLOCK
from octavo.torch.blocks.guard_facts import Facts, State, state_of

_CHANGES = 8
"""How often a block may be another than in the call before, one time after the other."""
_FORMS = 16
"""Forms of calls that a block has plans for; with more, something in them varies from call to
call."""
_log = logging.getLogger("octavo.torch.blocks")


class _Making(threading.local):
    """What this thread knows of plans that it makes."""

    now = False
    """Whether it makes one: blocks inside run their own forwards meanwhile."""
    left: bytes | None = None
    """The form of the call that was left to a block's own forward just now."""


_making = _Making()
_tracing = threading.Lock()
"""Of who makes a plan: torch traces in one thread at a time, and counts on nobody else doing so.
Other threads run their own forwards meanwhile, which may be what the first one waits for."""


# docs/notes/torch.md: "A block runs as one call"
def run_block(layer: nn.Module, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a block's forward: as a program where that computes the same, else its type's own."""
    if torch.compiler.is_dynamo_compiling():
        from octavo.torch.blocks.plan import compiling

        return compiling.run(layer, kind, plans_of, args, kwargs)
    if not _making.now:
        form = call_form(args, kwargs)
        if form is not None:
            found = plans_of(layer, kind).plan(form, args, kwargs)
            if found is not None:
                plan, state = found
                return plan.run(form[1], form[2], state)
    left, _making.left = _making.left, None
    try:
        return kind.forward(layer, *args, **kwargs)
    except Exception:
        if left is not None:  # a call that cannot be made says nothing of others
            plans_of(layer, kind).ask_again(left)
        raise


def plans_of(layer: nn.Module, kind: Any) -> Block:
    """Return the `Block` that runs `layer`, a `kind`; it is made on first use."""
    found: Block | None = layer.__dict__.get(BLOCK)
    if found is None or found.layer is not layer:  # a shallow copy has what it was made from
        found = layer.__dict__[BLOCK] = Block(layer, kind)
    return found


class Block:
    """A block and its plans; copies and files of it hold the module alone."""

    def __init__(self, layer: nn.Module, kind: Any) -> None:
        self.layer, self.kind = layer, kind
        self.attention: AttentionType = getattr(
            type(layer), "_attention_type", AttentionType.FLOAT32
        )
        """What a recipe lets attention multiply in: the block's type says so."""
        self._changes = self._calls = 0
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"layer": self.layer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.layer, self.kind = None, None  # made anew by the first call
        self._changes = self._calls = 0

    def _forget(self) -> None:
        self._facts: Facts | None = None
        self._guards: Any = None
        self._held: Any = None
        self._plans: dict[bytes, list[Any]] = {}
        self.reasons: dict[bytes, str] = {}
        """Why calls of a form are left to the block's own forward."""
        self.disturbed = ""
        """Why all calls are, since the last one that ran as one call."""

    def plan(self, form: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a call's plan and what `fits` said; None where the block's own forward runs."""
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
        if torch.is_grad_enabled() and self._held is not None and self._held.trainable:
            return None
        return plan, state

    def _ready(self) -> bool:
        """Tell whether the block still is what its plans were made of."""
        state = State.CHANGED if self._guards is None else state_of(self._guards)
        if state is State.AS_IT_WAS:
            self._calls += 1
            self.disturbed = ""
            return True
        if state is State.CHANGED:
            self._changes = self._changes + 1 if self._calls < _CHANGES else 0
            self._calls = 0
            if self._changes > _CHANGES:  # a trace takes as long as some dozens of calls
                return self._rest("its parts or attributes change from call to call")
            self._forget()
            self._facts = Facts(self.layer)
        elif state is State.WRITTEN:
            self._held = None
            self._plans = {}
        assert self._facts is not None
        if self._facts.silence():
            self._watch()
            if state_of(self._guards) is State.AS_IT_WAS:
                return True
        return self._rest(self.disturbed or self._facts.disturbance())

    def _rest(self, reason: str) -> bool:
        """Leave the call to the block's own forward; the log says it once."""
        if not self.disturbed:
            self.disturbed = reason
            _log.info("a %s runs its own forward: %s", self.kind.__qualname__, reason)
        return False

    def _watch(self) -> None:
        assert self._facts is not None
        self._guards = self._facts.guards([] if self._held is None else self._held.sources)

    def _made(self, form: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a new plan for a call; where it can have none, note the reason and return None."""
        # Tracing takes as long to import as all the rest of Octavo.
        from octavo.torch.blocks import build

        key = form[0]
        plans = self._plans.setdefault(key, [])
        if len(self._plans) > _FORMS or len(plans) >= _FORMS:
            return self._leave(key, "its calls vary in more ways than are worth tracing")
        assert self._facts is not None
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.layer.parameters()):
            return None  # such a call decides nothing for others
        if self._facts.reason:
            return self._leave(key, self._facts.reason)
        if self._held is None:
            self._held = build.Held(self.layer)
        if not _tracing.acquire(blocking=False):
            return None
        try:
            with _no_plans_inside():
                structure = build.Structure(self.kind, self._facts.fingerprint, self.attention)
                plan = build.new_plan(self.layer, structure, self._held, form, args, kwargs)
        finally:
            _tracing.release()
        if isinstance(plan, str):
            return self._leave(key, plan)
        plans.insert(0, plan)
        self._watch()
        return plan

    def ask_again(self, key: bytes) -> None:
        """Forget why calls of a form were left to the block's own forward."""
        from octavo.torch.blocks import build

        build.forget(self.kind, self.reasons.pop(key, ""))

    def _leave(self, key: bytes, reason: str) -> Any:
        self.reasons[key] = reason
        _making.left = key
        _log.info("a %s runs its own forward: %s", self.kind.__qualname__, reason)
        return None


@contextmanager
def _no_plans_inside() -> Iterator[None]:
    _making.now = True
    try:
        yield
    finally:
        _making.now = False
