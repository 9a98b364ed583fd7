"""What quantizing some layers does to a model's outputs, for many sets of layers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from octavo.errors import OctavoError
from octavo.onnx.read.map_types import as_array
from octavo.onnx.tuning.distance import Runs, worst_error
from octavo.onnx.tuning.running import opened
from octavo.onnx.tuning.scratch import Scratch
from octavo.onnx.tuning.writing import Writer
from octavo.recipe import Recipe
from octavo.recipe.target import Feed

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
        """One for each set of layers; `model` is a session on the float model.

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
                return _Switched(opened(place.model, self._threads), switches)
        except OctavoError:  # the float model's own errors come up in `_converted`
            return None

    def _converted(self, layers: Collection[str], feeds: Sequence[Feed]) -> Runs | None:
        """The outputs of a conversion of these layers alone; None where it does not run."""
        with Scratch() as place:
            self._writer.write_part(self.recipe, layers, place)
            try:
                model = opened(place.model, self._threads)
                return _runs(model, feeds)
            except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
                return None


def _runs(model: Any, feeds: Sequence[Feed]) -> Runs:
    return [[as_array(output) for output in model.run(None, dict(feed))] for feed in feeds]


class _Switched:
    """A model with a switch for each layer."""

    def __init__(self, runner: Any, switches: dict[str, str]) -> None:
        self._runner, self._switches = runner, switches
        self._off = {name: np.array(False) for name in switches.values()}

    def outputs(self, layers: Collection[str], feeds: Sequence[Feed]) -> Runs | None:
        """With these layers quantized; None where it does not run."""
        on = {self._switches[n]: np.array(True) for n in layers if n in self._switches}
        try:
            return _runs(self._runner, [{**feed, **self._off, **on} for feed in feeds])
        except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
            return None
