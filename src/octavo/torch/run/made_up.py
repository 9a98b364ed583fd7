"""Inputs made up for a model that came without any, checked by running the model on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn
from torch.utils._pytree import tree_map

from octavo.core.feeds import Shapes, fitting_shapes
from octavo.errors import InputDataError, did_you_mean, listed, typed
from octavo.results.target import Feed
from octavo.torch.layers.registry import covering
from octavo.torch.run.calls import Caller
from octavo.torch.run.drawing import Draw, Table, draw_audio, draw_guesses, draw_image, draw_like
from octavo.torch.run.made_up_calls import call_plan

RUNS = 4
"""Inputs that are made, each with values of its own."""

_TRIES = 200  # of what inputs might be; those that do not fit fail early
_DEEP = 16  # the product of strides: of fewer pixels nothing would be left to look at
_SOUND = 16000  # samples that a model of sounds takes for one

GIVE = "example_inputs, the shape of each input (--shape name=1x128), or data (--data FILE)"
"""What a search is given in place of what is made up."""

Run = Callable[[Feed], Sequence[npt.NDArray[Any]]]
Plan = Mapping[str, Any]
"""By input: what draws it, or a value, or tuples, lists and dicts of those."""


def made_up(
    model: nn.Module,
    run: Run,
    caller: Caller,
    example: Mapping[str, Any],
    shapes: Shapes,
    seed: int,
    give: str = GIVE,
) -> list[Feed]:
    """Random inputs that the float `model` runs on: like `example`, of `shapes`, or guessed.

    Raises InputDataError for an unknown name, and where the model runs on none: it says to `give`
    something.
    """
    _refuse_unknown(model, caller, shapes)
    found = _Guesses(model, run, caller, example, seed)
    feeds = found.feeds(shapes, RUNS)
    if feeds:
        return feeds
    kind = type(model).__name__
    if fits := fitting_shapes(shapes, found.feed) if shapes and not example else "":
        given = ",".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())
        raise InputDataError(f"{kind} does not run on {given}: {fits}. Give --shape such sizes")
    problem = f"; the likeliest ones fail: {found.reason}" if found.reason else ""
    raise InputDataError(
        f"no inputs could be made up that {kind} runs on (forward's inputs: "
        f"{listed(caller.names) or 'none'}){problem}. Pass {give}"
    )


def _refuse_unknown(model: nn.Module, caller: Caller, shapes: Shapes) -> None:
    """Models of transformers take any name, and leave those alone that they do not know."""
    for name in shapes if hasattr(model, "main_input_name") else ():
        if caller.name(name) not in caller.names:
            raise InputDataError(
                f"shape of {name!r}: the model has no such input.{did_you_mean(name, caller.names)}"
            )


@dataclass
class _Guesses:
    """Inputs that are made up until the model runs on some; `reason`: why not on the likeliest."""

    model: nn.Module
    run: Run
    caller: Caller
    example: Mapping[str, Any]
    seed: int
    reason: str = ""

    def feed(self, shapes: Shapes) -> Feed | None:
        """Return inputs of these shapes that the model runs on; None where none are found."""
        return next(iter(self.feeds(shapes, 1, most=8)), None)

    def feeds(self, shapes: Shapes, count: int, most: int = _TRIES) -> list[Feed]:
        """Return `count` feeds of one plan, after at `most` so many plans.

        The list is empty where the model runs on none of them.
        """
        plans = _plans(self.model, self.caller, self.example, shapes)
        for plan in itertools.islice(plans, most):
            rng = np.random.default_rng(self.seed)
            feeds = [_drawn(plan, rng) for _ in range(count)]
            try:
                if all(_shows(self.run(feed)) for feed in feeds):
                    return feeds
                found = "it gives no finite numbers"
            except Exception as error:  # noqa: BLE001 - a wrong guess fails in many ways
                found = typed(error)
            self.reason = self.reason or found
        return []


def _plans(
    model: nn.Module,
    caller: Caller,
    example: Mapping[str, Any],
    shapes: Shapes,
) -> Iterator[Plan]:
    shapes = {caller.name(name): shape for name, shape in shapes.items()}
    tables = _tables(model) or [Table(2)]
    if example:
        given = {caller.name(name): value for name, value in example.items()}
        known = {name: _each_like(value, shapes.get(name)) for name, value in given.items()}
        shapes = {name: shape for name, shape in shapes.items() if name not in known}
        yield from _of_shapes(shapes, tables, known)
    elif shapes:
        yield from _of_shapes(shapes, tables, {})
    elif (plan := call_plan(model)) is not None:
        yield plan
    elif len(caller.required) <= 1 and caller.names:
        name = (*caller.required, *caller.names)[0]
        for shape in _shapes(model):
            signal = _signal(model, shape)
            if signal is not None:
                yield {name: signal}
            yield from _of_shapes({name: shape}, tables, {})


def _of_shapes(shapes: Shapes, tables: Sequence[Table], known: Plan) -> Iterator[Plan]:
    longest = max((shape[1] for shape in shapes.values() if len(shape) > 1), default=1)
    ways = [list(draw_guesses(name, shape, tables, longest)) for name, shape in shapes.items()]
    for some in itertools.product(*ways):
        yield {**known, **dict(zip(shapes, some, strict=True))}


def _each_like(value: Any, shape: Sequence[int] | None) -> Any:
    return tree_map(lambda leaf: draw_like(leaf, shape), value)


def _drawn(plan: Plan, rng: np.random.Generator) -> Feed:
    def draw(leaf: Any) -> Any:
        return leaf(rng) if callable(leaf) else leaf

    return {name: tree_map(draw, value) for name, value in plan.items()}


def _shows(outputs: Sequence[npt.NDArray[Any]]) -> bool:
    """Tell whether there is something to compare: finite numbers, if any are floating-point."""
    floating = [out for out in outputs if out.dtype.kind in "fc"]
    return not floating or any(np.isfinite(out).any() for out in floating)


def _tables(model: nn.Module) -> list[Table]:
    found = [m for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
    return [Table(table.num_embeddings, table.padding_idx) for table in found]


def _stride(model: nn.Module) -> int:
    """Return the product of all strides, or more: branches beside each other count both."""
    of = (nn.Conv1d, nn.Conv2d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d)
    steps = [m.stride for m in model.modules() if isinstance(m, of)]
    first = [step[0] if isinstance(step, tuple) else step for step in steps]
    return math.prod(step for step in first if isinstance(step, int) and step > 0)


def _signal(model: nn.Module, shape: Sequence[int]) -> Draw | None:
    """Build a draw of a picture or a sound, where the model's first convolution reads one."""
    first = next((m for m in model.modules() if isinstance(m, (nn.Conv1d, nn.Conv2d))), None)
    if isinstance(first, nn.Conv2d) and first.in_channels in (1, 3) and len(shape) == 4:
        return draw_image(shape)
    if isinstance(first, nn.Conv1d) and first.in_channels == 1 and shape[-1] >= _SOUND:
        return draw_audio(shape)
    return None


def _shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    """Shapes that the first layers of the model would take."""
    seen: set[tuple[int, ...]] = set()
    is_deep = _stride(model) >= _DEEP
    declared = ((covering(module), module) for module in model.modules())
    shapes = (d.inputs(m, is_deep) for d, m in declared if d is not None)
    for shape in itertools.chain.from_iterable(itertools.islice(filter(None, shapes), 8)):
        if shape not in seen:
            seen.add(shape)
            yield shape
