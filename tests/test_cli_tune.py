"""`octavo tune` from end to end: real models, real worker processes, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.cli import main
from octavo.cli.options import shape_of
from octavo.errors import OptionError, OutputError
from octavo.recipe import load_recipe
from octavo.tune import tune
from tests.graphs import normal, run
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
EVALUATE = "tests.tune.searchable:evaluate"
ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    searchable.write(tmp_path)
    (tmp_path / "conf.yaml").write_text(SMALL)
    return tmp_path


def octavo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with start(*arguments, **environment) as process:
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from octavo.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment},
    )


def exits(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons in turns take no time to speak of."""
    monkeypatch.setattr("octavo.tune.contest.SECONDS", 0.2)


@pytest.mark.usefixtures("short")
def test_the_file_as_people_have_it_works_as_it_stands(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = folder / "bert.yaml"
    conf.write_text(NEURAL_COMPRESSOR)
    before = (conf.read_bytes(), conf.stat().st_mtime_ns)
    searchable.write(folder, bad=None)
    arguments = ("bert.yaml", "--model", "model.onnx", "--shape", "x=8x32", "--plot", "t.svg")
    assert exits("tune", *arguments) == 0
    out, err = capsys.readouterr()
    assert "t.svg is written" in err
    assert ">Accuracy against time of " in (folder / "t.svg").read_text("utf-8")
    assert (conf.read_bytes(), conf.stat().st_mtime_ns) == before
    last = out.splitlines()[-1]
    assert re.match(r"met \(agreement only\): int.*: agreement 0\.99", last)
    assert last.endswith("; wrote model.tuned.onnx")
    assert "sampling_size does nothing here" in err
    assert "\nMade for  " in out
    assert re.search(r"\nEnded +(by itself|at the first recipe that met).*timeout 0\); give", out)
    assert "\x1b" not in out + err
    history = (folder / "octavo_tuning" / "bert" / "history.jsonl").read_text().splitlines()
    assert "trial" in [json.loads(line)["kind"] for line in history]


def test_the_bad_layer_alone_is_changed_and_the_recipe_gives_the_same_model(folder: Path) -> None:
    done = octavo(
        *("tune", "conf.yaml", "--model", "model.onnx", "--evaluate", EVALUATE, "-o", "best.onnx"),
        *(
            "--recipe",
            "int8",
            "--recipe-out",
            "best.yaml",
            "--report",
            "best.html",
            "--workspace",
            "work",
            "--json",
        ),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # what evaluate prints is not in it
    assert "evaluating" in done.stderr
    assert result["status"] == "met"
    assert result["ranking"][0][0] == "layer1"
    assert len(result["trials"]) <= 5
    changed = [rule["name"] for rule in result["best"]["recipe"]["rules"] if "name" in rule]
    assert changed == ["layer1"]
    assert load_recipe("best.yaml").to_dict() == result["best"]["recipe"]
    assert exits("quantize", "model.onnx", "--recipe", "best.yaml", "-o", "again.onnx") == 0
    x = normal(9, 32)
    for a, b in zip(
        run(Path("best.onnx"), {"x": x}), run(Path("again.onnx"), {"x": x}), strict=True
    ):
        assert np.array_equal(a, b)
    assert "layer1" in (folder / "best.html").read_text()
    lines = [json.loads(line) for line in (folder / "work/history.jsonl").read_text().splitlines()]
    trials = [line["value"]["index"] for line in lines if line["kind"] == "trial"]
    assert trials == [trial["index"] for trial in result["trials"]]


@pytest.mark.parametrize("fails", ["plot", "page", "recipe"])
def test_whichever_file_cannot_be_written_the_others_are(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: str,
) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise OutputError(f"the {fails} cannot be written")

    home = {"plot": "plotted", "page": "write_page", "recipe": "write_recipe"}[fails]
    searched = result(output="", trials=(BEST,))
    monkeypatch.setattr("octavo.tune.tune", lambda *given, **options: searched)
    monkeypatch.setattr(f"octavo.cli.tune_steps.{home}", refuse)
    files = {"plot": "search.svg", "page": "search.html", "recipe": "best.yaml"}
    options = ("--plot", files["plot"], "--report", files["page"], "--recipe-out", files["recipe"])
    assert exits("tune", "conf.yaml", "--model", "model.onnx", *options) == OutputError.exit_code
    out, err = capsys.readouterr()
    assert f"the {fails} cannot be written" in err
    assert "met: int8, 1 of 12 layers float (fc3)" in out
    there = {name for name, file in files.items() if (folder / file).exists()}
    assert there == {*files} - {fails}


METRIC = SMALL.replace(
    "tuning:\n", "evaluation:\n  accuracy:\n    metric:\n      topk: 1\n\ntuning:\n"
)


def test_a_metric_of_the_file_on_a_data_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "conf.yaml").write_text(METRIC)
    assert exits("tune", "conf.yaml", "--model", "model.onnx") == 2
    assert "--data" in capsys.readouterr().err
    assert exits("tune", "conf.yaml", "--model", "model.onnx", "--data", "data.npz") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(r"met: .*layer1.*accuracy 0\.99.*wrote model.tuned.onnx$", last)


def test_without_a_recipe_that_meets_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = exits(
        *("tune", "conf.yaml", "--model", "model.onnx", "--recipe-out", "best.yaml"),
        *("--evaluate", "tests.tune.searchable:float_only"),
    )
    assert code == 8
    assert capsys.readouterr().out.splitlines()[-1].startswith("best effort: ")
    assert not (folder / "model.tuned.onnx").exists()
    assert not (folder / "best.yaml").exists()


def test_an_evaluate_that_fails_on_the_float_model_shows_its_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = exits(
        *("tune", "conf.yaml", "--model", "model.onnx"),
        *("--evaluate", "tests.tune.searchable:failing"),
    )
    assert code == 9
    assert 'raise ValueError("the labels are gone")' in capsys.readouterr().err


def test_an_evaluate_that_ends_its_process_is_a_failure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ends.py").write_text(
        "import sys\ndef evaluate(session):\n    sys.exit(0)\n"
        "def stops(session):\n    raise KeyboardInterrupt\n"
    )
    for name, error in (("evaluate", "SystemExit: 0"), ("stops", "KeyboardInterrupt")):
        code = exits("tune", "conf.yaml", "--model", "model.onnx", "--evaluate", f"ends:{name}")
        assert code == 9
        assert error in capsys.readouterr().err


def test_a_model_with_a_fixed_batch_takes_the_files_batch_size(folder: Path) -> None:
    fixed = onnx.load("model.onnx")
    for value in (*fixed.graph.input, *fixed.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 8
    onnx.save(fixed, "fixed.onnx")
    loader = (
        "metric: {topk: 1}\n    dataloader: {batch_size: 8, dataset: {dummy: {shape: [8, 32]}}}"
    )
    (folder / "conf.yaml").write_text(METRIC.replace("metric:\n      topk: 1", loader))
    assert exits("tune", "conf.yaml", "--model", "fixed.onnx", "--data", "data.npz") == 0


@pytest.mark.real_time
def test_the_deadline_ends_a_trial_that_runs(folder: Path) -> None:
    (folder / "conf.yaml").write_text(SMALL.replace("timeout: 0", "timeout: 6"))
    begun = time.monotonic()
    done = octavo(
        *("tune", "conf.yaml", "--model", "model.onnx", "--evaluate", EVALUATE),
        OCTAVO_TEST_SECONDS="100",
    )
    assert time.monotonic() - begun < 6 + 2 + 5  # seconds, imports of the command itself included
    assert done.returncode == 8, done.stderr
    assert done.stdout.splitlines()[-1].startswith("timed out after ")


@pytest.mark.parametrize("at", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_ctrl_c_ends_with_the_best_so_far_and_no_process_left(folder: Path, at: int) -> None:
    (folder / "conf.yaml").write_text(
        SMALL.replace("timeout: 0", "timeout: 600").replace(
            "tuning:\n", "tuning:\n  strategy:\n    name: exhaustive\n"
        )
    )
    calls = folder / "calls"
    with start(
        *("tune", "conf.yaml", "--model", "model.onnx", "--evaluate", EVALUATE),
        OCTAVO_TEST_CALLS=str(calls),
        OCTAVO_TEST_SECONDS="0.6",
    ) as process:
        wait_for(lambda: calls.exists() and len(calls.read_text().splitlines()) >= at)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < 20  # what was asked takes 600
    assert process.returncode == 130, err
    assert out.splitlines()[-1].startswith("interrupted after ")
    assert "Traceback" not in err
    pids = {int(pid) for pid in calls.read_text().split()}
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert not list(folder.glob(".octavo*"))


def wait_for(true: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def undisturbed(evaluate: Any = None) -> str:
    """The same search in this process, as JSON."""
    found = tune(
        "model.onnx",
        evaluate,
        objective="modelsize",
        strategy="random",
        max_trials=10,
        timeout=600,
        seed=9527,
    )
    return found.to_json()


def test_killed_and_resumed_it_ends_as_one_undisturbed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "conf.yaml").write_text(
        SMALL.replace("timeout: 0", "timeout: 600\n    max_trials: 10").replace(
            "tuning:\n", "tuning:\n  strategy:\n    name: random\n"
        )
    )
    command = ("tune", "conf.yaml", "--model", "model.onnx", "--evaluate", EVALUATE, "--json")
    calls = folder / "calls"
    with start(
        *command, "--workspace", "cut", OCTAVO_TEST_CALLS=str(calls), OCTAVO_TEST_SECONDS="0.2"
    ) as process:
        wait_for(lambda: calls.exists() and len(calls.read_text().splitlines()) >= 5)
        process.kill()
    resumed = octavo(*command, "--workspace", "cut", "--resume", OCTAVO_TEST_CALLS=str(calls))
    assert resumed.returncode == 0, resumed.stderr
    monkeypatch.delenv("OCTAVO_TEST_CALLS", raising=False)
    assert trials(resumed.stdout) == trials(undisturbed(searchable.evaluate))
    # The float model, ten trials, and at most the one that the kill cut off twice.
    assert len(calls.read_text().splitlines()) in (11, 12)


def trials(text: str) -> Any:
    found = json.loads(text)
    kept = ("index", "key", "words", "recipe", "accuracy", "bytes", "score", "meets")
    return [
        {name: trial[name] for name in kept}
        for trial in (found["baseline"], found["best"], *found["trials"])
    ]


def test_a_pytorch_model_by_its_factory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "made.py").write_text(
        "import torch\n"
        "def build():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), "
        "torch.nn.Linear(64, 8))\n"
        "def evaluate(model):\n"
        "    return float(model(torch.ones(4, 32)).abs().mean())\n"
    )
    (folder / "conf.yaml").write_text(SMALL.replace("onnxrt_integerops", "pytorch"))
    code = exits("tune", "conf.yaml", "--model", "made:build", "--evaluate", "made:evaluate")
    assert code == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("; wrote build.tuned.safetensors")
    assert (folder / "build.tuned.safetensors").is_file()


def test_a_static_file_of_pytorch_runs_with_the_option_that_its_error_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "made.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(32, 64))\n"
    )
    static = SMALL.replace("onnxrt_integerops", "pytorch").replace("dynamic", "static")
    (folder / "conf.yaml").write_text(static)
    arguments = ("tune", "conf.yaml", "--model", "made:build")
    assert exits(*arguments) == 2
    assert "Run the file as dynamic: --approach dynamic" in capsys.readouterr().err
    assert exits(*arguments, "--approach", "dynamic") == 0
    assert "post_training_static_quant is done as post_training_dynamic_quant" in (
        capsys.readouterr().err
    )
    assert (folder / "build.tuned.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("conf.yaml",), "give it with --model"),
        (("none.yaml", "--model", "model.onnx"), "none.yaml"),
        (("conf.yaml", "--model", "none.onnx"), "none.onnx"),
        (("conf.yaml", "--model", "made:build"), "framework onnxrt_integerops"),
        (("conf.yaml", "--model", "model.onnx", "--shape", "x"), "NAME=SIZExSIZE"),
        (("conf.yaml", "--model", "model.onnx", "--shape", "y=1x32"), "'y'"),
        (("conf.yaml", "--model", "model.onnx", "-o", "no/best.onnx"), "does not exist"),
        (("conf.yaml", "--model", "model.onnx", "-o", "best.safetensors"), ".onnx"),
        (
            ("conf.yaml", "--model", "model.onnx", "--recipe-out", "no/r.yaml"),
            "folder no of the output",
        ),
        (("conf.yaml", "--model", "model.onnx", "--recipe-out", "conf.yaml"), "named twice"),
        (("conf.yaml", "--model", "model.onnx", "--recipe-out", "model.onnx"), ".yaml"),
        (("conf.yaml", "--model", "model.onnx", "--report", "data.npz"), ".html"),
        (("conf.yaml", "--model", "model.onnx", "--workers", "2", "--dask", "x"), "one of them"),
        (("conf.yaml", "--model", "model.onnx", "--evaluate", "tests/x.py"), "module:function"),
        (("conf.yaml", "--model", "model.onnx", "--data", "none.npz"), "none.npz"),
        (("conf.yaml", "--model", "model.onnx", "--dask", "tcp://127.0.0.1:9"), "no scheduler"),
        (("conf.yaml", "--model", "model.onnx", "--recipe", "int9"), "'int9'"),
        (("conf.yaml", "--model", "model.onnx", "--evaluate", "none:f"), "no module 'none'"),
    ],
)
def test_wrong_arguments_are_one_line_and_write_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], words: str
) -> None:
    before = sorted(p.name for p in folder.iterdir())
    assert exits("tune", *arguments) in (2, 3, 6, 9)
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    left = sorted(p.name for p in folder.iterdir() if p.name != "octavo_tuning")
    assert left == before


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


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two worker processes on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    place = ["--host", "127.0.0.1", "--no-dashboard"]
    port = address.rpartition(":")[2]
    commands = [["scheduler", *place, "--port", port]]
    commands += [["worker", address, *place, "--nthreads", "1", "--no-nanny"] for _ in range(2)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]
    try:
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_dask_cluster_that_loses_a_worker_finds_the_same(
    folder: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    from distributed import Client

    address, workers = cluster
    with Client(address, timeout="30s", set_as_default=False) as client:
        client.wait_for_workers(2, timeout=30)
    (folder / "conf.yaml").write_text(
        SMALL.replace("timeout: 0", "timeout: 600\n    max_trials: 10").replace(
            "tuning:\n", "tuning:\n  strategy:\n    name: random\n"
        )
    )
    command = ("tune", "conf.yaml", "--model", str(folder / "model.onnx"), "--json")
    history = folder / "dask" / "history.jsonl"
    with start(*command, "--dask", address, "--workspace", "dask") as process:
        wait_for(lambda: history.exists() and history.read_text().count('"trial"') >= 2)
        workers[0].kill()
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert trials(out) == trials(undisturbed())
    assert not any(trial["error"] for trial in json.loads(out)["trials"])
    assert len(json.loads(out)["trials"]) == 10
