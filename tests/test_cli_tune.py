"""`octavo tune` from end to end: real models, and real processes and signals where they matter."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.cli.options import shape_of
from octavo.errors import OptionError, OutputError
from octavo.recipe import load_recipe
from octavo.results.benchmark import Pair, Timed
from octavo.results.evidence import Evidence
from octavo.tune import tune
from octavo.tune.runners import InProcess
from tests import graphs
from tests.cli_support import run, shorten_measurements, write_module
from tests.graphs import normal
from tests.report.tuning_samples import BEST, result
from tests.tune import searchable

NEURAL_COMPRESSOR = """\
model:                                               # mandatory. used to specify model specific information.
  name: bert
  framework: onnxrt_integerops                       # tensorflow, mxnet, pytorch, pytorch_ipex, onnxrt_integerops and onnxrt_qlinearops.

quantization:
  approach: post_training_dynamic_quant              # default value is post_training_static_quant
  calibration:
    sampling_size: 8, 16, 32

tuning:
  accuracy_criterion:
    relative:  0.01                                  # default is relative, other value is absolute
  exit_policy:
    timeout: 0                                       # seconds; 0 means early stop; combine with max_trials
  random_seed: 9527
"""  # noqa: E501 - the file as people have it
SMALL = NEURAL_COMPRESSOR.replace("  random_seed", "  objective: modelsize\n  random_seed")
LONG = SMALL.replace("timeout: 0", "timeout: 600")
RANDOM = LONG.replace("600", "600\n    max_trials: 10").replace(
    "tuning:\n", "tuning:\n  strategy: {name: random}\n"
)
METRIC = SMALL.replace("tuning:\n", "evaluation:\n  accuracy:\n    metric: {topk: 1}\n\ntuning:\n")
TUNE = ("tune", "conf.yaml", "--model", "model.onnx")
BY_EVALUATE = (*TUNE, "--evaluate", "tests.tune.searchable:evaluate")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searchable")
    searchable.write(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    shorten_measurements(monkeypatch)
    for path in made.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "conf.yaml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`folder`; trials run in this process."""
    monkeypatch.setattr("octavo.tune.api.Workers", lambda setting, count: InProcess(setting))
    return folder


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from octavo.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment},
    )


def wait_for(true: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def timed_by_order(calls: Mapping[str, Any], **_: Any) -> tuple[list[Pair], list[Timed]]:
    """In place of a comparison: each model takes a tenth more than the one before, float twice."""
    times = {name: 0.02 if name == "0" else 0.009 + 0.001 * int(name) for name in calls}
    pairs = [
        Pair(a, b, "", None, *[times[b] / times[a]] * 3, openings=8)
        for a, b in itertools.combinations(times, 2)
    ]
    return pairs, [Timed(name, "", None, *[t] * 3, 1 / t, runs=8) for name, t in times.items()]


def test_the_file_as_people_have_it_works_as_it_stands(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("octavo.tune.turns.compare", timed_by_order)
    conf = here / "bert.yaml"
    conf.write_text(NEURAL_COMPRESSOR)
    before = (conf.read_bytes(), conf.stat().st_mtime_ns)
    searchable.write(here, bad=None)
    arguments = ("bert.yaml", "--model", "model.onnx", "--shape", "x=8x32", "--plot", "t.svg")
    assert run("tune", *arguments) == 0
    out, err = capsys.readouterr()
    assert "t.svg is written" in err
    assert ">Accuracy against time of " in (here / "t.svg").read_text("utf-8")
    assert (conf.read_bytes(), conf.stat().st_mtime_ns) == before
    last = out.splitlines()[-1]
    assert re.match(
        r"met \(agreement only\): int8: agreement 0\.99.*; wrote model.tuned.onnx$", last
    )
    assert re.search(r"\nLatency +20\.0 ms -> 10\.00 ms a run \(2\.00x as fast", out)
    assert "sampling_size does nothing here" in err
    assert "\nMade for  " in out
    assert re.search(r"\nEnded +at the first recipe that met.*timeout 0\); give", out)
    assert "\x1b" not in out + err
    history = lines(here / "octavo_tuning" / "bert" / "history.jsonl")
    assert "trial" in [json.loads(line)["kind"] for line in history]


def test_the_bad_layer_alone_is_changed_and_the_recipe_gives_the_same_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    measured = Evidence(notes=("measured for the page",))
    monkeypatch.setattr("octavo.cli.evidence.evidence", lambda *_, **__: measured)
    alone = ("--workers", "1", "--json")
    files = ("-o", "best.onnx", "--recipe-out", "best.yaml", "--report", "best.html")
    assert run(*BY_EVALUATE, *files, "--recipe", "int8", "--workspace", "work", *alone) == 0
    out, err = capfd.readouterr()
    result = json.loads(out)  # what evaluate prints in its worker is not in it
    assert "evaluating" in err
    assert result["status"] == "met"
    assert result["ranking"][0][0] == "layer1"
    assert len(result["trials"]) <= 5
    changed = [rule["name"] for rule in result["best"]["recipe"]["rules"] if "name" in rule]
    assert changed == ["layer1"]
    assert load_recipe("best.yaml").to_dict() == result["best"]["recipe"]
    assert run("quantize", "model.onnx", "--recipe", "best.yaml", "-o", "again.onnx") == 0
    best, again = (graphs.run(Path(f"{n}.onnx"), {"x": normal(9, 32)}) for n in ("best", "again"))
    np.testing.assert_array_equal(best[0], again[0])
    page = (folder / "best.html").read_text()
    assert "layer1" in page and measured.notes[0] in page
    history = map(json.loads, lines(folder / "work/history.jsonl"))
    tried = [line["value"]["index"] for line in history if line["kind"] == "trial"]
    assert tried == [trial["index"] for trial in result["trials"]]


@pytest.mark.parametrize("fails", ["plot", "page", "recipe"])
def test_whichever_file_cannot_be_written_the_others_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: str
) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise OutputError(f"the {fails} cannot be written")

    home = {"plot": "plotted", "page": "write_page", "recipe": "write_recipe"}[fails]
    searched = result(output="", trials=(BEST,))
    monkeypatch.setattr("octavo.tune.tune", lambda *given, **options: searched)
    monkeypatch.setattr(f"octavo.cli.tune_steps.{home}", refuse)
    files = {"plot": "search.svg", "page": "search.html", "recipe": "best.yaml"}
    options = ("--plot", files["plot"], "--report", files["page"], "--recipe-out", files["recipe"])
    assert run(*TUNE, *options) == OutputError.exit_code
    out, err = capsys.readouterr()
    assert f"the {fails} cannot be written" in err
    assert "met: int8, 1 of 12 layers float (fc3)" in out
    assert {name for name, file in files.items() if (folder / file).exists()} == {*files} - {fails}


def test_a_metric_of_the_file_on_a_data_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "conf.yaml").write_text(METRIC)
    assert run(*TUNE, "--data", "data.npz") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(r"met: .*layer1.*accuracy 0\.99.*wrote model.tuned.onnx$", last)


def test_without_a_recipe_that_meets_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(*TUNE, "--recipe-out", "best.yaml", "--evaluate", "tests.tune.searchable:float_only")
    assert code == 8
    assert capsys.readouterr().out.splitlines()[-1].startswith("best effort: ")
    assert not (here / "model.tuned.onnx").exists()
    assert not (here / "best.yaml").exists()


@pytest.mark.parametrize("ends", ["sys.exit(0)", "raise KeyboardInterrupt"])
def test_an_evaluate_that_ends_its_process_is_a_failure(
    folder: Path, capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    (folder / "ends.py").write_text(f"import sys\ndef evaluate(session):\n    {ends}\n")
    assert run(*TUNE, "--evaluate", "ends:evaluate") == 9
    assert ends in capsys.readouterr().err


def test_a_model_with_a_fixed_batch_takes_the_files_batch_size(here: Path) -> None:
    fixed = onnx.load("model.onnx")
    for value in (*fixed.graph.input, *fixed.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 8
    onnx.save(fixed, "model.onnx")
    with np.load("data.npz") as data:
        np.savez("data.npz", **{name: data[name][:400] for name in data.files})
    loader = (
        "metric: {topk: 1}\n    dataloader: {batch_size: 8, dataset: {dummy: {shape: [8, 32]}}}"
    )
    (here / "conf.yaml").write_text(METRIC.replace("metric: {topk: 1}", loader))
    assert run(*TUNE, "--data", "data.npz") == 0


@pytest.mark.real_time
def test_the_deadline_ends_a_trial_that_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "conf.yaml").write_text(SMALL.replace("timeout: 0", "timeout: 1"))
    monkeypatch.setenv("OCTAVO_TEST_SECONDS", "100")
    begun = time.monotonic()
    assert run(*BY_EVALUATE) == 8
    assert time.monotonic() - begun < 1 + 5
    assert capsys.readouterr().out.splitlines()[-1].startswith("timed out after ")


@pytest.mark.parametrize("at", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_ctrl_c_ends_with_the_best_so_far_and_no_process_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    exhaustive = LONG.replace("tuning:\n", "tuning:\n  strategy: {name: exhaustive}\n")
    (folder / "conf.yaml").write_text(exhaustive)
    calls = folder / "calls"
    monkeypatch.setenv("OCTAVO_TEST_CALLS", str(calls))
    monkeypatch.setenv("OCTAVO_TEST_SECONDS", "0.3")

    def interrupt() -> None:
        wait_for(lambda: len(lines(calls)) >= at)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    begun = time.monotonic()
    assert run(*BY_EVALUATE) == 130
    assert time.monotonic() - begun < 60  # what was asked takes 600
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("interrupted after ")
    assert "Traceback" not in err
    pids = {int(pid) for pid in calls.read_text().split()}
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert not list(folder.glob(".octavo*"))


def undisturbed(evaluate: Any = None) -> Any:
    """The trials of the search of `RANDOM`, in this process."""
    options = {"objective": "modelsize", "strategy": "random", "max_trials": 10, "timeout": 600}
    return trials(tune("model.onnx", evaluate, seed=9527, **options).to_json())


def trials(text: str) -> Any:
    """The trials of a search, by number; to six digits what is measured of outputs, whose sums
    ONNX Runtime may take in another order."""
    found = json.loads(text)
    kept = ("key", "words", "recipe", "bytes", "meets")
    every = {
        trial["index"]: {name: trial[name] for name in kept}
        | {name: f"{trial[name]:.6g}" for name in ("accuracy", "score")}
        for trial in (found["baseline"], *found["trials"])
    }
    return every | {"best": found["best"]["index"]}


def test_killed_and_resumed_it_ends_as_one_undisturbed(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "conf.yaml").write_text(RANDOM)
    calls = here / "calls"
    monkeypatch.setenv("OCTAVO_TEST_CALLS", str(calls))
    command = (*BY_EVALUATE, "--json", "--workspace", "cut")
    with start(*command, OCTAVO_TEST_SECONDS="0.2") as process:
        wait_for(lambda: len(lines(calls)) >= 5)
        process.kill()
    assert run(*command, "--resume") == 0
    done = len(lines(calls))
    out = capsys.readouterr().out  # evaluate's lines come first
    assert trials(out[out.index("{") :]) == undisturbed(searchable.evaluate)
    # The float model, ten trials, and at most the one that the kill cut off twice.
    assert done in (11, 12)


MADE = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

def evaluate(model):
    return float(model(torch.ones(4, 32)).detach().abs().mean())
"""


def test_a_pytorch_model_by_its_factory(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(monkeypatch, "made_to_tune", MADE)
    Path("conf.yaml").write_text(SMALL.replace("onnxrt_integerops", "pytorch"))
    tune_it = ("tune", "conf.yaml", "--model", "made_to_tune:build")
    output = here / "build.tuned.safetensors"
    assert run(*tune_it, "--evaluate", "made_to_tune:evaluate") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"; wrote {output.name}")
    output.unlink()
    conf = Path("conf.yaml").read_text()
    Path("conf.yaml").write_text(conf.replace("dynamic_quant", "static_quant"))
    assert run(*tune_it) == 2
    assert "--approach dynamic" in capsys.readouterr().err
    assert run(*tune_it, "--approach", "dynamic", "--workspace", "other") == 0
    err = capsys.readouterr().err
    assert "post_training_static_quant is done as post_training_dynamic_quant" in err
    assert output.is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--recipe-out", "no/r.yaml"), "no"), (("--recipe", "int9"), "int9")],
)
def test_what_is_wrong_is_known_before_the_search(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.setattr("octavo.tune.tune", None)
    assert run(*TUNE, *arguments) in (2, 6)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x=1", {"x": (1,)}),
        ("ids=1x128,mask=1x128", {"ids": (1, 128), "mask": (1, 128)}),
        ("a=b=2X3", {"a=b": (2, 3)}),
    ],
)
def test_shapes_as_written(text: str, found: Any) -> None:
    assert shape_of(text) == found


@pytest.mark.parametrize("text", ["", "x", "x=", "=1", "x=0", "x=1x", "x=-1", "x=1,x=2", "x=1x1.5"])
def test_wrong_shapes_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--shape"):
        shape_of(text)
