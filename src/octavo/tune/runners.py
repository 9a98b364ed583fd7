"""Where tasks run: in this process, or in workers of ours.

A runner is given tasks and a deadline and gives back what was measured, None for a task that the
deadline cut off. Tasks may finish in any order; answers come in the order of the tasks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from octavo.errors import OptionError
from octavo.tune.tasks import PackedSetting, Setting, Task, TaskResult, perform, perform_packed

DEATHS = 3
"""How often a task may lose its worker before it counts as failed."""

_SCRATCH = "octavo-workers-"
_PR_SET_PDEATHSIG = 1
_POLL = 0.5  # seconds between looks at the clock, and at whether the parent lives

OnDone = Callable[[int, TaskResult], None]
"""Called with a task's place among the tasks, and what it gave, as soon as that is known."""


class Runner(ABC):
    """Runs tasks."""

    parallel = 1
    """How many tasks it runs at once."""

    @abstractmethod
    def run(
        self, tasks: Sequence[Task], deadline: float | None, on_done: OnDone
    ) -> list[TaskResult | None]:
        """Return what each task gave; None for those not done at `deadline` (time.monotonic)."""

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class InProcess(Runner):
    """One task at a time, in this process. The deadline is looked at between tasks."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def run(
        self, tasks: Sequence[Task], deadline: float | None, on_done: OnDone
    ) -> list[TaskResult | None]:
        answers: list[TaskResult | None] = [None] * len(tasks)
        for i, task in enumerate(tasks):
            if deadline is not None and time.monotonic() >= deadline:
                break
            answers[i] = found = perform(self._setting, task)
            on_done(i, found)
        return answers


# docs/notes/tuning.md: "Workers die with their parent"
class Workers(Runner):
    """Processes of our own on this machine, which are ended at the deadline.

    A worker that dies costs its task's time: the task is given to a new one, up to DEATHS times.
    Workers die with this process, whatever ends it, and what `evaluate` prints goes to stderr.
    """

    def __init__(self, setting: Setting, count: int) -> None:
        self._packed, self._path = _packed(setting), setting.path
        self.parallel = count
        self._context = _Context()
        self._pool: futures.ProcessPoolExecutor | None = None
        self._scratch = ""

    def run(
        self, tasks: Sequence[Task], deadline: float | None, on_done: OnDone
    ) -> list[TaskResult | None]:
        answers: list[TaskResult | None] = [None] * len(tasks)
        deaths = [0] * len(tasks)
        left = set(range(len(tasks)))
        while left:
            alone = [i for i in sorted(left) if deaths[i]]  # whose fault it was will show
            batch = alone[:1] or sorted(left)
            try:
                lost = self._run([tasks[i] for i in batch], batch, deadline, answers, on_done)
            except BaseException:
                self.kill()
                raise
            left = {i for i in left if answers[i] is None}
            if not lost:
                if left.intersection(batch):  # cut off
                    self.kill()
                    break
                continue
            self.kill()
            for i in left.intersection(batch):
                deaths[i] += 1
                if deaths[i] >= DEATHS:
                    answers[i] = found = TaskResult(None, _DIED.format(DEATHS))
                    left.discard(i)
                    on_done(i, found)
        return answers

    def _run(
        self,
        tasks: Sequence[Task],
        places: Sequence[int],
        deadline: float | None,
        answers: list[TaskResult | None],
        on_done: OnDone,
    ) -> bool:
        """Fill in `answers`; return True if a worker died."""
        pool = self._started()
        waiting: dict[futures.Future[TaskResult], int] = {}
        try:
            for place, task in zip(places, tasks, strict=True):
                waiting[pool.submit(perform_packed, self._packed, self._path, task)] = place
            for future in _finished(waiting, deadline):
                answers[waiting[future]] = found = _result(future)
                on_done(waiting[future], found)
        except BrokenProcessPool:
            return True
        return False

    def _started(self) -> futures.ProcessPoolExecutor:
        if self._pool is None:
            self._context.begun.clear()
            _remove_abandoned()
            self._scratch = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")
            self._pool = futures.ProcessPoolExecutor(
                self.parallel, self._context, _begin, (os.getpid(), self._scratch)
            )
        return self._pool

    def kill(self) -> None:
        """End the workers at once, with all that they started."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in self._context.begun:
            if process.is_alive() and process.pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()  # one that has no group of its own yet
        pool.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __exit__(self, *error: object) -> None:
        self.kill()


class _Context(SpawnContext):
    """Starts processes and remembers them: an executor does not say which are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[BaseProcess] = []

    def Process(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]  # noqa: N802
        process = SpawnContext.Process(*args, **options)
        self.begun.append(process)
        return process


_LOST = "the worker process died"
"""How the errors of tasks begin that had no fair chance: they are tried again on resumption."""

_DIED = (
    _LOST
    + " {} times while it ran this trial: killed, out of memory, a crash in native code, or a "
    "script that uses workers without `if __name__ == '__main__':`"
)


def is_lost(error: str) -> bool:
    """Tell whether a task failed for what may be gone the next time: a lost worker, a full disk."""
    last = error.strip().splitlines()[-1] if error.strip() else ""
    passing = (
        _LOST,
        "MemoryError",
        "OSError",
        "ConnectionError",
        "TimeoutError",
        "BrokenPipeError",
    )
    return last.startswith(passing) or last.split(":")[0].endswith("ConnectionError")


def _finished(
    waiting: dict[futures.Future[TaskResult], int], deadline: float | None
) -> Iterator[futures.Future[TaskResult]]:
    """Futures as they finish, until the deadline. Wakes up for Ctrl-C."""
    left = set(waiting)
    while left:
        rest = None if deadline is None else deadline - time.monotonic()
        if rest is not None and rest <= 0:
            return
        done, left = futures.wait(
            left,
            timeout=_POLL if rest is None else min(rest, _POLL),
            return_when=futures.FIRST_COMPLETED,
        )
        yield from done


def _result(future: futures.Future[TaskResult]) -> TaskResult:
    """Return what the task gave. Errors of the pool's pickling are the trial's."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as error:  # noqa: BLE001 - whatever pickling raises
        return TaskResult(None, f"{type(error).__name__}: {error}")


def _packed(setting: Setting) -> PackedSetting:
    try:
        return PackedSetting.of(setting)
    except Exception as error:
        raise OptionError(
            f"model, evaluate and data go to other processes and must be picklable: {error}. Name "
            "them as module:function and files, or leave workers out"
        ) from error


def _remove_abandoned() -> None:
    """Remove what the workers of a parent that was killed left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        owner = folder.name.removeprefix(_SCRATCH).partition("-")[0]
        gone = owner.isdigit() and not Path("/proc", owner).exists() and Path("/proc/self").exists()
        with contextlib.suppress(FileNotFoundError):  # another run removed it just now
            if gone and folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)


def _begin(parent: int, scratch: str) -> None:
    """First in every worker: a process group of its own, and an end with the parent's.

    Temporary files go to `scratch`, which whoever ends the worker removes.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    os.dup2(2, 1)  # stdout is for the result
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    with contextlib.suppress(OSError, AttributeError):  # Linux; at once, whatever holds the GIL
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent, scratch), daemon=True).start()


def _end_with(parent: int, scratch: str) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    shutil.rmtree(scratch, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
