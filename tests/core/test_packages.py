"""Optional packages: all that are missing are named at once, with a command that a shell takes."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shlex
import sys
from pathlib import Path

import pytest

from octavo.core.packages import (
    CHECKPOINTS,
    CPU_BUILDS,
    GGUF,
    OPTIONAL,
    TORCH,
    OptionalPackage,
    need,
    pip_install,
    what_is_wrong,
)
from octavo.errors import ModelError, OptionError
from octavo.front_ends import need_torch

PROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("package", OPTIONAL, ids=lambda package: package.module)
def test_the_least_release_is_that_of_an_extra(package: OptionalPackage) -> None:
    asked = re.findall(rf'"{re.escape(package.distribution)}>=([\d.]+)', PROJECT)
    assert package.least in asked if package.least else not asked


def test_what_gguf_files_need_is_the_extra() -> None:
    (extra,) = re.findall(r"(?m)^gguf = \[(.*)\]", PROJECT)
    assert {"transformers>=5.20", *re.findall(r'"([a-z]+)>', extra)} == {"transformers", *GGUF} - {
        "tokenizers"
    }


def test_a_command_is_quoted_and_torch_comes_for_cpus() -> None:
    command = pip_install("torch", "scipy", "sklearn")
    assert shlex.split(command) == [
        *("pip", "install", "scipy>=1.12", "scikit-learn>=1.4"),
        *(f"torch=={TORCH}", "--extra-index-url", CPU_BUILDS),
    ]
    assert "'scipy>=1.12'" in command


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "transformers", "safetensors", "tokenizers")
    with pytest.raises(ModelError) as caught:
        need("checkpoints need", *CHECKPOINTS)
    assert str(caught.value).startswith(
        "checkpoints need transformers, safetensors and tokenizers, which are not installed: "
    )
    assert "'transformers>=5' 'safetensors>=0.4' 'tokenizers>=0.20'" in str(caught.value)


def test_the_error_is_the_callers_and_has_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "jinja2")
    with pytest.raises(OptionError, match=r"^a needs jinja2, which is not .*'jinja2>=3.1'; b$"):
        need("a needs", "jinja2", error=OptionError, otherwise="; b")


def test_what_is_too_old_is_said_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(
        "importlib.metadata.version", lambda n: "5.2.0" if n == "transformers" else real(n)
    )
    without(monkeypatch, "gguf")
    said = what_is_wrong(*GGUF)
    assert said.startswith("gguf, which is not installed, and transformers, which is 5.2.0 here")
    assert said.endswith("pip install 'transformers>=5.20' 'gguf>=0.17'")


def test_what_does_not_load_is_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    load = importlib.import_module

    def broken(name: str, package: str | None = None) -> object:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError("libfreetype.so.6: cannot open shared object file")
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", broken)
    said = what_is_wrong("matplotlib")
    assert "ImportError: libfreetype.so.6: cannot open" in said
    assert said.endswith("pip install --force-reinstall 'matplotlib>=3.8'")
    assert what_is_wrong("matplotlib", load=False) == ""


@pytest.mark.parametrize(
    ("file", "start"),
    [
        ("a.gguf", "GGUF files need torch and gguf, which are"),
        ("checkpoint", "checkpoints need torch, which is"),
        ("models:make", "PyTorch models need torch, which is"),
    ],
)
def test_what_a_model_needs_follows_from_its_kind(
    file: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.gguf").write_bytes(b"GGUF")
    Path("checkpoint").mkdir()
    Path("checkpoint/config.json").write_text("{}")
    Path("checkpoint/model.safetensors").write_bytes(b"")
    without(monkeypatch, "torch", "gguf")
    with pytest.raises(ModelError, match=f"^{start}"):
        need_torch(file)
