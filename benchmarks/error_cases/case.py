"""One error path: what is done, and what the message that it ends with must say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

AS_ALLOWED = "as allowed"
"""A fix that needs no words of its own: to give what is allowed."""

Content = str | bytes | Callable[[Path], object]
"""Of a file: its text, its bytes, or what writes it to a path."""

PARTS = ("part", "value", "allowed", "fix")
_ESCAPE = re.compile(r"\x1b")


@dataclass(frozen=True, eq=False)
class Case:
    """A command line (`octavo ..`) or Python source, in a folder that `folder.fill` filled.

    `ends` is the exit code, or the name of the exception. `part`, `value`, `allowed` and `fix` are
    words of the message; one that is empty does not apply, and `why` says the reason.
    """

    run: str
    ends: int | str
    part: str
    value: str
    allowed: str
    fix: str
    why: str = ""
    files: Mapping[str, Content] = field(default_factory=dict)
    mount: str = ""
    """Options of a tmpfs that is mounted at `disk`."""
    interrupt_at: str = ""
    """A glob; once it matches, the process group gets SIGINT, as from Ctrl-C."""
    interrupt_after: float = 0.0
    """Seconds, after which it gets SIGINT."""
    apart: bool = False
    """Whether it takes a process of its own: it changes what is outside of Octavo."""
    prints: bool = False
    """Whether a result is printed on stdout beside the message."""
    traceback: bool = False
    """Whether the message shows a traceback, of the user's own code."""
    keeps: tuple[str, ...] = ()
    """Globs of files that may be left behind: a history, for example."""

    @property
    def is_command(self) -> bool:
        """Whether `run` is a command line."""
        return isinstance(self.ends, int)

    @property
    def here(self) -> bool:
        """Whether it may run in this very process."""
        return not (self.apart or self.mount or self.interrupt_at or self.interrupt_after)

    @property
    def wanted(self) -> dict[str, str]:
        """The words that the message must hold, by what they are."""
        said = {name: getattr(self, name) for name in PARTS}
        return {name: words for name, words in said.items() if words not in ("", AS_ALLOWED)}


@dataclass(frozen=True)
class Outcome:
    """What came of a case. `left` are files that appeared, `changed` those that are not the same.

    `skipped` says why it could not be run here; nothing is known of it then.
    """

    case: Case
    ended: int | str = ""
    message: str = ""
    stdout: str = ""
    left: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the message does not name: part, value, allowed, fix."""
        said = " ".join(f"{self.message} {self.stdout if self.case.prints else ''}".split())
        return tuple(name for name, words in self.case.wanted.items() if words not in said)

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong, a sentence each."""
        if self.skipped:
            return ()
        case, found = self.case, []
        if self.ended != case.ends:
            found.append(f"ends with {self.ended}, not {case.ends}")
        found += [f"does not name the {name}: {case.wanted[name]!r}" for name in self.lacks]
        if ("Traceback" in self.message) is not case.traceback:
            found.append("shows no traceback" if case.traceback else "shows a traceback")
        if _ESCAPE.search(self.message + self.stdout):
            found.append("has escape codes")
        if bool(self.stdout) is not case.prints:
            found.append("prints nothing" if case.prints else "prints to stdout")
        found += [f"leaves {name}" for name in self.left]
        found += [f"changes {name}" for name in self.changed]
        return tuple(found)
