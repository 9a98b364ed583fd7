"""How much a kernel benchmark measures, and the settings that it measures under."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks import children
from benchmarks.children import Answer, Cell, Job
from benchmarks.results import say


@dataclass(frozen=True)
class Effort:
    """What was asked for on the command line, and whether this machine has AMX."""

    quick: bool
    cells: tuple[Cell, ...]
    ours: bool = True
    has_amx: bool = True

    @property
    def rounds(self) -> int:
        """Of each comparison."""
        return 3 if self.quick else 7

    def where(self, least_rows: int, least_width: int) -> tuple[Cell, ...]:
        """The cells with M of at least `least_rows`, and K and N of at least `least_width`."""
        return tuple(c for c in self.cells if c[0] >= least_rows and min(c[1:]) >= least_width)

    def settings(self, title: str, job: Job) -> Iterator[tuple[str, Answer]]:
        """Section and answer of `job` with AMX and of `job` without.

        Where there is no AMX, nothing is refused and nothing is said of it.
        """
        count = "one thread" if job.threads == 1 else f"{job.threads} threads"
        if not self.has_amx:
            yield self.ask(f"{title}, {count}", job)
            return
        for amx, words in ((True, "AMX"), (False, "AMX refused")):
            yield self.ask(f"{title}, {count}, {words}", replace(job, amx=amx))

    def ask(self, section: str, job: Job) -> tuple[str, Answer]:
        """The answer of one child; the section's name then says what Octavo used."""
        say(section)
        answer = children.run(replace(job, rounds=self.rounds, ours=self.ours))
        return section + (f" (octavo: {answer.isa})" if answer.isa else ""), answer
