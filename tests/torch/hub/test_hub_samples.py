"""`octavo quantize CHECKPOINT --inputs texts.jsonl`: weights of 4 bits are rounded by samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from octavo.recipe import Recipe
from octavo.results.report import Verification
from octavo.torch import report
from octavo.torch.hub import OctavoConfig
from octavo.torch.hub.checkpoint import find_checkpoint
from octavo.torch.hub.folder_check import SampleCheck
from octavo.torch.hub.samples import MOST, read_samples
from tests.cli_support import run
from tests.models import VOCABULARY, relative
from tests.torch.hub.families import LLAMA, checkpoint, load, outputs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with a tokenizer of one word a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    path = checkpoint(LLAMA, tmp_path / "float")
    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0").save_pretrained(path)
    return path


def _texts(path: Path, count: int = 6) -> Path:
    lines = [" ".join(f"w{(7 * i + j * j) % 500}" for j in range(12)) for i in range(count)]
    said = [json.dumps(line if i % 2 else {"text": line}) for i, line in enumerate(lines)]
    path.write_text("\n".join(said))
    return path


def _held_out() -> dict[str, Any]:
    return {"input_ids": torch.arange(3, 35)[None]}


def test_samples_change_integers_and_the_folder_loads(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = _texts(tmp_path / "texts.jsonl")
    exact = outputs(load(LLAMA, folder), _held_out())
    errors = {}
    for name, options in {
        "plain": (),
        "samples": ("--inputs", str(texts)),
        "feedback": ("--inputs", str(texts), "--error-feedback"),
    }.items():
        out = tmp_path / name
        assert run("quantize", str(folder), "-o", str(out), "--recipe", "int4", *options) == 0
        said = capsys.readouterr().out
        assert ("of 6 samples" in said) == (name != "plain")
        assert ("6 runs on inputs given" in said) == (name != "plain")
        made = load(LLAMA, out)
        errors[name] = relative(outputs(made, _held_out()), exact)
        assert (out / "tokenizer.json").is_file()
    assert len(set(errors.values())) == 3
    assert errors["samples"] < 1.1 * errors["plain"]


def test_arrays_by_name_are_samples_too(folder: Path, tmp_path: Path) -> None:
    ids = np.arange(2, 26).reshape(2, 12)
    np.savez(tmp_path / "runs.npz", input_ids=ids)
    (found,) = read_samples(tmp_path / "runs.npz", find_checkpoint(folder))
    np.testing.assert_array_equal(found["input_ids"], ids)
    texts = read_samples(_texts(tmp_path / "t.jsonl", 200), find_checkpoint(folder))
    assert len(texts) == MOST
    assert texts[1]["input_ids"].tolist()[0][:2] == [7, 8]
    last = MOST - 1  # of samples from all over the file
    assert texts[last]["input_ids"].tolist()[0][0] == 7 * (last * 200 // MOST) % 500


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("[1, 2]", "line 1: a line is a text"),
        ('{"input_ids": [[1], [2, 3]]}', "line 1: input_ids"),
        ('{"input_ids": [["a"]]}', "needs numbers"),
        ('""', "the text is empty"),
        ("", "there are none"),
        ('{"ids": [[1, 2]]}', "ids"),
    ],
)
def test_what_is_no_sample_is_refused(
    lines: str, said: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.jsonl").write_text(lines)
    out = tmp_path / "out"
    given = ("--recipe", "int4", "--inputs", str(tmp_path / "s.jsonl"))
    assert run("quantize", str(folder), "-o", str(out), *given) != 0
    assert said in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("options", ["--to onnx --inputs s.npz", "--to native --error-feedback"])
def test_samples_are_for_pytorch_folders(
    options: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", str(folder), "-o", str(tmp_path / "out"), *options.split()) == 2
    assert "leave it out" in capsys.readouterr().err
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    texts = _texts(tmp_path / "texts.jsonl")
    given = ("--recipe", "int4", "--inputs", str(texts))
    assert run("quantize", str(folder), "-o", str(tmp_path / "out"), *given) != 0
    assert "has no tokenizer that reads texts" in capsys.readouterr().err


def test_a_mix_of_a_checkpoint_looks_at_its_weights(folder: Path, tmp_path: Path) -> None:
    model = load(LLAMA, folder)
    odd = "model.layers.1.mlp.up_proj"
    weight = model.get_submodule(odd).weight
    with torch.no_grad():
        weight *= torch.where(torch.rand_like(weight) < 0.02, 40.0, 1.0)
    model.save_pretrained(folder)
    recipe = Recipe.from_dict({"base": "int4-mixed", "mix": {"bits": 6.2}})
    made = load(LLAMA, folder, quantization_config=OctavoConfig(recipe=recipe))
    schemes = {o.layer.name: o.scheme for o in report(made).quantized}
    assert schemes[odd].startswith("int8")
    assert any(scheme.startswith("int4") for scheme in schemes.values())


def test_samples_are_what_the_result_is_compared_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, out = _texts(tmp_path / "texts.jsonl"), tmp_path / "out"
    given = ("--inputs", str(texts))
    assert run("quantize", str(folder), "-o", str(out), *given, "--json") == 0
    check = json.loads(capsys.readouterr().out)["verification"]
    assert (check["status"], check["inputs"], check["runs"]) == ("passed", "given", 6)
    kept = report(load(LLAMA, out))
    assert kept.verification == Verification.from_dict(check)
    assert "Check    passed: error against the float model" in str(kept)
    assert run("compare", str(folder), str(out), *given, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["inputs"], found["runs"]) == ("given", 6)
    errors = [output["difference"]["error"] for output in found["outputs"]]
    assert max(errors) == pytest.approx(check["error"], rel=1e-3)
    strict = tmp_path / "strict.yaml"
    strict.write_text(f"base: int8\nmax_error: {check['error'] / 2}\n")
    refused = ("quantize", str(folder), "-o", str(tmp_path / "no"), "--recipe", str(strict), *given)
    assert run(*refused) == 5
    assert "above the recipe's max_error" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert run(*refused, "--no-verify") == 0
    assert "Check    skipped" in capsys.readouterr().out


class _Ids(torch.nn.Module):
    """The ids, and in the places of padding always one number."""

    def __init__(self, hidden: float) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        rows = input_ids[..., None].float().expand(-1, -1, 4)
        return {"rows": torch.where(attention_mask[..., None] > 0, rows, self.hidden)}


def test_padding_of_samples_is_not_compared() -> None:
    ids, mask = np.arange(1, 7).reshape(2, 3), np.array([[1, 1, 1], [1, 0, 0]])
    samples = [{"input_ids": ids, "attention_mask": mask}]
    check = SampleCheck(_Ids(0.0), samples, lambda stage, done, total: None)
    found = check.compare(_Ids(100.0), 0.01, lambda stage, done, total: None)
    assert (found.status, found.error, found.padding) == ("passed", 0, 2)
