"""`octavo compare`: what it prints where, and what it exits with."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import octavo.onnx
from octavo.cli import main
from tests.graphs import mlp, normal, save

FACTORY = """
    import torch
    from torch import nn

    print("the module talks")

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with m.onnx and what both targets make of it."""
    monkeypatch.chdir(tmp_path)
    save(mlp(3, 64), Path("m.onnx"))
    for target in ("portable", "native"):
        octavo.onnx.quantize_dynamic("m.onnx", f"{target}.onnx", target=target)
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    code = exit_.value.code
    return 0 if code is None else int(code)


@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_page_and_json(target: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("data.npz", x=normal(5, 64))
    assert run("compare", "m.onnx", f"{target}.onnx", "--inputs", "data.npz") == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"m.onnx and {target}.onnx, target {target}\n1 run on inputs given\n")
    assert "Quantized layers: 3\n" in out
    assert "\x1b" not in out and err == ""
    assert run("compare", "m.onnx", f"{target}.onnx", "--inputs", "data.npz", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert sorted(layer["name"] for layer in data["layers"]) == ["layer0", "layer1", "layer2"]
    found = octavo.onnx.compare("m.onnx", f"{target}.onnx", "data.npz")
    assert data == json.loads(found.to_json())


def test_a_plot_shows_outputs_and_layers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", "m.onnx", "native.onnx", "--plot", "error.svg") == 0
    assert "error.svg is written" in capsys.readouterr().err
    for name in ("y", "layer0", "layer1", "layer2"):
        assert f">{name}<" in Path("error.svg").read_text("utf-8")
    assert run("compare", "m.onnx", "native.onnx", "--plot", "error.PNG") == 0
    assert Path("error.PNG").read_bytes().startswith(b"\x89PNG")


def test_help_loads_neither_numpy_nor_matplotlib() -> None:
    code = (
        "import sys\nfrom octavo.cli import main\n"
        "try:\n    main(['bench', '--help'])\n"
        "finally:\n    print(sorted({'numpy', 'matplotlib'} & {*sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["m.onnx", "gone.onnx"], 3, "gone.onnx does not exist"),
        (["native.onnx", "m.onnx"], 3, "native.onnx holds quantized layers"),
        (["m.onnx", "m.onnx"], 3, "m.onnx holds no quantized layers"),
        (["m.onnx", "native.onnx", "--inputs", "gone.npz"], 2, "gone.npz: no such file"),
        (["m.onnx", "m.safetensors"], 2, "or its checkpoint's folder, not m.onnx"),
        (["models:make", "native.onnx"], 2, "models:make is a PyTorch model and native.onnx"),
    ],
)
def test_errors_are_one_line_and_a_code(
    arguments: list[str],
    code: int,
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("compare", *arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert said in err


def test_pytorch_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models_to_compare.py").write_text(textwrap.dedent(FACTORY))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = "models_to_compare:make", "m.safetensors"
    try:
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
        assert run("compare", *names, "--inputs", "two.jsonl", "--json") == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["runs"], data["inputs"]) == (2, "given")
        values = {layer["name"]: layer["alone"]["values"] for layer in data["layers"]}
        assert values == {"0": 4 * 64, "2": 4 * 10}
        np.savez("bad.npz", data=np.ones((2, 32)))
        assert run("compare", *names, "--inputs", "bad.npz") == 2
        assert "forward has no input 'data'" in capsys.readouterr().err
        Path("list.jsonl").write_text("[1, 2]")
        assert run("compare", *names, "--inputs", "list.jsonl") == 2
        assert "a run maps names of inputs to arrays" in capsys.readouterr().err
    finally:
        sys.modules.pop("models_to_compare", None)
