"""`octavo report`: the page that it writes, and what it says where there is none."""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic

import octavo.onnx
from octavo.cli import evidence, main
from octavo.onnx import bench
from octavo.onnx.bench import BenchFile
from octavo.onnx.read.stored_report import stored_report
from octavo.results.evidence import FLOAT, ORT, QUANTIZED
from octavo.results.stored import outcomes_from_json, outcomes_to_json
from tests.cli_support import in_this_process
from tests.graphs import mlp, save

FACTORY = """
    import torch
    from torch import nn

    def make():
        print("the module talks")
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
"""
CONFIG = """
model: {name: m, framework: onnxrt_integerops}
quantization: {approach: post_training_dynamic_quant}
tuning: {exit_policy: {max_trials: 2}}
"""
BRIEF = ("--seconds", "0.2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with m.onnx and m.int8.onnx, of which one layer is left float."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evidence, "SECONDS", 0.2)
    # Processes of their own, which tests/test_cli_bench.py starts.
    monkeypatch.setattr(BenchFile, "peak_memory", lambda *_: 1)
    monkeypatch.setattr(bench, "call", in_this_process)
    save(mlp(3, 64), Path("m.onnx"))
    octavo.onnx.quantize_dynamic("m.onnx", "m.int8.onnx", nodes_to_exclude=["layer1"])
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    code = exit_.value.code
    return 0 if code is None else int(code)


def data_of(page: str | Path) -> dict[str, Any]:
    text = Path(page).read_text("utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_file_says_itself_what_became_of_its_layers(folder: Path) -> None:
    assert run("report", "m.onnx", "m.int8.onnx", "--html", "page.html", *BRIEF) == 0
    data = data_of("page.html")
    layers = {o["layer"]["name"]: o for o in data["report"]["layers"]}
    assert sorted(layers) == ["layer0", "layer1", "layer2"]
    assert [layers[n]["quantized"] for n in sorted(layers)] == [True, False, True]
    assert layers["layer1"]["reason"] == "excluded by name"
    compared = data["evidence"]["comparison"]["layers"]
    assert {layer["name"] for layer in compared} == {"layer0", "layer2"}
    assert data["report"]["model_bytes_after"] == Path("m.int8.onnx").stat().st_size


def test_all_three_models_are_timed_and_compared(folder: Path) -> None:
    assert run("report", "m.onnx", "m.int8.onnx", "--html", "page.html", *BRIEF) == 0
    found = data_of("page.html")["evidence"]
    assert [one["name"] for one in found["benchmark"]["models"]] == [FLOAT, QUANTIZED, ORT]
    assert found["benchmark"]["models"][0]["bytes"] == Path("m.onnx").stat().st_size
    ours, theirs = (found[k]["outputs"][0]["difference"]["error"] for k in ("comparison", "ort"))
    assert 0 < ours < theirs


def test_threads_and_shapes_are_those_that_were_asked_for(folder: Path) -> None:
    asked = ("--shape", "x=7x64", "--threads", "1")
    assert run("report", "m.onnx", "m.int8.onnx", "--html", "page.html", *BRIEF, *asked) == 0
    (pair, *_) = data_of("page.html")["evidence"]["benchmark"]["rows"]
    assert (pair["shape"], pair["threads"]) == ("x=7x64", 1)


@pytest.mark.parametrize("command", ["report", "quantize"])
@pytest.mark.parametrize("shape", [(), ("--shape", "x=7x64")], ids=["", "shape"])
def test_models_are_timed_on_the_inputs_that_are_given(
    folder: Path, command: str, shape: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("data.npz", x=np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32))
    asked = ("--inputs", "data.npz", "--threads", "1", *shape)
    if command == "report":
        words = ("m.onnx", "m.int8.onnx", "--html", "page.html", *BRIEF)
    else:
        words = ("m.onnx", "-o", "again.onnx", "--report", "page.html")
    assert run(command, *words, *asked) == 0
    out, err = capsys.readouterr()
    if command == "quantize":  # the report's verdict is the page's
        verdict = err.rpartition("page.html is written: ")[2].strip()
        assert " ".join(f"Verdict {verdict}".split()) in " ".join(out.split())
    found = data_of("page.html")["evidence"]
    assert {(pair["shape"], pair["threads"]) for pair in found["benchmark"]["rows"]} == {
        ("x=7x64" if shape else "x=5x64", 1)
    }
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
    octavo.onnx.quantize_dynamic("m.onnx", "t.onnx", recipe="int8-per-tensor")
    stored = stored_report(Path("t.onnx"), Path("m.onnx"))
    assert stored is not None
    assert stored.recipe == {"name": "int8-per-tensor", "max_error": 0.3}


def test_a_file_of_another_quantizer_has_no_reasons(folder: Path) -> None:
    quantize_dynamic("m.onnx", "theirs.onnx")
    assert run("report", "m.onnx", "theirs.onnx", "--html", "page.html", *BRIEF) == 0
    data = data_of("page.html")
    assert data["report"] is None
    assert len(data["evidence"]["comparison"]["layers"]) == 3


def test_quantize_writes_the_same_page(folder: Path) -> None:
    options = ("-o", "again.onnx", "--exclude", "layer1", "--report", "page.html")
    assert run("quantize", "m.onnx", *options) == 0
    data = data_of("page.html")
    assert {o["layer"]["name"] for o in data["report"]["layers"]} == {"layer0", "layer1", "layer2"}
    assert [one["name"] for one in data["evidence"]["benchmark"]["models"]] == [
        *(FLOAT, QUANTIZED, ORT)
    ]


@pytest.mark.parametrize("command", ["quantize", "tune"])
def test_what_was_printed_as_json_becomes_a_page(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "quantize":
        assert run("quantize", "m.onnx", "-o", "new.onnx", "--json") == 0
    else:
        Path("conf.yaml").write_text(CONFIG)
        assert run("tune", "conf.yaml", "--model", "m.onnx", "-o", "new.onnx", "--json") in (0, 8)
    printed = capsys.readouterr().out
    Path("run.json").write_text(printed)
    assert run("report", "run.json", "--html", "page.html") == 0
    data, given = data_of("page.html"), json.loads(printed)
    if command == "quantize":
        assert data["report"] == given
    else:
        shown = data["result"]["trials"]
        assert [t["accuracy"] for t in shown] == [t["accuracy"] for t in given["trials"]]


def test_pytorch_models(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("models_to_report.py").write_text(textwrap.dedent(FACTORY))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = "models_to_report:make", "m.safetensors"
    try:
        assert run("quantize", names[0], "-o", names[1]) == 0
        assert run("report", *names, "--html", "page.html", *BRIEF) == 0
        data = data_of("page.html")
        assert [one["name"] for one in data["evidence"]["benchmark"]["models"]] == [
            *(FLOAT, QUANTIZED)
        ]
        assert len(data["report"]["layers"]) == 2
        (pair,) = data["evidence"]["benchmark"]["rows"]
        rows = int(pair["shape"].partition("=")[2].partition("x")[0])
        model = data["evidence"]["benchmark"]["models"][0]
        assert model["per_second"] == pytest.approx(rows / model["seconds"])
        capsys.readouterr()
        options = ("-o", "again.safetensors", "--json", "--report", "page.html")
        assert run("quantize", names[0], *options) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["layers"] and "the module talks" in err
        assert any("PyTorch module" in note for note in data["evidence"]["notes"])
        assert run("report", *names, "--html", "page.html", "--threads", "1") == 2
        assert "--threads is for ONNX models" in capsys.readouterr().err
    finally:
        sys.modules.pop("models_to_report", None)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["m.onnx", "m.int8.onnx"], 2, "--html"),
        (["m.onnx", "--html", "p.html"], 2, "name the quantized model behind it"),
        (["m.onnx", "gone.onnx", "--html", "p.html"], 3, "gone.onnx does not exist"),
        (["gone.onnx", "m.int8.onnx", "--html", "p.html"], 3, "gone.onnx does not exist"),
        (["m.onnx", "m.onnx", "--html", "p.html"], 3, "m.onnx holds no quantized layers"),
        (["m.onnx", "m.int8.onnx", "--html", "p.txt"], 2, "--html p.txt: end the name with .html"),
        (["m.onnx", "m.int8.onnx", "--html", "p.html", "--shape", "x=1by2"], 2, "x=1by2"),
        (["m.onnx", "m.int8.onnx", "--html", "p.html", "--shape", "z=1x64"], 2, "'z'"),
        (["other.json", "--html", "p.html", "--threads", "1"], 2, "--threads says how to measure"),
        (["m.onnx", "m.int8.onnx", "--html", "no/p.html"], 6, "no"),
        (["m.onnx", "m.int8.onnx", "--html", "p.html", "--seconds", "0"], 2, "--seconds 0"),
        (
            ["m.onnx", "m.int8.onnx", "--html", "p.html", "--threads", "0"],
            2,
            "0 is not a whole number above 0",
        ),
        (["gone.json", "--html", "p.html"], 2, "gone.json does not exist"),
        (["bad.json", "--html", "p.html"], 2, "bad.json is not what octavo quantize --json"),
        (["other.json", "--html", "p.html"], 2, "other.json is not what octavo quantize --json"),
    ],
)
def test_errors_leave_no_page(
    arguments: list[str],
    code: int,
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("bad.json").write_text("{")
    Path("other.json").write_text('{"layers": 3}')
    before = sorted(Path().iterdir())
    assert run("report", *arguments) == code
    out, err = capsys.readouterr()
    assert out == "" and said in err
    assert sorted(Path().iterdir()) == before


def test_what_cannot_be_timed_is_a_note_and_the_rest_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise octavo.errors.ModelError("no timing today")

    monkeypatch.setattr("octavo.cli.bench.Bench.time", fails)
    assert run("quantize", "m.onnx", "-o", "again.onnx", "--report", "page.html") == 0
    found = data_of("page.html")["evidence"]
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
    options = ("-o", "again.onnx", "--report", "page.html", "--no-verify")
    assert run("quantize", "m.onnx", *options) == 0
    assert data_of("page.html")["evidence"] is None


def test_metadata_that_says_nothing_is_left_aside(folder: Path) -> None:
    model = onnx.load("m.int8.onnx")
    (entry,) = (p for p in model.metadata_props if p.key == "octavo.layers")
    other = json.dumps(json.loads(entry.value) | {"version": 3})
    cut = json.dumps(json.loads(entry.value) | {"deflate": json.loads(entry.value)["deflate"][:50]})
    for said in ("{", '[{"layer": 1}]', "[" * 10_000, "[3]", other, cut):
        entry.value = said
        onnx.save(model, "odd.onnx")
        assert stored_report(Path("odd.onnx"), Path("m.onnx")) is None
    assert run("report", "m.onnx", "odd.onnx", "--html", "page.html", *BRIEF) == 0
    assert data_of("page.html")["report"] is None


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
