"""A search while it runs: a live table on a terminal, one plain line a trial anywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from octavo.report import terminal
from octavo.results import trial_words as say
from octavo.results import words
from octavo.results.tuning import Trial
from octavo.results.tuning_page import trial_table
from octavo.results.words import clean, count

_RECENT = 12  # the latest trials that the table shows
_RECIPE = 12  # columns for the recipe's words, or figures make room
_AROUND = 9  # lines of a terminal that hold no recent trial: titles, float, best, what is done


class TuningView:
    """What the user sees of a search, on stderr. Use as a context manager.

    Each method is one event of the search. The table updates once a second, fits the terminal and
    is taken away at the end, also by Ctrl-C; what `evaluate` prints appears above it.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = terminal.console(stderr=True) if console is None else console
        self._clock = clock
        self._began = clock()
        self._deadline: float | None = None
        self._bound = say.Bound()
        self._max_trials = 0
        self._title = self._sensitive = ""
        self._doing = "starting"
        self._baseline: Trial | None = None
        self._trials: list[Trial] = []
        self._best = -1
        self._shown_errors: set[str] = set()
        self._live: Live | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=1,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),  # what goes to a file stays out of the view
            )

    def __enter__(self) -> TuningView:
        if self._live is not None:
            try:
                self._live.start(refresh=True)
            except BaseException:
                self._stop()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def start(
        self,
        model: str,
        criterion: object,
        objective: object,
        strategy: str,
        layers: int,
        max_trials: int,
        deadline_seconds: float | None,
        *,
        bound: float | None = None,
        relative: bool = False,
        timed: str = "",
    ) -> None:
        """Show that the search begins, and that it ends `deadline_seconds` from now.

        `criterion` and `objective` are words, or print as such. `bound` is the largest loss that
        meets the criterion, `relative` says that losses are shares. `timed` are the inputs and
        threads of the runs that are timed.
        """
        self._began, self._bound = self._clock(), say.Bound(bound, relative)
        self._max_trials = max_trials
        self._deadline = None if deadline_seconds is None else self._began + deadline_seconds
        self._title = (
            f"tuning {clean(model)}: {clean(strategy)}, objective {clean(objective)}, "
            f"{count(layers, 'layer')}; {clean(criterion)}"
        )
        limits = f"at most {count(max_trials, 'trial')}"
        if deadline_seconds is not None:
            limits += f" and {words.duration(deadline_seconds)}"
        timed = f"; timed: {timed}" if timed else ""
        self._changed(f"{self._title}; {limits}{timed}")

    def doing(self, text: str) -> None:
        """Show in the table alone what is being done now, such as `ranking 37 layers`."""
        self._doing = clean(text)
        self._changed()

    def baseline(self, trial: Trial) -> None:
        """Show that the float model was measured."""
        self._baseline = trial
        self._error(trial)
        self._changed(_line(trial, self._bound, best=False))

    def ranked(self, pairs: Sequence[tuple[str, float]], model_runs: int) -> None:
        """Show that each layer's effect on the output is known, the worst first."""
        worst = ", ".join(f"{clean(name)} {words.number(error)}" for name, error in pairs[:3])
        self._sensitive = (
            f"ranked {count(len(pairs), 'layer')} with {count(model_runs, 'model run')}"
            + (f"; the most sensitive: {worst}" if worst else "")
        )
        self._changed(self._sensitive)

    def trial(self, trial: Trial, best: bool) -> None:
        """Show that a trial ended; `best` says that none so far was better."""
        self._trials.append(trial)
        self._best = trial.index if best else self._best
        self._changed(_line(trial, self._bound, best))
        self._error(trial)

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self._above(f"note: {clean(text)}")

    def _error(self, trial: Trial) -> None:
        """Show a traceback once, however many trials end with it."""
        if trial.failed and trial.error not in self._shown_errors:
            self._shown_errors.add(trial.error)
            what = f"trial {trial.index}" if trial.index else "the float model"
            lines = (f"  {line}" for line in say.traceback_lines(trial.error))
            self._above("\n".join([f"{what} failed:", *lines]))

    def _changed(self, line: str = "") -> None:
        """Draws the table anew, or prints `line` where there is none."""
        if self._live is not None:
            self._live.refresh()
        elif line:
            self._above(line)

    def _above(self, text: str) -> None:
        if self._live is not None:
            self._console.print(Text(text, overflow="fold"))
        else:
            self._console.file.write(text + "\n")
            self._console.file.flush()

    def _stop(self) -> None:
        if self._live is None:
            return
        try:
            self._live.stop()
        finally:
            with contextlib.suppress(OSError):  # the terminal is gone
                self._console.show_cursor(True)

    def _draw(self) -> RenderableType:
        return Group(*self._lines())

    def _lines(self) -> Iterator[RenderableType]:
        for said, style in ((self._title, "bold"), (self._sensitive, "dim")):
            if said:
                yield _one_line(said, style)
        rows, hidden = self._rows()
        if rows:
            yield _table(rows, self._best, self._bound, self._console.width)
        if hidden:
            yield _one_line(f"and {count(hidden, 'earlier trial')}", "dim")
        yield _one_line(self._doing, "cyan")
        yield _one_line(self._footer(), "dim")

    def _rows(self) -> tuple[list[Trial], int]:
        """Return the float model, the best and the latest trials, and how many are left out."""
        room = max(1, min(_RECENT, self._console.height - _AROUND))
        recent = self._trials[-room:]
        best = [t for t in self._trials[:-room] if t.index == self._best]
        first = [] if self._baseline is None else [self._baseline]
        return [*first, *best, *recent], len(self._trials) - len(recent) - len(best)

    def _footer(self) -> str:
        now = self._clock()
        said = [f"elapsed {_clock(now - self._began)}"]
        if self._max_trials:
            said.append(f"{len(self._trials):,} of at most {count(self._max_trials, 'trial')}")
        if self._deadline is not None:
            said.append(f"{_clock(max(0.0, self._deadline - now))} left")
        return ", ".join(said)


def _line(trial: Trial, bound: say.Bound, best: bool) -> str:
    """Write a trial's line: `trial 2: int8, ...: accuracy 0.912, loss 0.33%, ..., best so far`."""
    who = f"trial {trial.index}: {say.recipe(trial)}" if trial.index else "the float model"
    if trial.failed:
        return f"{who}: failed: {say.last_of(trial.error)}"
    said = []
    for column in say.figures((trial,), bound):
        if column.heading == say.RATIO:
            said += [say.versus_float(trial)] * bool(trial.index)
            continue
        if column.heading == "latency":
            said += _latency(trial)
            continue
        plain = column.heading == "size"
        said.append(column.text(trial) if plain else f"{column.heading} {column.text(trial)}")
    mark = say.outcome(trial, best)
    return f"{who}: {', '.join(said + [mark] * bool(mark))}{' so far' * best}"


def _latency(trial: Trial) -> list[str]:
    """Format a trial's time, such as `814 ms -> 486 ms`, after the float model's.

    The float model's time is the one beside this trial, which is never its time alone. So the float
    model's own line has none.
    """
    if trial.float_latency is None:
        return [words.latency(trial.latency)] if trial.index else []
    taken = say.seconds_of(trial, trial.float_latency)
    return [f"{words.latency(trial.float_latency)} -> {words.latency(taken)}"]


def _clock(seconds: float) -> str:
    """Format seconds as a clock does: `0:05`, `12:34`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _one_line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _table(trials: Sequence[Trial], best: int, bound: say.Bound, width: int) -> Table:
    """Build a table of one line a trial.

    Recipes are cut, and a narrow terminal shows fewer figures.
    """
    for without in (), ("latency",), ("latency", "memory", "accuracy"):
        table = terminal.rich_table(trial_table(trials, best, bound, without))
        others = [c for c in table.columns if str(c.header) != "recipe"]
        widths = (max(cell_len(str(text)) for text in (c.header, *c.cells)) for c in others)
        room = width - 2 - sum(2 + taken for taken in widths)
        if room >= _RECIPE:
            break
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
        if column not in others:
            column.max_width = max(1, room)
    return table
