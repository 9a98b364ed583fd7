"""Tuning on a Dask cluster of two workers on this machine, one of which is killed half-way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from benchmarks import tune_planted, tune_stacks
from benchmarks.results import REPOSITORY, Row, say
from benchmarks.sections import Rows
from octavo.results.tuning import TuneResult
from octavo.tune import tune
from octavo.tune.history import FILE

TRIALS, WORKERS, LAYERS, SEED = 200, 2, 12, 11
SECONDS = 1800.0  # a clock, without which the search would stop at the first that meets
START = 60.0  # seconds that scheduler and workers may take to start


def sections(folder: Path, quick: bool) -> dict[str, Rows]:
    """Rows by title; files are made in `folder`."""
    trials = 30 if quick else TRIALS
    title = f"{trials} trials on {WORKERS} Dask workers, one of them killed half-way"
    return {title: partial(rows, folder, trials, title)}


def rows(folder: Path, trials: int, section: str) -> Iterator[Row]:
    """The search on the cluster, beside the same one in this process."""
    stack = tune_stacks.spread(LAYERS, 5, tune_planted.SPREAD[LAYERS])
    model = tune_stacks.write_onnx(stack, folder / "cluster.onnx")
    say(f"{section}: in this process")
    alone = search(model, trials, folder / "alone")
    say(section)
    workspace = folder / "cluster"
    with cluster(folder) as (executor, workers):
        killed = KillHalfWay(workspace / FILE, trials // 2, workers[0])
        with killed:
            found = search(model, trials, workspace, executor)
    note = f"{found.seconds:.0f} s, in one process {alone.seconds:.0f} s"
    yield Row("trials", len(found.trials), at_least=trials, section=section, note=note)
    note = f"SIGKILL to one of {WORKERS} when the history had {killed.seen} trials"
    yield Row("workers killed", killed.done, at_least=1, section=section, note=note)
    failed = sum(trial.failed for trial in found.trials)
    yield Row("trials that failed", failed, at_most=0, section=section)
    other = different(alone, found)
    yield Row("trials unlike the single process's", other, at_most=0, section=section)
    note = f"{found.status.value}: {found.best.words}"
    other = int(found.best.key != alone.best.key or found.best.recipe != alone.best.recipe)
    yield Row("another best recipe", other, at_most=0, section=section, note=note)


def search(
    model: Path, trials: int, workspace: Path, executor: Executor | None = None
) -> TuneResult:
    """Random recipes, the smallest model wins."""
    return tune(
        model,
        "benchmarks.tune_stacks:evaluate",
        criterion=tune_planted.CRITERION,
        objective="modelsize",
        strategy="random",
        timeout=SECONDS,
        max_trials=trials,
        seed=SEED,
        workspace=workspace,
        executor=executor,
        path=(str(REPOSITORY),),
    )


def different(one: TuneResult, other: TuneResult) -> int:
    """How many trials are in one of the two only, by recipe, accuracy and size."""

    def seen(result: TuneResult) -> set[tuple[object, ...]]:
        return {(t.index, t.key, t.accuracy, t.bytes, t.meets) for t in result.trials}

    return len(seen(one) ^ seen(other))


class KillHalfWay:
    """While it is entered, waits until a history has `trials` trials, and kills a process then."""

    def __init__(self, history: Path, trials: int, victim: subprocess.Popen[bytes]) -> None:
        self._history, self._trials, self._victim = history, trials, victim
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.seen = 0
        self.done = 0

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self.seen = trials_in(self._history)
            if self.seen >= self._trials:
                self._victim.send_signal(signal.SIGKILL)
                self.done = 1
                return

    def __enter__(self) -> KillHalfWay:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


def trials_in(history: Path) -> int:
    """How many trials a history holds; 0 where there is none yet."""
    if not history.exists():
        return 0
    return history.read_bytes().count(b'{"kind": "trial"')


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[Executor, Sequence[subprocess.Popen[bytes]]]]:
    """A scheduler and its workers, all processes of their own; as an executor."""
    from distributed import Client

    address = folder / "scheduler.json"
    with contextlib.ExitStack() as stack:
        ports = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        _process(stack, folder, "dask_scheduler", *ports, "--scheduler-file", str(address))
        end = time.monotonic() + START
        while not address.exists() or not address.read_text().endswith("}"):
            if time.monotonic() > end:
                raise RuntimeError(f"Dask's scheduler did not start within {START:.0f} s")
            time.sleep(0.05)
        there = json.loads(address.read_text())["address"]
        one = ("--nworkers", "1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        workers = [
            _process(stack, folder, "dask_worker", there, *one, "--local-directory", str(folder))
            for _ in range(WORKERS)
        ]
        client = stack.enter_context(Client(there, set_as_default=False))
        client.wait_for_workers(WORKERS, timeout=START)
        yield client.get_executor(pure=False), workers


def _process(
    stack: contextlib.ExitStack, folder: Path, module: str, *arguments: str
) -> subprocess.Popen[bytes]:
    """`python -m distributed.cli.MODULE`, which is ended with `stack`; its log is in `folder`."""
    log = stack.enter_context((folder / f"{module}.log").open("ab"))
    process = subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    stack.callback(_ended, process)
    return process


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
