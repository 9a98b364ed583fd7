"""A tuner that is killed with SIGKILL at random moments and resumed, until it has finished.

Every moment of a run may be hit: while it starts, while it evaluates, while it writes a line.
`python -m benchmarks.tune` compares the end with an undisturbed run's, and counts by a file into
which `evaluate` writes how many evaluations were done twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tune_planted, tune_stacks
from benchmarks.results import REPOSITORY, Row, say
from benchmarks.sections import Rows
from benchmarks.zoo.sessions import Session
from octavo.tune.history import FILE

KILLS, TRIALS, LAYERS = 20, 80, 12
STARTING = 3.0  # seconds, about
CALLS = "OCTAVO_BENCHMARK_CALLS"
"""The environment variable that names the file for `evaluate`'s lines."""
CONF = """\
model: {{name: stack, framework: onnxrt_integerops}}
quantization: {{approach: post_training_dynamic_quant}}
tuning:
  strategy: {{name: {strategy}}}
  accuracy_criterion: {{relative: 0.01}}
  objective: modelsize
  exit_policy: {{timeout: 3600, max_trials: {trials}}}
  random_seed: 9527
"""
# What a run that is resumed may not change; the rest is time and what was waited for.
_SAME = ("status", "trials", "best", "baseline", "ranking", "model_runs", "notes")
_TIMES = ("seconds", "elapsed")


def sections(folder: Path, quick: bool) -> dict[str, Rows]:
    """Rows by title; files are made in `folder`."""
    kills, trials = (3, 20) if quick else (KILLS, TRIALS)
    found: dict[str, Rows] = {}
    for strategy in ("auto",) if quick else ("auto", "random"):
        title = f"{kills} times SIGKILL, then --resume, strategy {strategy}"
        found[title] = partial(rows, folder, strategy, kills, trials, title)
    return found


def evaluate(session: Session) -> float:
    """Accuracy on the stacks' task; first it writes a line to the file that `CALLS` names."""
    descriptor = os.open(os.environ[CALLS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"called\n")
    os.close(descriptor)
    return tune_stacks.evaluate(session)


@dataclass(frozen=True)
class Search:
    """One search by the command line; its files are in `folder`."""

    folder: Path
    model: Path
    conf: Path

    @property
    def calls(self) -> int:
        """How often `evaluate` was called."""
        file = self.folder / "calls"
        return len(file.read_bytes().splitlines()) if file.exists() else 0

    @property
    def history(self) -> Path:
        """The history's file."""
        return self.folder / FILE

    @property
    def lines(self) -> int:
        """How many lines the history has."""
        return self.history.read_bytes().count(b"\n") if self.history.exists() else 0

    def start(self) -> subprocess.Popen[bytes]:
        """Begins or resumes it."""
        self.folder.mkdir(exist_ok=True)
        command = [
            *(sys.executable, "-c", "from octavo.cli import main; main()"),
            *("tune", str(self.conf)),
            *("--model", str(self.model), "--evaluate", "benchmarks.tune_kills:evaluate"),
            *("--workspace", str(self.folder), "-o", str(self.folder / "best.onnx")),
            *("--resume", "--json"),
        ]
        environment = {**os.environ, CALLS: str(self.folder / "calls")}
        with (self.folder / "out.json").open("wb") as out, self.log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdout=out, stderr=log
            )

    @property
    def log(self) -> Path:
        """What it said on stderr."""
        return self.folder / "log"

    def result(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What it found. Raises subprocess.CalledProcessError unless it ended with 0."""
        if process.wait() != 0:
            said = self.log.read_text()[-2000:]
            raise subprocess.CalledProcessError(process.returncode, "octavo tune", stderr=said)
        found: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return found


def rows(folder: Path, strategy: str, kills: int, trials: int, section: str) -> Iterator[Row]:
    """An undisturbed search, then one that is killed."""
    stack = tune_stacks.spread(LAYERS, 5, tune_planted.SPREAD[LAYERS])
    model = tune_stacks.write_onnx(stack, folder / "killed.onnx")
    conf = folder / f"{strategy}.yaml"
    conf.write_text(CONF.format(strategy=strategy, trials=trials))
    say(f"{section}: undisturbed")
    calm = Search(folder / f"calm-{strategy}", model, conf)
    wanted = calm.result(calm.start())
    say(section)
    killed = Search(folder / f"killed-{strategy}", model, conf)
    pace = wanted["seconds"] / calm.lines
    process, moments = kill_often(killed, kills, calm.lines, pace)
    found = killed.result(process)
    note = f"lines of {calm.lines} in the history at each: {', '.join(map(str, moments))}"
    yield Row("kills", len(moments), at_least=kills, section=section, note=note)
    differ = [key for key in _SAME if _timeless(found[key]) != _timeless(wanted[key])]
    yield Row(
        "parts of the result unlike the undisturbed run's",
        len(differ),
        at_most=0,
        section=section,
        note=", ".join(differ)
        or f"{found['status']}: {found['best']['words']}; {len(found['trials'])} trials, their "
        "recipes, accuracies, sizes and order",
    )
    same = (killed.folder / "best.onnx").read_bytes() == (calm.folder / "best.onnx").read_bytes()
    yield Row("best model's file differs", int(not same), at_most=0, section=section)
    yield Row(
        "evaluations done twice",
        killed.calls - calm.calls,
        at_most=len(moments),
        section=section,
        note=f"{calm.calls} undisturbed, {killed.calls} with kills; one in flight at each kill",
    )


def kill_often(
    search: Search, kills: int, lines: int, pace: float
) -> tuple[subprocess.Popen[bytes], list[int]]:
    """The run after the last kill, and how many lines the history had at each.

    Places in a history of `lines` are drawn. A run is killed at a random moment of the `pace`
    seconds after it has reached its place; one that was already beyond it, while it starts.
    """
    random = np.random.RandomState(kills)
    places = np.sort(random.randint(0, int(0.95 * lines), kills))
    killed_at: list[int] = []
    for place in places:
        started, process = search.lines, search.start()
        while search.lines < place and process.poll() is None:
            time.sleep(0.005)
        try:
            process.wait(random.uniform(0, pace if started < place else STARTING))
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed_at.append(search.lines)
    else:
        process = search.start()
    return process, killed_at


def _timeless(data: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(data, Mapping):
        return {key: _timeless(value) for key, value in data.items() if key not in _TIMES}
    if isinstance(data, list):
        return [_timeless(value) for value in data]
    return data
