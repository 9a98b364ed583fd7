"""The command line with checkpoints of transformers: folders, and names in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from tests.cli_support import printed, run
from tests.torch.hub.families import FAMILIES, checkpoint, load, outputs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a checkpoint in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    path = checkpoint(FAMILIES[0], tmp_path / "bert")
    (path / "vocab.txt").write_text("[PAD]")
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_inspect_reads_headers_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.BertModel, "from_pretrained", None)
    assert run("inspect", "bert") == 0
    out, err = capsys.readouterr()
    assert out.startswith("bert\n") and err == ""
    assert "kB -> about " in out and "attention.self.query" in out
    said = printed(capsys, "inspect", "bert")
    assert said["bytes_after"] < said["model_bytes"] / 2
    assert run("inspect", "bert", "--target", "native") == 2
    assert "give --to" in capsys.readouterr().err


def test_a_checkpoint_is_quantized_for_from_pretrained(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "bert", "--exclude", "pooler.dense") == 0
    out, err = capsys.readouterr()
    assert out.startswith("bert -> bert-int8\nrecipe int8, target torch\n") and err == ""
    assert names(folder) == {"bert", "bert-int8"}
    assert names(folder / "bert-int8") == {
        "config.json",
        "model.safetensors",
        "octavo_report.json",
        "vocab.txt",
    }
    inputs = FAMILIES[0].inputs()
    wanted = outputs(load(FAMILIES[0], folder / "bert"), inputs)
    made = load(FAMILIES[0], folder / "bert-int8")
    assert isinstance(made.pooler.dense, torch.nn.Linear)
    assert 0 < float((outputs(made, inputs) - wanted).norm() / wanted.norm()) < 0.05

    assert run("quantize", "bert") == 6
    assert run("quantize", "bert", "--force") == 0
    assert run("quantize", "bert", "-o", "bert", "--force") == 6
    assert run("quantize", "bert-int8") == 3
    assert run("compare", "bert", "bert-int8") == 0
    assert "last_hidden_state" in capsys.readouterr().out


def test_a_checkpoint_is_saved_as_one_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "bert", "-o", "m.safetensors") == 0
    assert (folder / "m.safetensors").is_file()
    capsys.readouterr()
    assert run("compare", "bert", "m.safetensors") == 0
    assert "bert and m.safetensors, target torch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ("quantize bert --ops Conv", 2, "--ops"),
        ("quantize bert --cpu any", 2, "--cpu"),
        ("quantize bert -o m.safetensors --to onnx", 2, "--to onnx writes a folder"),
        ("quantize m.onnx --to onnx", 2, "--to"),
        ("quantize bert --only pooler.dens", 2, "'pooler.dense'"),
        ("quantize owner/name", 3, "HF_HUB_OFFLINE"),
        ("bench bert --against ort", 2, "bert is a checkpoint"),
    ],
)
def test_what_does_not_go_together(
    folder: Path, line: str, code: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*line.split()) == code
    assert named in capsys.readouterr().err
    assert names(folder) == {"bert"}


@pytest.mark.slow
def test_folders_are_timed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quantize", "bert") == 0
    assert run("quantize", "bert", "--to", "native", "-o", "native") == 0
    found = printed(capsys, "bench", "bert", "bert-int8", "native", "--seconds", "1")
    assert [row["name"] for row in found["models"]] == ["bert", "bert-int8", "native"]


@pytest.mark.slow
def test_a_folder_is_tuned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c.yaml").write_text(
        "model: {name: m, framework: pytorch}\n"
        "quantization: {approach: post_training_dynamic_quant}\n"
        "tuning: {accuracy_criterion: {relative: 0.1}, exit_policy: {max_trials: 2}}\n"
    )
    assert run("tune", "c.yaml", "--model", "bert", "-o", "tuned") == 0
    assert "octavo_report.json" in names(folder / "tuned")
