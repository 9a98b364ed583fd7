"""Where tasks run: in this process, in workers of ours, or in any executor.

A runner is given tasks and a deadline and gives back what was measured, None for a task that the
deadline cut off. Tasks may finish in any order; answers come in the order of the tasks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from octavo.errors import OptionError
from octavo.tune.work import Measured, Packed, Setting, Task, perform, perform_packed

DEATHS = 3
"""How often a task may lose its worker before it counts as failed."""

_POLL = 0.5  # seconds between looks at the clock, and at whether the parent lives

OnDone = Callable[[int, Measured], None]
"""Called with a task's place among the tasks, and what it gave, as soon as that is known."""


class Runner(Protocol):
    """Runs tasks."""

    parallel: int
    """How many tasks it runs at once."""

    def run(
        self, tasks: Sequence[Task], deadline: float | None, on_done: OnDone
    ) -> list[Measured | None]:
        """What each task gave; None for those that were not done at `deadline` (time.monotonic)."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, *error: object) -> None: ...


class InProcess:
    """One task at a time, in this process. The deadline is looked at between tasks."""

    parallel = 1

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def run(
        self, tasks: Sequence[Task], deadline: float | None, on_done: OnDone
    ) -> list[Measured | None]:
        """See Runner."""
        answers: list[Measured | None] = [None] * len(tasks)
        for i, task in enumerate(tasks):
            if deadline is not None and time.monotonic() >= deadline:
                break
            answers[i] = found = perform(self._setting, task)
            on_done(i, found)
        return answers

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class InExecutor:
    """Any `concurrent.futures.Executor`, such as a Dask cluster's.

    At the deadline tasks that have not begun are cancelled; those that run are left behind, as an
    executor has no way to end them.
    """

    def __init__(self, setting: Setting, executor: futures.Executor, parallel: int) -> None:
        self._packed, self._path = _packed(setting), setting.path
        self._executor, self.parallel = executor, parallel

    def run(
        self, tasks: Sequence[Task], deadline: float | None, on_done: OnDone
    ) -> list[Measured | None]:
        """See Runner."""
        waiting = {
            self._executor.submit(perform_packed, self._packed, self._path, task): i
            for i, task in enumerate(tasks)
        }
        answers: list[Measured | None] = [None] * len(tasks)
        try:
            for future in _finished(waiting, deadline):
                i = waiting[future]
                answers[i] = found = _result(future)
                on_done(i, found)
        finally:
            for future in waiting:
                future.cancel()
        return answers

    def __enter__(self) -> InExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class Workers:
    """Processes of our own on this machine, which are ended at the deadline.

    A worker that dies costs its task's time: the task is given to a new one, up to DEATHS times.
    Workers die with this process, whatever ends it, and what `evaluate` prints goes to stderr.
    """

    def __init__(self, setting: Setting, count: int) -> None:
        self._packed, self._path = _packed(setting), setting.path
        self.parallel = count
        self._context = _Context()
        self._pool: futures.ProcessPoolExecutor | None = None

    def run(
        self, tasks: Sequence[Task], deadline: float | None, on_done: OnDone
    ) -> list[Measured | None]:
        """See Runner."""
        answers: list[Measured | None] = [None] * len(tasks)
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
                    answers[i] = found = Measured(None, _DIED.format(DEATHS))
                    left.discard(i)
                    on_done(i, found)
        return answers

    def _run(
        self,
        tasks: Sequence[Task],
        places: Sequence[int],
        deadline: float | None,
        answers: list[Measured | None],
        on_done: OnDone,
    ) -> bool:
        """Fills in answers; True if a worker died."""
        pool = self._started()
        waiting: dict[futures.Future[Measured], int] = {}
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
            self._pool = futures.ProcessPoolExecutor(
                self.parallel, self._context, _begin, (os.getpid(),)
            )
        return self._pool

    def kill(self) -> None:
        """Ends the workers at once, with all that they started."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in self._context.begun:
            if process.is_alive() and process.pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()  # one that has no group of its own yet
        pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Workers:
        return self

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


_DIED = (
    "the worker process died {} times while it ran this trial (killed, out of memory, or a crash "
    "in native code); the search went on without it"
)


def _finished(
    waiting: dict[futures.Future[Measured], int], deadline: float | None
) -> Iterator[futures.Future[Measured]]:
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


def _result(future: futures.Future[Measured]) -> Measured:
    """What the task gave. An executor's own errors are the trial's; a broken pool is not."""
    try:
        return future.result()
    except (BrokenProcessPool, futures.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever an executor raises for a lost worker
        return Measured(None, f"{type(error).__name__}: {error}")


def _packed(setting: Setting) -> Packed:
    try:
        return Packed.of(setting)
    except Exception as error:
        raise OptionError(
            f"model, evaluate and data go to other processes and must be picklable: {error}. Name "
            "them as module:function and files, or leave workers and executor out"
        ) from error


def _begin(parent: int) -> None:
    """First in every worker: a process group of its own, and an end with the parent's."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    os.dup2(2, 1)  # stdout is for the result
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    os.killpg(0, signal.SIGKILL)
