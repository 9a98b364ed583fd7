"""What quantizing some layers does to a model's outputs, for many sets of layers.

    x -> layer -> y -> ...     becomes     x -+-> layer ------+
                                              +-> its twin ---+-> Where(switch) -> y -> ...

The layers are then quantized by a conversion like any other, their twins stay float, and one model
answers for each set of layers what quantizing them does. A switch is a boolean input of the graph,
so that nothing can be folded; layers in subgraphs read it from outside.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.metrics import Tally
from octavo.errors import OctavoError
from octavo.onnx.read.map_types import as_array
from octavo.onnx.run.sessions import Scratch, open_session
from octavo.onnx.tuning.writing import Writer
from octavo.recipe import Recipe
from octavo.results.target import Feed

Runs = Sequence[Sequence[Any]]
"""The outputs of each run, in the model's order."""

SAME = 1e-6
"""The most that the switched model, all switches off, may differ from the float one: rounding."""


class Sensitivity:
    """Errors under one recipe; one model with switches answers for all sets.

    It holds every weight twice, float and quantized. Where it cannot be made, or does not run, or
    without `switches` (for a few sets it does not pay), each set is converted for itself.
    """

    def __init__(
        self, writer: Writer, recipe: Recipe, threads: int | None, *, switches: bool = True
    ) -> None:
        self.recipe = recipe
        self._writer, self._threads = writer, threads
        self._switched = self._open_switched() if switches else None

    def errors(
        self, model: Any, sets: Sequence[Collection[str]], feeds: Sequence[Feed]
    ) -> list[float]:
        """Return one error for each set of layers; `model` is a session on the float model.

        Layers that stay float in any case change nothing.
        """
        expected = _runs(model, feeds)
        switched = self._switched
        off = None if switched is None else switched.outputs((), feeds)
        if off is None or not worst_error(expected, off) <= SAME:
            switched = self._switched = None
        return [
            self._error(layers, feeds, off if switched and off else expected) for layers in sets
        ]

    def _error(self, layers: Collection[str], feeds: Sequence[Feed], expected: Runs) -> float:
        got = None if self._switched is None else self._switched.outputs(layers, feeds)
        if got is None:
            got = self._converted(layers, feeds)
        return math.inf if got is None else worst_error(expected, got)

    def _open_switched(self) -> _Switched | None:
        try:
            with Scratch() as place:
                switches = self._writer.write_switched(self.recipe, place)
                return _Switched(open_session(place.model, self._threads), switches)
        except OctavoError:  # the float model's own errors come up in `_converted`
            return None

    def _converted(self, layers: Collection[str], feeds: Sequence[Feed]) -> Runs | None:
        """Run a conversion of these layers alone; return the outputs, or None where it fails."""
        with Scratch() as place:
            self._writer.write_part(self.recipe, layers, place)
            try:
                model = open_session(place.model, self._threads)
                return _runs(model, feeds)
            except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
                return None


def _runs(model: Any, feeds: Sequence[Feed]) -> Runs:
    return [[as_array(output) for output in model.run(None, dict(feed))] for feed in feeds]


# docs/notes/checking.md: "Sensitivities come from one model with switches"
class _Switched:
    """A model with a switch for each layer."""

    def __init__(self, runner: Any, switches: dict[str, str]) -> None:
        self._runner, self._switches = runner, switches
        self._off = {name: np.array(False) for name in switches.values()}

    def outputs(self, layers: Collection[str], feeds: Sequence[Feed]) -> Runs | None:
        """Return the outputs with `layers` quantized; None where the model does not run."""
        on = {self._switches[n]: np.array(True) for n in layers if n in self._switches}
        try:
            return _runs(self._runner, [{**feed, **self._off, **on} for feed in feeds])
        except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
            return None


def worst_error(expected: Runs, got: Runs) -> float:
    """Return the relative error of the worst floating-point output, over all runs as one.

    Infinite where `got` has another shape, or is not finite where `expected` is. A model without
    floating-point outputs is judged by its other numbers.
    """
    outputs = list(zip(zip(*expected, strict=True), zip(*got, strict=True), strict=True))
    floats = [pair for pair in outputs if all(_kind(a) == "f" for a in pair[0])]
    others = [pair for pair in outputs if all(_kind(a) in "iub" for a in pair[0])]
    return max((_error(a, b) for a, b in floats or others), default=0.0)


def _kind(value: Any) -> str:
    return value.dtype.kind if isinstance(value, np.ndarray) else "?"


def _error(expected: Sequence[npt.NDArray[Any]], got: Sequence[npt.NDArray[Any]]) -> float:
    tally = Tally()
    for theirs, ours in zip(expected, got, strict=True):
        if theirs.shape != ours.shape:
            return math.inf
        tally.add(theirs, ours)
    return tally.error
