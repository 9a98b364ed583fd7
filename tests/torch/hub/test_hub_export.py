"""`octavo.torch.hub.export`: folders of ONNX files, whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from octavo.errors import ModelError, OptionError, OutputError, VerificationError
from octavo.onnx import session
from octavo.torch.hub import OctavoConfig, export
from octavo.torch.hub import export_folder as exporting
from tests.models import relative, tokens, transformer
from tests.torch.hub.families import BERT, BY_NAME, checkpoint, load

pytestmark = pytest.mark.usefixtures("one_registry")

IDS = tokens(2, 7)


@dataclass
class Made:
    """A float folder, what was exported of it, what was told meanwhile, and the file as written."""

    model: Any
    source: Path
    out: Path
    report: Any = None
    stages: list[str] = field(default_factory=list)
    written: Any = None
    graph: Any = None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root, write = tmp_path_factory.mktemp("export"), exporting.export_onnx
    model = transformer("BertForSequenceClassification", num_hidden_layers=1)
    found = Made(model, root / "float", root / "out")
    model.save_pretrained(found.source)
    (found.source / "tokenizer.json").write_text("{}")
    (found.source / "onnx").mkdir()

    def kept(module: Any, args: Any, path: Path, *rest: Any, **given: Any) -> Any:
        found.written = write(module, args, path, *rest, **given)
        found.graph = onnx.load(path)
        return found.written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "export_onnx", kept)
        tell = lambda stage, done, total: found.stages.append(stage)  # noqa: E731
        found.report = export(found.source, found.out, progress=tell)
    return found


def test_a_checkpoint_becomes_a_folder(made: Made) -> None:
    source, out, said = made.source, made.out, made.report
    assert {p.name for p in out.iterdir()} == {
        "config.json",
        "tokenizer.json",
        "model.onnx",
        "octavo_report.json",
    }
    assert (said.source, said.output, said.target) == (str(source), str(out), "native")
    assert said.verification.status == "passed" and said.verification.runs == 2
    assert said.files == ("model.onnx",)
    assert json.loads((out / "octavo_report.json").read_text()) == json.loads(said.to_json())
    assert {"loading", "tracing model.onnx", "checking model.onnx"} <= {*made.stages}
    runner = session(out / "model.onnx")
    assert [i.name for i in runner.get_inputs()] == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
    ]
    zeros = torch.zeros_like(IDS)
    feed = {"input_ids": IDS, "attention_mask": zeros + 1, "token_type_ids": zeros}
    (logits,) = runner.run(["logits"], {name: t.numpy() for name, t in feed.items()})
    with torch.no_grad():
        assert 0 < relative(logits, made.model(**feed).logits) < 0.05


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: Any) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    source = checkpoint(BERT, tmp_path / "float")
    before = {p: p.read_bytes() for p in source.iterdir()}
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="is not empty"):
        export(source, out)
    with pytest.raises(OutputError, match="does not exist"):
        export(source, tmp_path / "none" / "out")
    monkeypatch.setattr(exporting, "export_onnx", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(source, tmp_path / "new")
    assert {p.name for p in tmp_path.iterdir()} == {"float", "out"}
    assert {p: p.read_bytes() for p in source.iterdir()} == before


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    out, bert = tmp_path / "out", transformer(num_hidden_layers=1)
    refusals: list[tuple[type[Exception], str, Any]] = [
        (ModelError, "Linear", lambda: export(torch.nn.Linear(2, 2), out)),
        (OptionError, "target 'nativ'", lambda: export(bert, out, "nativ")),
        (OptionError, "task 'classify'", lambda: export(bert, out, task="classify")),
        (OptionError, "tokenizer", lambda: export(bert, out, tokenizer=3)),
    ]
    for kind, part, call in refusals:
        with pytest.raises(kind, match=part):
            call()
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_too_far_off_is_not_kept(
    made: Made, tmp_path: Path, monkeypatch: Any
) -> None:
    def wrong(module: Any, args: Any, path: Path, *rest: Any, **given: Any) -> Any:
        scale = next(t for t in made.graph.graph.initializer if "LayerNorm" in t.name)
        scale.CopyFrom(
            onnx.numpy_helper.from_array(-5 * onnx.numpy_helper.to_array(scale), scale.name)
        )
        onnx.save(made.graph, path)
        return replace(made.written, path=path)

    monkeypatch.setattr(exporting, "export_onnx", wrong)
    with pytest.raises(VerificationError, match=r"logits of model\.onnx differs"):
        export(made.model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_quantized_model_is_exported_as_it_is(tmp_path: Path) -> None:
    """The check then compares with the quantized model."""
    folder = checkpoint(BERT, tmp_path / "float")
    said = export(load(BERT, folder, quantization_config=OctavoConfig()), tmp_path / "out")
    assert said.verification.error < 1e-3
    assert said.recipe["name"] == "int8"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["native", "portable"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3-tied", "t5", "bart", "whisper", "vit"])
def test_families(name: str, target: str, tmp_path: Path) -> None:
    made = export(checkpoint(BY_NAME[name], tmp_path / "float"), tmp_path / "out", target)
    files = sorted(p.name for p in (tmp_path / "out").glob("*.onnx"))
    three = ["decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"]
    assert files == (three if name in ("t5", "bart", "whisper") else ["model.onnx"])
    assert made.verification.status == "passed" and 0 < made.verification.error < 0.01
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"]
