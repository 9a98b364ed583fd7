"""Commands that take a while, and what they are doing meanwhile.

    python -m benchmarks.steps "setting up .venv (two minutes)" COMMAND ...

On a terminal a line moves while the command runs: seconds, and what it said last. At the end, and
elsewhere, stands what was done and how long it took. Of a command that fails its last words are
shown, and its exit status is this program's. Ctrl-C, SIGTERM and SIGHUP end the command with all
its children; the exit status is 128 and the signal's number. Needs Python's own library alone: the
environments are made with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

_POLL = 0.1  # seconds between two looks at the commands
_BRIEF = 2.0  # seconds that nobody minds to wait without a word
_LAST = 200  # lines of a command that failed
_GRACE = 5.0  # seconds that an interrupted command has to end by itself
_BY_SIGNAL = 128  # the exit status of shells: this and the signal's number
_ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
# Ctrl-C in a terminal reaches this program alone, which then ends the whole group.
_OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
)


class StepError(Exception):
    """A command failed; the message holds its last words, `status` is what it ended with."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Ended(KeyboardInterrupt):
    """A signal to end, by its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def duration(seconds: float) -> str:
    """`3 s`, `1 min 34 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def doing(line: str) -> str:
    """What a line of pip, Ninja or another program says it is at; empty where it says nothing."""
    line = line.strip()
    if files := re.match(r"(?:\*+ )?\[(\d+)/(\d+)\] ", line):
        return f"{files[1]} of {files[2]} files"
    if package := re.match(r"Downloading (\S+?)-\d\S* \(([^)]+)\)", line):
        return f"downloading {package[1].rpartition('/')[2]} ({package[2]})"
    if package := re.match(r"Collecting ([\w.-]+)", line):
        return f"looking for {package[1]}"
    if line.startswith("Installing collected packages:"):
        return f"installing {line.count(',') + 1} packages"
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)


@dataclass
class Step:
    """A command; `label` says what it does.

    `environment` is all of the command's, this program's where it is None. With `optional` its
    failure does not count; one that is `brief` is not spoken of unless it takes two seconds.
    """

    label: str
    command: Sequence[str | Path]
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    optional: bool = False
    brief: bool = False
    said: list[str] = field(default_factory=list)
    failed: bool = False
    _told: bool = False
    _process: subprocess.Popen[str] | None = None
    _ear: threading.Thread | None = None
    _began: float = 0.0

    def start(self) -> None:
        """The command in a group of its own, whose words are kept."""
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [str(part) for part in self.command],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **_OWN_GROUP,
        )
        self._ear = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._ear.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            self.said.extend(process.stdout)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def tell(self) -> None:
        """A line that it began, once, where no line moves."""
        if not self._told and not (self.brief and self.seconds < _BRIEF):
            self._told = True
            print(f"{self.label} ...", flush=True)

    def now(self) -> str:
        """`compiling: 34 of 120 files`."""
        at = next((words for line in reversed(self.said[-20:]) if (words := doing(line))), "")
        return f"{self.label}: {at}" if at else self.label

    def end(self) -> str:
        """What became of it, in a line, which may be empty. StepError where it failed."""
        assert self._process is not None
        assert self._ear is not None
        self._ear.join(_GRACE)  # its last words arrive; a child that lives on may keep the pipe
        took = f"{self.label}: {duration(self.seconds)}\n"
        self.failed = self._process.returncode != 0
        if not self.failed:
            return "" if self.brief and self.seconds < _BRIEF else took
        if self.optional:
            last = next((line.strip() for line in reversed(self.said) if line.strip()), "no word")
            return f"{took.rstrip()}, and failed, which does not matter here: {last}\n"
        left_out = max(0, len(self.said) - _LAST)
        before = f"... {left_out} lines before\n" if left_out else ""
        raise StepError(
            f"{before}{''.join(self.said[left_out:])}\n"
            f"FAILED ({self._process.returncode}): {self.label}\n"
            f"the command was: {' '.join(map(str, self.command))}",
            code if (code := self._process.returncode) > 0 else _BY_SIGNAL - code,
        )

    def signal(self, how: signal.Signals) -> None:
        """Sends it to the command and all its children: to those too that outlive it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, how)
            self._process.poll()

    def wait(self) -> None:
        """Until it has ended, after a signal that ends it."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)


def _stop(some: Sequence[Step]) -> None:
    """Ends commands and their children; who does not listen is killed, at a second signal at once.

    A group is there as long as one of its processes is.
    """
    try:
        for step in some:
            step.signal(signal.SIGINT)
        end = time.monotonic() + _GRACE
        while any(step.running for step in some) and time.monotonic() < end:
            time.sleep(_POLL)
    finally:
        for step in some:
            step.signal(signal.SIGKILL)
            step.wait()


def run(*steps: Step) -> None:
    """All `steps` at once; returns when each has ended, and said so.

    Raises StepError for the first that fails, and ends the others, as any exception does.
    """
    moving = sys.stdout.isatty()
    began, left = time.monotonic(), list(steps)
    try:
        for step in steps:
            step.start()
        while left:
            for step in left if not moving else ():
                step.tell()
            time.sleep(_POLL)
            for step in [step for step in left if not step.running]:
                left.remove(step)
                _show(step.end())
            if moving and left:
                now = "; ".join(step.now() for step in left)
                _show(f"{duration(time.monotonic() - began)}  {now}")
    finally:
        _stop(left)
        _show("")


def _show(text: str) -> None:
    """In place of the line that moves, where there is one."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        text = "\r\x1b[K" + (text if text.endswith("\n") else text[:width])
    sys.stdout.write(text)
    sys.stdout.flush()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ends the program quietly at Ctrl-C, at a signal to end, and where a step fails."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    for one in _ENDING:
        if signal.getsignal(one) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(one, end)
    try:
        yield
    except KeyboardInterrupt as error:
        with contextlib.suppress(OSError):  # nobody listens after SIGHUP
            print("interrupted", file=sys.stderr, flush=True)
        number = error.number if isinstance(error, Ended) else int(signal.SIGINT)
        raise SystemExit(_BY_SIGNAL + number) from None
    except (StepError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(getattr(error, "status", 1)) from None


def main(arguments: Sequence[str]) -> int:
    """Runs the command that stands behind the label."""
    if len(arguments) < 2:
        print('usage: python -m benchmarks.steps "WHAT IT DOES" COMMAND ...', file=sys.stderr)
        return 2
    with interruptible():
        run(Step(arguments[0], arguments[1:]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
