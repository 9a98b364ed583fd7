"""Where tasks run. The tasks are real; the models are simulated."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import OptionError
from octavo.recipe import preset
from octavo.tune import tune
from octavo.tune.evaluators import CallableEvaluator
from octavo.tune.runners import DEATHS, InProcess, Runner, Workers
from octavo.tune.tasks import Errors, Evaluate, Setting, Task, TaskResult, Variant
from tests.tune.simulated_target import Simulated, evaluate

INT8 = Variant(preset("int8"))
TASKS: list[Task] = [Evaluate(Variant(None)), Evaluate(INT8), Errors(preset("int8"), (("fc1",),))]


def setting(**options: Any) -> Setting:
    here = os.getcwd()  # noqa: PTH109
    return Setting(Simulated((0.1, 0.2), **options), CallableEvaluator(evaluate), path=(here,))


MAKERS: dict[str, Callable[[], Runner]] = {
    "in process": lambda: InProcess(setting()),
    "workers": lambda: Workers(setting(), 2),
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_runner_gives_the_same_answers_in_the_tasks_order(name: str) -> None:
    seen: dict[int, TaskResult] = {}
    with MAKERS[name]() as runner:
        found = runner.run(TASKS, None, seen.__setitem__)
    values = [m.value for m in found if m is not None]
    assert values == [[1.0, 8000], [pytest.approx(0.7), 2000], [[0.2], 1]]
    assert [seen[i] for i in range(3)] == found


def test_an_error_of_evaluate_is_its_traceback_and_the_next_task_runs() -> None:
    def broken(model: Any) -> float:
        raise ValueError("no such label: blue")

    it = Setting(Simulated((0.1,)), CallableEvaluator(broken))
    failed, fine = InProcess(it).run(
        [Evaluate(INT8), Errors(preset("int8"), (("fc0",),))], None, lambda i, m: None
    )
    assert failed is not None and fine is not None
    assert 'raise ValueError("no such label: blue")' in failed.error
    assert fine.value == [[0.1], 1]


@dataclass
class Dies:
    """Kills its process while `file` does not have `times` lines; then gives the accuracy."""

    file: str
    times: int

    def __call__(self, model: Any) -> float:
        if "int8" in model["held"]:
            with Path(self.file).open("a") as file:
                file.write("died\n")
            if len(Path(self.file).read_text().splitlines()) <= self.times:
                os.kill(os.getpid(), signal.SIGKILL)
        return evaluate(model)


@pytest.mark.parametrize("times", [1, DEATHS + 5])
def test_a_worker_that_dies_costs_its_task_only(tmp_path: Path, times: int) -> None:
    it = Setting(Simulated((0.1, 0.2)), CallableEvaluator(Dies(str(tmp_path / "deaths"), times)))
    with Workers(it, 1) as runner:
        found = runner.run([*TASKS, Evaluate(Variant(None))], None, lambda i, m: None)
    others = [m.value for m in (found[0], found[2], found[3]) if m is not None]
    assert others == [[1.0, 8000], [[0.2], 1], [1.0, 8000]]
    assert found[1] is not None
    if times == 1:
        assert found[1].value == [pytest.approx(0.7), 2000]
    else:
        assert "died 3 times" in found[1].error


@pytest.mark.real_time
def test_workers_are_ended_at_the_deadline() -> None:
    with Workers(setting(), 2) as warm:  # the first start of a process is not its topic
        warm.run(TASKS[:1], None, lambda i, m: None)
        start = time.monotonic()
        warm._packed = Workers(setting(seconds=60.0), 1)._packed
        found = warm.run([Evaluate(INT8)] * 3, start + 1.0, lambda i, m: None)
        took = time.monotonic() - start
    assert found == [None, None, None]
    assert 1.0 <= took < 10  # what was asked takes 60


@pytest.mark.real_time
def test_this_process_looks_at_the_clock_between_tasks() -> None:
    with InProcess(setting(seconds=0.3)) as runner:
        found = runner.run([Evaluate(INT8)] * 5, time.monotonic() + 0.5, lambda i, m: None)
    done = [m for m in found if m is not None]
    assert 1 <= len(done) <= 2
    assert found[len(done) :] == [None] * (5 - len(done))


def test_what_cannot_be_pickled_is_refused_with_the_way_out() -> None:
    it = Setting(Simulated((0.1,)), CallableEvaluator(lambda model: 1.0))
    with pytest.raises(OptionError, match=r"picklable.*module:function"):
        Workers(it, 1)


def test_ctrl_c_ends_the_workers_at_once() -> None:
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    workers = Workers(setting(seconds=60.0), 2)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), workers:
        workers.run([Evaluate(INT8)] * 2, None, lambda i, m: None)
    assert time.monotonic() - start < 15  # what was asked takes 60
    assert all(not process.is_alive() for process in workers._context.begun)


PARENT = """
import sys
from octavo.tune.runners import Workers
from octavo.tune.tasks import Evaluate
from tests.tune.test_runners import INT8, setting
if __name__ == "__main__":
    with Workers(setting(seconds=60.0, calls=sys.argv[1]), 2) as workers:
        workers.run([Evaluate(INT8)] * 2, None, lambda i, m: None)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py"), str(calls)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        pids = [int(line.split()[0]) for line in _lines(calls, 2)]
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 20  # what was asked takes 60
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in pids if _alive(pid)] == []


def _lines(file: Path, count: int) -> Iterator[str]:
    deadline = time.monotonic() + 60
    while not file.exists() or len(file.read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield from file.read_text().splitlines()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # one that nobody has waited for is dead


def test_workers_leave_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # others search at the same time
    monkeypatch.setattr(tempfile, "tempdir", None)
    abandoned = Path(tempfile.mkdtemp(prefix="octavo-workers-999999999-"))
    with Workers(Setting(Simulated((0.1,)), CallableEvaluator(writes)), 1) as workers:
        (found,) = workers.run([Evaluate(INT8)], None, lambda i, m: None)
    assert found is not None
    assert found.value[0] == 1.0
    assert abandoned.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def writes(model: Any) -> float:
    """Leaves a file behind, in the worker's own place."""
    folder = Path(tempfile.mkdtemp(prefix="octavo-left-"))
    return float("octavo-workers-" in str(folder))


def test_an_executor_is_refused_with_the_way_out() -> None:
    with pytest.raises(OptionError, match=r"executor: .*workers=N"):
        tune(Simulated((0.1,)), evaluate, executor=None)
