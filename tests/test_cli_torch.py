"""The command line with PyTorch models, named `module:factory`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import octavo.torch
from tests import fresh
from tests.cli_support import printed, run, write_module

SOURCE = """
    import os, sys
    import torch
    from torch import nn

    print("the module talks")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(64, 128), nn.GELU())
            self.conv = nn.Conv1d(3, 4, 3)
            self.lstm = nn.LSTM(128, 16, num_layers=2)
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            return self.head(self.lstm(self.enc(x))[0])

    def make():
        print("the factory talks")
        torch.manual_seed(0)
        return Net()

    class Zoo:
        @staticmethod
        def small():
            return nn.Linear(8, 8)

        class inner:
            make = staticmethod(make)

    def broken():
        raise RuntimeError("no weights\\x1b here")

    def leaves():
        sys.exit("bye")

    def lazy():
        return nn.Sequential(nn.LazyLinear(2))

    needs_one = lambda size: Net()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module `models` in it."""
    monkeypatch.chdir(tmp_path)
    write_module(monkeypatch, "models", SOURCE)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"models.py"}


def factory() -> Any:
    return sys.modules["models"].make()


def test_a_model_is_written_that_load_reads(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "models:make") == 0
    assert files(folder) == {"make.int8.safetensors"}
    out, err = capsys.readouterr()
    assert out.startswith("models:make -> make.int8.safetensors\nrecipe int8, target torch\n\n")
    assert "Quantized: 4 of 5 layers" in out
    assert "Check    skipped: no inputs to compare with\n" in out
    assert "Tensors  80.2 kB -> 23.0 kB (3.5x smaller)\n" in out
    for word in ("ONNX", "opset", "cpu", "format", "--ops", "talks"):
        assert word not in out
    assert err == "the module talks\nthe factory talks\n"
    loaded = octavo.torch.load("make.int8.safetensors", factory)
    expected = octavo.torch.quantize_dynamic(factory(), recipe="int8")
    x = torch.randn(3, 2, 64)
    assert torch.equal(loaded(x), expected(x))
    assert octavo.torch.report(loaded).recipe["name"] == "int8"


def test_the_report_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "quantize", "models:Zoo.inner.make", "-o", "x.safetensors")
    assert (said["source"], said["output"]) == ("models:Zoo.inner.make", "x.safetensors")
    assert [o["layer"]["name"] for o in said["layers"]] == [
        *("enc.0", "conv", "lstm.l0", "lstm.l1", "head")
    ]


def test_layers_are_chosen_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def quantized(*options: str) -> list[str]:
        said = printed(capsys, "quantize", "models:make", "--force", *options)
        return [o["layer"]["name"] for o in said["layers"] if o["quantized"]]

    assert quantized("--exclude", "lstm") == ["enc.0", "head"]
    assert quantized("--exclude", "lstm.l0", "--exclude", "en*") == ["lstm.l1", "head"]
    assert quantized("--only", "lstm.*") == ["lstm.l0", "lstm.l1"]
    assert quantized("--only", "lstm", "--exclude", "*.l1") == ["lstm.l0"]
    assert quantized("--only", "conv") == ["conv"]  # said in full, though the preset has it float
    assert quantized("--only", "*") == ["enc.0", "lstm.l0", "lstm.l1", "head"]


def test_a_verbose_report_and_a_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.yaml").write_text(
        "base: int8\nname: mine\nrules:\n- {kind: lstm, scheme: float}\n"
    )
    assert run("quantize", "models:make", "--recipe", "mine.yaml", "--verbose") == 0
    out = capsys.readouterr().out
    assert "recipe mine, target torch" in out
    assert "  enc.0  128x64" in out
    assert "the recipe's rule for kind 'lstm'" in out


def test_float16_has_its_own_suffix(folder: Path) -> None:
    assert run("quantize", "models:Zoo.small", "--recipe", "float16") == 0
    assert files(folder) == {"small.fp16.safetensors"}
    loaded = octavo.torch.load("small.fp16.safetensors", lambda: nn.Linear(8, 8))
    assert loaded.packed.dtype == torch.float16


def test_an_output_that_exists_needs_force(folder: Path) -> None:
    out = folder / "make.int8.safetensors"
    out.write_bytes(b"old")
    assert run("quantize", "models:make") == 6
    assert out.read_bytes() == b"old"
    assert run("quantize", "models:make", "--force") == 0
    assert out.stat().st_size > 1000
    assert run("quantize", "models:make", "-o", str(folder)) == 6
    assert run("quantize", "models:make", "-o", "no/where.safetensors") == 6
    assert files(folder) == {"make.int8.safetensors"}


def test_inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "models:make", "--recipe", "int8-accurate") == 0
    out, err = capsys.readouterr()
    assert out.startswith("models:make\n")
    assert " kB, 5 layers with " in out.splitlines()[1]
    assert "What the recipe int8-accurate would do:" in out
    assert "Quantize: int8 per channel, affine, activations per group of 128\n  2 Linear" in out
    assert "Quantize: int8 per channel, activations per row: symmetric weights, not affine" in out
    assert "Leave float: a convolution of 4 outputs, each a sum of 9 products, is float" in out
    assert "ONNX" not in out and "opset" not in out
    assert err == "the module talks\nthe factory talks\n"
    assert files(folder) == set()
    said = printed(capsys, "inspect", "models:make")
    assert said["model"] == "models:make"
    assert [layer["quantized"] for layer in said["layers"]] == [True, False, True, True, True]
    assert "opset" not in said


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("quantize models:make --cpu=vnni", "--cpu"),  # the default, but said
        ("inspect models:make --format=qoperator", "--format"),
        ("quantize models:make -o Z.ONNX --force", "Z.ONNX"),
    ],
)
def test_what_is_for_onnx_is_refused_before_the_module_runs(
    line: str, named: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*line.split()) == 2
    error = capsys.readouterr().err
    assert named in error and "models:make is a PyTorch model" in error
    assert "models" not in sys.modules
    assert files(folder) == set()


@pytest.mark.parametrize(
    ("model", "code", "named"),
    [
        ("models:Zoo.big", 3, "models.Zoo has no 'big'. Known: inner, small"),
        ("models:broken", 3, r"RuntimeError: no weights\x1b here"),
        ("models:leaves", 3, "SystemExit: bye"),
        ("models:needs_one", 3, "'size'"),
        ("models:lazy", 3, "0.weight"),
    ],
)
def test_what_is_wrong_with_a_factory(
    model: str, code: int, named: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", model, "-o", "out.safetensors") == code
    error = capsys.readouterr().err
    assert f"error: {model}" in error or model == "models:lazy"
    assert named in error
    assert files(folder) == set()


@pytest.mark.parametrize(
    ("text", "error"),
    [("import not_there\n", "ModuleNotFoundError"), ("def f(:\n", "SyntaxError")],
)
def test_modules_that_cannot_be_imported(
    text: str, error: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "other.py").write_text(text)
    assert run("inspect", "other:make") == 3
    said = capsys.readouterr().err
    assert "other:make" in said and error in said
    assert f"{folder}/other.py:1" in said


def test_nothing_to_quantize_is_written_if_allowed(folder: Path) -> None:
    assert run("quantize", "models:make", "--exclude", "*") == 4
    assert files(folder) == set()
    assert run("quantize", "models:make", "--exclude", "*", "--allow-nothing") == 0
    loaded = octavo.torch.load("make.int8.safetensors", factory)
    assert octavo.torch.report(loaded).quantized == ()


def test_what_is_no_onnx_model_but_one_of_pytorch_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inspect", "models") == 3
    assert "models:<callable>" in capsys.readouterr().err
    assert run("quantize", "models:make", "-o", "out.safetensors") == 0
    capsys.readouterr()
    assert run("inspect", "out.safetensors") == 3
    assert "octavo.torch.load reads it" in capsys.readouterr().err


def test_a_file_with_a_colon_is_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "models:make").write_bytes(b"no ONNX")
    assert run("inspect", "models:make") == 3
    assert "models" not in sys.modules


def test_without_torch(folder: Path) -> None:
    code = """
        import sys
        sys.modules["torch"] = None
        from octavo.cli import main
        main(["quantize", "models:make"])
    """
    done = fresh.python(code, cwd=folder, check=False)
    assert done.returncode == 3
    assert "pip install torch" in done.stderr and done.stderr.count("\n") == 1


def test_pytorch_models_load_no_onnx(folder: Path) -> None:
    code = """
        import sys
        for name in [name for name in sys.modules if name.partition(".")[0].startswith("onnx")]:
            del sys.modules[name]
        sys.modules["onnx"] = sys.modules["onnxruntime"] = None  # importing them fails
        from octavo.cli import main
        main(["quantize", "models:make", "--json"])
    """
    assert json.loads(fresh.python(code, cwd=folder).stdout)["target"] == "torch"
