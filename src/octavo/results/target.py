"""What tuning asks of a front end: one float model, its layers, and quantized forms of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from octavo.recipe.plan import Decision
from octavo.recipe.recipe import Recipe
from octavo.recipe.scheme import Scheme
from octavo.results.report import Report

Feed = Mapping[str, Any]
"""Inputs of one run: NumPy arrays by the names of the model's inputs (or forward's parameters)."""


@dataclass(frozen=True)
class Built:
    """A model that runs.

    `model` is what an `evaluate` callable gets (an onnxruntime.InferenceSession, an nn.Module),
    `run` its outputs as NumPy arrays, `bytes` the size of its file or tensors, `report` what became
    of each layer (None for the float model and for static quantization).
    """

    model: Any
    run: Callable[[Feed], Sequence[Any]]
    bytes: int
    report: Report | None = None


class Target(Protocol):
    """One float model, and how to make, run and weigh quantized forms of it.

    Implementations can be pickled, so that trials run in other processes. `calibration` are inputs
    for static quantization; without them a recipe means dynamic quantization. Errors are those of
    the front end's `quantize_dynamic`.
    """

    @property
    def label(self) -> str:
        """Return what the model is called: a file's path, a factory's name, a module's type."""

    @property
    def output_suffix(self) -> str:
        """Return how the file that `save` writes ends: `.onnx`, `.safetensors`."""

    @property
    def threads(self) -> int | None:
        """Return the number of threads of a run; None where the runtime chooses."""

    def fingerprint(self) -> str:
        """Return a digest of the float model and of what `build` depends on beside the recipe."""

    def decisions(self, recipe: Recipe) -> Sequence[Decision]:
        """Return what `build(recipe)` would decide, layer by layer, in the model's order."""

    def raised(self) -> Sequence[Scheme]:
        """Schemes more accurate than the default one, the fastest first, before a layer is left
        float."""

    def native(self) -> Target | None:
        """Return the same model for Octavo's own operators in ONNX Runtime, or None.

        None where somebody has said what the quantized model is to run on, or where these operators
        are not another choice.
        """

    def float_model(self) -> Built:
        """Return the unmodified model."""

    def build(self, recipe: Recipe, calibration: Sequence[Feed] | None = None) -> Built:
        """Return the quantized model, opened, nothing left on disk once the model is dropped.

        A recipe that leaves every layer float gives the float model.
        """

    def opener(
        self, recipe: Recipe | None, calibration: Sequence[Feed] | None = None
    ) -> AbstractContextManager[Callable[[], Built]]:
        """Return a context with a function that opens the model afresh, any number of times.

        The model (float where `recipe` is None) is made once, and lasts as long as the context.
        """

    def save(
        self, recipe: Recipe, out: Path, calibration: Sequence[Feed] | None = None
    ) -> Report | None:
        """Write the quantized model to `out`, whole or not at all."""

    def made_up(self, shapes: Mapping[str, Sequence[int]], seed: int) -> Sequence[Feed]:
        """Make up inputs that the model accepts, random from `seed`, of the named ones' `shapes`.

        At least one is made; raises InputDataError where none can be made up or a name is unknown.
        """

    def errors(
        self, recipe: Recipe, sets: Sequence[Collection[str]], feeds: Sequence[Feed]
    ) -> Sequence[float]:
        """Return the output's error for each set of layer names, with only those layers quantized.

        They are quantized as `recipe` says, and all others are float.

        The error is `octavo.core.metrics.relative_error` of the worst floating-point output over
        all feeds; infinite where the quantized model gives non-finite numbers or fails.
        """

    def peak_memory(
        self, recipe: Recipe | None, feed: Feed, calibration: Sequence[Feed] | None = None
    ) -> int:
        """Bytes that opening and running the model (float for None) add to a fresh process, at
        their peak."""
