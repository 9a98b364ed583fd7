"""`octavo report`: the page that it writes, and what it says where there is none."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic

import octavo.onnx
from octavo.onnx.read.stored_report import stored_report
from octavo.results.evidence import FLOAT, ORT, QUANTIZED, Evidence
from octavo.results.stored import outcomes_from_json, outcomes_to_json
from octavo.tune.runners import InProcess
from tests.cli_support import MAKES, printed, run, shorten_measurements, write_module
from tests.graphs import mlp, normal, save

CONFIG = """
model: {name: m, framework: onnxrt_integerops}
quantization: {approach: post_training_dynamic_quant}
tuning: {objective: modelsize, exit_policy: {max_trials: 2}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """m.onnx and m.int8.onnx, of which one layer is left float."""
    made = tmp_path_factory.mktemp("report")
    model = save(mlp(3, 64), made / "m.onnx")
    options: dict[str, Any] = {"nodes_to_exclude": ["layer1"], "verify": False}
    octavo.onnx.quantize_dynamic(model, made / "m.int8.onnx", **options)
    return made


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with both models."""
    monkeypatch.chdir(tmp_path)
    shorten_measurements(monkeypatch)
    for path in made.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def reported(*options: str, models: tuple[str, str] = ("m.onnx", "m.int8.onnx")) -> Any:
    """The data in the page of `octavo report`."""
    assert run("report", *models, "--html", "page.html", "--seconds", "0.1", *options) == 0
    return data_of("page.html")


def quantized(*options: str) -> Any:
    """The data in the page that `octavo quantize` writes."""
    assert run("quantize", "m.onnx", "-o", "again.onnx", "--report", "page.html", *options) == 0
    return data_of("page.html")


def data_of(page: str) -> Any:
    text = Path(page).read_text("utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])


def test_the_page_of_a_file_tells_its_layers_and_times_and_compares_all_models(
    folder: Path,
) -> None:
    data = reported("--shape", "x=7x64", "--threads", "1")
    layers = {o["layer"]["name"]: o for o in data["report"]["layers"]}
    assert {n: layer["quantized"] for n, layer in layers.items()} == {
        "layer0": True,
        "layer1": False,
        "layer2": True,
    }
    assert layers["layer1"]["reason"] == "excluded by name"
    assert data["report"]["model_bytes_after"] == Path("m.int8.onnx").stat().st_size
    found = data["evidence"]
    assert {layer["name"] for layer in found["comparison"]["layers"]} == {"layer0", "layer2"}
    assert [one["name"] for one in found["benchmark"]["models"]] == [FLOAT, QUANTIZED, ORT]
    assert found["benchmark"]["models"][0]["bytes"] == Path("m.onnx").stat().st_size
    assert {(p["shape"], p["threads"]) for p in found["benchmark"]["rows"]} == {("x=7x64", 1)}
    ours, theirs = (found[k]["outputs"][0]["difference"]["error"] for k in ("comparison", "ort"))
    assert 0 < ours < theirs


def test_quantize_writes_the_same_page(folder: Path) -> None:
    data = quantized("--exclude", "layer1")
    assert {o["layer"]["name"] for o in data["report"]["layers"]} == {"layer0", "layer1", "layer2"}
    models = data["evidence"]["benchmark"]["models"]
    assert [one["name"] for one in models] == [FLOAT, QUANTIZED, ORT]


@pytest.mark.parametrize("command", ["report", "quantize"])
def test_models_are_timed_on_the_inputs_that_are_given(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("data.npz", x=normal(5, 64))
    asked = ("--inputs", "data.npz", "--threads", "1")
    if command == "report":
        found, shape = reported(*asked)["evidence"], "x=5x64"
    else:
        found, shape = quantized(*asked, "--shape", "x=7x64")["evidence"], "x=7x64"
        out, err = capsys.readouterr()  # the report's verdict is the page's
        verdict = err.rpartition("page.html is written: ")[2].strip()
        assert " ".join(f"Verdict {verdict}".split()) in " ".join(out.split())
    assert {(p["shape"], p["threads"]) for p in found["benchmark"]["rows"]} == {(shape, 1)}
    assert found["comparison"]["inputs"] == "given"


@pytest.mark.parametrize("option", [("--shape", "x=7x64"), ("--threads", "1")])
def test_how_to_time_is_refused_where_nothing_is_timed(
    folder: Path, option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "m.onnx", "-o", "out.onnx", *option) == 2
    assert f"{option[0]} says how --report times the models" in capsys.readouterr().err
    assert run("quantize", "m.onnx", "-o", "out.onnx", "--report", "p.html", "--shape", "x") == 2
    assert not Path("out.onnx").exists() and not Path("p.html").exists()


def test_a_recipes_own_bound_judges_its_file(folder: Path) -> None:
    octavo.onnx.quantize_dynamic("m.onnx", "t.onnx", recipe="int8-per-tensor", verify=False)
    stored = stored_report(Path("t.onnx"), Path("m.onnx"))
    assert stored is not None
    assert stored.recipe == {"name": "int8-per-tensor", "max_error": 0.3}


def test_a_file_of_another_quantizer_has_no_reasons(folder: Path) -> None:
    quantize_dynamic("m.onnx", "theirs.onnx")
    data = reported(models=("m.onnx", "theirs.onnx"))
    assert data["report"] is None
    assert len(data["evidence"]["comparison"]["layers"]) == 3


@pytest.mark.parametrize("command", ["quantize", "tune"])
def test_what_was_printed_as_json_becomes_a_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr("octavo.tune.api.Workers", lambda setting, count: InProcess(setting))
    Path("conf.yaml").write_text(CONFIG)
    models = {"quantize": ["m.onnx"], "tune": ["conf.yaml", "--model", "m.onnx"]}[command]
    given = printed(capsys, command, *models, "-o", "new.onnx", codes=(0, 8))
    Path("run.json").write_text(json.dumps(given))
    assert run("report", "run.json", "--html", "page.html") == 0
    data = data_of("page.html")
    if command == "quantize":
        assert data["report"] == given
    else:
        shown = data["result"]["trials"]
        assert [t["accuracy"] for t in shown] == [t["accuracy"] for t in given["trials"]]


def test_pytorch_models(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(monkeypatch, "models_to_report", MAKES)
    names = "models_to_report:make", "m.safetensors"
    assert run("quantize", names[0], "-o", names[1]) == 0
    data = reported(models=names)
    models = data["evidence"]["benchmark"]["models"]
    assert [one["name"] for one in models] == [FLOAT, QUANTIZED]
    assert len(data["report"]["layers"]) == 2
    (pair,) = data["evidence"]["benchmark"]["rows"]
    rows = int(pair["shape"].partition("=")[2].partition("x")[0])
    assert models[0]["per_second"] == pytest.approx(rows / models[0]["seconds"])
    assert any("PyTorch module" in note for note in data["evidence"]["notes"])
    del sys.modules["models_to_report"]
    capsys.readouterr()
    monkeypatch.setattr("octavo.cli.evidence.evidence", lambda *_, **__: Evidence())
    options = ("-o", "again.safetensors", "--json", "--report", "page.html")
    assert run("quantize", names[0], *options) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["layers"] and "the module talks" in err


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ("m.onnx m.int8.onnx", 2, "--html"),
        ("m.onnx m.int8.onnx --html p.html --shape z=1x64", 2, "'z'"),
        ("gone.json --html p.html", 2, "gone.json"),
        ("bad.json --html p.html", 2, "bad.json"),
    ],
)
def test_errors_leave_no_page(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, named: str
) -> None:
    Path("bad.json").write_text("{")
    before = sorted(Path().iterdir())
    assert run("report", *arguments.split()) == code
    out, err = capsys.readouterr()
    assert out == "" and named in err
    assert sorted(Path().iterdir()) == before


def test_what_cannot_be_timed_is_a_note_and_the_rest_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise octavo.errors.ModelError("no timing today")

    monkeypatch.setattr("octavo.cli.bench.Bench.time", fails)
    found = quantized()["evidence"]
    assert found["benchmark"] is None
    assert found["notes"] == ["not timed: no timing today"]
    assert found["comparison"]["layers"] and found["ort"]["outputs"]


def test_a_page_is_there_before_anything_is_measured_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("octavo.cli.evidence.compared", interrupted)
    assert run("quantize", "m.onnx", "-o", "again.onnx", "--report", "page.html") == 130
    data = data_of("page.html")
    assert len(data["report"]["layers"]) == 3 and data["evidence"] is None
    assert "Quantized: 3 of 3 layers" in capsys.readouterr().out


def test_what_is_not_to_be_verified_is_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.cli.evidence.evidence", None)
    assert quantized("--no-verify")["evidence"] is None


def test_metadata_that_says_nothing_is_left_aside(folder: Path) -> None:
    model = onnx.load("m.int8.onnx")
    (entry,) = (p for p in model.metadata_props if p.key == "octavo.layers")
    other = json.dumps(json.loads(entry.value) | {"version": 3})
    cut = json.dumps(json.loads(entry.value) | {"deflate": json.loads(entry.value)["deflate"][:50]})
    for said in ("{", '[{"layer": 1}]', "[" * 10_000, "[3]", other, cut):
        entry.value = said
        onnx.save(model, "odd.onnx")
        assert stored_report(Path("odd.onnx"), Path("m.onnx")) is None


def test_infinite_figures_survive_in_a_file(folder: Path) -> None:
    save(mlp(1, 64, seed=5), Path("f.onnx"))
    made = octavo.onnx.quantize_dynamic("f.onnx", "f16.onnx", recipe="float16")
    stored = stored_report(Path("f16.onnx"), Path("f.onnx"))
    assert stored is not None
    assert [o.sqnr_db for o in stored.layers] == [
        None if o.sqnr_db is None else round(o.sqnr_db, 2) for o in made.layers
    ]
    (outcome, *_) = made.layers
    for sqnr in (math.inf, -math.inf, None, 3.5):
        again = outcomes_from_json(outcomes_to_json([replace(outcome, sqnr_db=sqnr)]))
        assert again == (replace(outcome, sqnr_db=sqnr),)
