"""Who watches a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.results.tuning import Trial


class View(Protocol):
    """Told of every event as it happens. `octavo.report.tuning_view` draws them."""

    def start(
        self,
        model: str,
        criterion: str,
        objective: str,
        strategy: str,
        layers: int,
        max_trials: int,
        deadline_seconds: float | None,
        *,
        bound: float,
        relative: bool,
    ) -> None:
        """What is searched for, and how long: `deadline_seconds` is None without a clock.

        `bound` is the largest loss that meets the criterion, `relative` says that losses are
        shares.
        """

    def doing(self, text: str) -> None:
        """What is being done now."""

    def baseline(self, trial: Trial) -> None:
        """The float model was measured."""

    def ranked(self, pairs: Sequence[tuple[str, float]], model_runs: int) -> None:
        """Layers by their effect on the output."""

    def trial(self, trial: Trial, best: bool) -> None:
        """A trial was measured; `best` if it is the best so far."""

    def note(self, text: str) -> None:
        """Something to know."""


class Quiet:
    """Nobody watches. See View."""

    def start(self, *what: object, **more: object) -> None:
        """Nothing."""

    def doing(self, text: str) -> None:
        """Nothing."""

    def baseline(self, trial: Trial) -> None:
        """Nothing."""

    def ranked(self, pairs: Sequence[tuple[str, float]], model_runs: int) -> None:
        """Nothing."""

    def trial(self, trial: Trial, best: bool) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""
