"""The command line with PyTorch models, named `module:factory`."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import octavo.torch
from octavo.cli import main

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

    def three():
        return 3

    def bad():
        model = nn.Linear(2, 2)
        model.weight.data[0, 0] = float("nan")
        return model

    def lazy():
        return nn.Sequential(nn.LazyLinear(2))

    def bare():
        return nn.Sequential(nn.ReLU())

    needs_one = lambda size: Net()
    ready = Net()
    number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module `models` in it."""
    (tmp_path / "models.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    code = exit_.value.code
    return 0 if code is None else int(code)


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
    assert run("quantize", "models:Zoo.inner.make", "-o", "x.safetensors", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["source"], said["output"]) == ("models:Zoo.inner.make", "x.safetensors")
    assert [o["layer"]["name"] for o in said["layers"]] == [
        *("enc.0", "conv", "lstm.l0", "lstm.l1", "head")
    ]


def test_layers_are_chosen_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def quantized(*options: str) -> list[str]:
        assert run("quantize", "models:make", "--force", "--json", *options) == 0
        said = json.loads(capsys.readouterr().out)
        return [o["layer"]["name"] for o in said["layers"] if o["quantized"]]

    assert quantized("--exclude", "lstm") == ["enc.0", "head"]
    assert quantized("--exclude", "lstm.l0", "--exclude", "en*") == ["lstm.l1", "head"]
    assert quantized("--only", "lstm.*") == ["lstm.l0", "lstm.l1"]
    assert quantized("--only", "lstm", "--exclude", "*.l1") == ["lstm.l0"]
    assert quantized("--only", "conv") == ["conv"]  # said in full, though the preset has it float
    assert quantized("--only", "*") == ["enc.0", "lstm.l0", "lstm.l1", "head"]
    assert run("quantize", "models:make", "--force", "--only", "heads") == 2
    error = capsys.readouterr().err
    assert "error: --only: 'heads' matches no layer. Did you mean 'head'? Known: conv, enc" in error


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


def test_an_output_that_exists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "make.int8.safetensors"
    out.write_bytes(b"old")
    assert run("quantize", "models:make") == 6
    assert "make.int8.safetensors exists; name another with -o, or give --force" in (
        capsys.readouterr().err
    )
    assert out.read_bytes() == b"old"
    assert run("quantize", "models:make", "--force") == 0
    assert out.stat().st_size > 1000
    assert run("quantize", "models:make", "-o", str(folder)) == 6
    assert run("quantize", "models:make", "-o", "no/where.safetensors") == 6
    assert files(folder) == {"make.int8.safetensors"}


@pytest.mark.parametrize("name", ["z.onnx", "Z.ONNX"])
def test_an_output_named_as_onnx(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "models:make", "-o", name, "--force") == 2
    assert capsys.readouterr().err == (
        f"error: -o {name}: models:make is a PyTorch model, written in safetensors: end the name "
        "with .safetensors. For an ONNX file, call octavo.torch.export_onnx in Python\n"
    )
    assert "models" not in sys.modules
    assert files(folder) == set()


def test_inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "models:make", "--recipe", "int8-accurate") == 0
    out, err = capsys.readouterr()
    assert out.startswith("models:make\n")
    assert " kB, 5 layers with " in out.splitlines()[1]
    assert "opset" not in out
    assert "What the recipe int8-accurate would do:" in out
    assert "Quantize: int8 per channel, affine, activations per group of 128\n  2 Linear" in out
    assert "Quantize: int8 per channel, activations per row: symmetric weights, not affine" in out
    assert "Leave float: a convolution of 4 outputs, each a sum of 9 products, is float" in out
    assert "ONNX" not in out
    assert err == "the module talks\nthe factory talks\n"
    assert files(folder) == set()
    assert run("inspect", "models:make", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model"] == "models:make"
    assert [layer["quantized"] for layer in said["layers"]] == [True, False, True, True, True]
    assert "opset" not in said


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("quantize", "--ops=Conv"),
        ("quantize", "--inputs=x.npz"),
        ("quantize", "--cpu=vnni"),  # the default, but said
        ("quantize", "--target=portable"),
        ("quantize", "--format=qdq"),
        ("quantize", "--external-data"),
        ("quantize", "--no-verify"),
        ("quantize", "--allow-quantized"),
        ("quantize", "--shape=x=1x64"),
        ("quantize", "--threads=1"),
        ("inspect", "--ops=Conv"),
        ("inspect", "--cpu=any"),
        ("inspect", "--format=qoperator"),
    ],
)
def test_options_for_onnx_are_refused(
    command: str, option: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "models:make", option) == 2
    name = option.partition("=")[0]
    assert capsys.readouterr().err == (
        f"error: {name} is for ONNX models; models:make is a PyTorch model: leave it out\n"
    )
    assert "models" not in sys.modules
    assert files(folder) == set()


@pytest.mark.parametrize(
    ("model", "code", "message"),
    [
        (
            "modles:make",
            3,
            "modles:make: there is no module 'modles', neither in the current folder ",
        ),
        ("models.py:make", 3, "nor installed. Leave .py out."),
        ("models:mkae", 3, "models:mkae: models has no 'mkae'. Did you mean 'make'"),
        ("models:Zoo.big", 3, "models:Zoo.big: models.Zoo has no 'big'. Known: inner, small."),
        ("models:number", 3, "models:number is of type int; needs a callable without argu"),
        ("models:ready", 3, "write a function that returns it: def make(): return ready"),
        ("models:three", 3, "models:three returned int; needs the float model, a torch.nn.Module"),
        ("models:broken", 3, r"models:broken fails: RuntimeError: no weights\x1b here ("),
        ("models:leaves", 3, "models:leaves fails: SystemExit: bye ("),
        ("models:needs_one", 3, "missing 1 required positional argument: 'size'"),
        ("models:bad", 3, "models:bad: the model: weight holds NaN or infinity"),
        ("models:bare", 4, "Sequential holds no weights, so there is nothing to quantize"),
    ],
)
def test_what_is_wrong_with_a_factory(
    model: str, code: int, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", model, "-o", "out.safetensors") == code
    error = capsys.readouterr().err
    assert f"error: {model}" in error or code == 4
    assert message in error
    assert files(folder) == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import not_there\n",
            "importing other fails: ModuleNotFoundError: No module named 'n",
        ),
        ("x = 1 / 0\n", "importing other fails: ZeroDivisionError: division by zero ("),
        ("def f(:\n", "importing other fails: SyntaxError: invalid syntax ("),
    ],
)
def test_modules_that_cannot_be_imported(
    text: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "other.py").write_text(text)
    assert run("inspect", "other:make") == 3
    error = capsys.readouterr().err
    assert f"error: other:make: {message}" in error
    assert f"{folder}/other.py:1" in error


def test_where_a_factory_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "models:broken") == 3
    line = 1 + textwrap.dedent(SOURCE).splitlines().index("def broken():") + 1
    assert f"({folder}/models.py:{line}, in broken)" in capsys.readouterr().err


def test_nothing_to_quantize_is_written_if_allowed(folder: Path) -> None:
    assert run("quantize", "models:make", "--exclude", "*") == 4
    assert files(folder) == set()
    assert run("quantize", "models:make", "--exclude", "*", "--allow-nothing") == 0
    loaded = octavo.torch.load("make.int8.safetensors", factory)
    assert octavo.torch.report(loaded).quantized == ()


def test_a_lazy_layer_is_named_whatever_is_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (
        ("quantize", "models:lazy", "-o", "out.safetensors"),
        ("inspect", "models:lazy"),
    ):
        assert run(*command) == 3
        error = capsys.readouterr().err
        assert "0.weight is not initialized: a lazy layer makes its weights in the first" in error
    assert files(folder) == set()


def test_what_is_no_onnx_model_but_one_of_pytorch_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inspect", "models") == 3
    words = "models.py may make a PyTorch model: name the callable too, models:<callable>."
    assert words in capsys.readouterr().err
    assert run("quantize", "models:make", "-o", "out.safetensors") == 0
    capsys.readouterr()
    assert run("inspect", "out.safetensors") == 3
    error = capsys.readouterr().err
    assert "out.safetensors is not an ONNX model but a file of tensors" in error
    assert "octavo.torch.load reads it" in error


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
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 3
    assert done.stderr == (
        "error: PyTorch models need torch, which is not installed: pip install torch==2.13.0 "
        "--extra-index-url https://download.pytorch.org/whl/cpu\n"
    )


def test_pytorch_models_load_no_onnx(folder: Path) -> None:
    code = """
        import sys
        from octavo.cli import main
        try:
            main(["quantize", "models:make", "--json"])
        finally:
            print({n.partition(".")[0] for n in sys.modules} & {"onnx", "onnxruntime"},
                  file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.stderr.endswith("set()\n")
    assert json.loads(done.stdout)["target"] == "torch"
