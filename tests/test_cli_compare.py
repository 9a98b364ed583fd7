"""`octavo compare`: what it prints where, and what it exits with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import octavo.onnx
from tests.cli_support import MAKES, printed, run, write_module
from tests.graphs import mlp, normal, save


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """m.onnx and what both targets make of it."""
    made = tmp_path_factory.mktemp("compare")
    model = save(mlp(3, 64), made / "m.onnx")
    for target in ("portable", "native"):
        octavo.onnx.quantize_dynamic(model, made / f"{target}.onnx", target=target, verify=False)
    return made


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def test_a_page_and_json(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(tmp_path / "data.npz")
    np.savez(data, x=normal(5, 64))
    compare = ("compare", "m.onnx", "portable.onnx", "--inputs", data)
    assert run(*compare) == 0
    out, err = capsys.readouterr()
    assert out.startswith("m.onnx and portable.onnx, target portable\n1 run on inputs given\n")
    assert "Quantized layers: 3\n" in out
    assert "\x1b" not in out and err == ""
    found = printed(capsys, *compare)
    assert sorted(layer["name"] for layer in found["layers"]) == ["layer0", "layer1", "layer2"]
    assert found == json.loads(octavo.onnx.compare("m.onnx", "portable.onnx", data).to_json())


def test_a_plot_shows_outputs_and_layers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg, png = tmp_path / "error.svg", tmp_path / "error.PNG"
    assert run("compare", "m.onnx", "native.onnx", "--plot", str(svg)) == 0
    assert "error.svg is written" in capsys.readouterr().err
    for name in ("y", "layer0", "layer1", "layer2"):
        assert f">{name}<" in svg.read_text("utf-8")
    assert run("compare", "m.onnx", "native.onnx", "--plot", str(png)) == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_pytorch_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_module(monkeypatch, "models_to_compare", MAKES)
    names = "models_to_compare:make", "m.safetensors"
    assert run("quantize", names[0], "-o", names[1]) == 0
    del sys.modules["models_to_compare"]
    capsys.readouterr()
    assert run("compare", *names) == 0
    out, err = capsys.readouterr()
    said = f"{names[0]} and {names[1]}, target torch\n4 runs on inputs made up\n"
    assert out.startswith(said)
    assert "the module talks" in err
    Path("two.jsonl").write_text(
        "\n".join(json.dumps({"0": normal(2, 32, seed=i).tolist()}) for i in (1, 2))
    )
    data = printed(capsys, "compare", *names, "--inputs", "two.jsonl")
    assert (data["runs"], data["inputs"]) == (2, "given")
    values = {layer["name"]: layer["alone"]["values"] for layer in data["layers"]}
    assert values == {"0": 4 * 64, "2": 4 * 10}
