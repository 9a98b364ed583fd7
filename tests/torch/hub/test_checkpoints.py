"""Checkpoints by folder and name: what is found, what is said of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from octavo.errors import AlreadyQuantizedError, ModelError
from octavo.files.checkpoints import names_checkpoint
from octavo.torch import inspect as inspect_module
from octavo.torch.hub.checkpoint import find_checkpoint
from octavo.torch.hub.inspecting import inspect
from octavo.torch.quantize import quantize_dynamic, report
from octavo.torch.run.tasks import Task, task_of
from tests.torch.hub.families import FAMILIES, checkpoint


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(FAMILIES[0], tmp_path_factory.mktemp("hub") / "bert")


SOME = [family for family in FAMILIES if family.name in ("bert", "qwen3-tied", "mixtral", "t5")]


def test_each_family_has_a_task() -> None:
    tasks = {f.name: task_of(f.kind) for f in FAMILIES}
    assert tasks == dict.fromkeys(("bert", "wav2vec2"), Task.FEATURES) | dict.fromkeys(
        ("llama", "qwen3-tied", "mixtral", "gpt2"), Task.TEXT
    ) | dict.fromkeys(("t5", "bart"), Task.TEXT_TO_TEXT) | {
        "whisper": Task.SPEECH_TO_TEXT,
        "vit": Task.IMAGE_CLASSES,
    }
    assert task_of("BertForTokenClassification") is Task.TOKEN_CLASSES
    assert task_of("RobertaForQuestionAnswering") is Task.ANSWERS
    with pytest.raises(ModelError, match="NoSuchModel"):
        task_of("NoSuchModel")


@pytest.mark.parametrize("family", SOME, ids=lambda family: family.name)
def test_what_a_recipe_would_do_is_what_it_does(family, tmp_path: Path) -> None:
    found = find_checkpoint(checkpoint(family, tmp_path / "float"))
    assert found.task is task_of(family.kind)
    said = inspect(found)
    model = found.load()
    assert said.decisions == inspect_module(model).decisions
    assert said.model_bytes == sum(tensor.bytes for tensor in found.tensors)
    made = report(quantize_dynamic(model, recipe="int8"))
    # Headers tell of the files alone: buffers that are not in them count in the module.
    assert said.bytes_after == pytest.approx(made.model_bytes_after, rel=0.05)


def test_shards_are_read_together(bert: Path, tmp_path: Path) -> None:
    model = transformers.BertModel.from_pretrained(bert)
    model.save_pretrained(tmp_path / "shards", max_shard_size="60kB")
    shards, whole = find_checkpoint(tmp_path / "shards"), find_checkpoint(bert)
    assert len({tensor.file for tensor in shards.tensors}) > 1
    assert {(t.name, t.shape, t.dtype, t.bytes) for t in shards.tensors} == {
        (t.name, t.shape, t.dtype, t.bytes) for t in whole.tensors
    }
    shards.write_others(tmp_path / "others")
    assert [p.name for p in (tmp_path / "others").iterdir()] == ["config.json"]
    first = sorted((tmp_path / "shards").glob("*.safetensors"))[0]
    first.unlink()
    with pytest.raises(ModelError, match=rf"1 are missing: {first.name}; copy or download"):
        inspect(find_checkpoint(tmp_path / "shards"))


def folder_with(bert: Path, place: Path, **files: bytes | str | None) -> Path:
    """A copy of the checkpoint with other contents of files; None leaves one out."""
    place.mkdir()
    for path in bert.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    for name, content in files.items():
        path = place / name.replace("__", ".")
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def said_otherwise(bert: Path, **given: object) -> str:
    return json.dumps(json.loads((bert / "config.json").read_text()) | given)


def test_what_is_wrong_is_named(bert: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    weights = (bert / "model.safetensors").read_bytes()
    misspelt = said_otherwise(bert, architectures=["BertModle"])
    foreign = said_otherwise(bert, model_type="brett")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model__safetensors": weights[:-100]}, f"{len(weights) - 100:,}"),
        ({"model__safetensors": weights[:100]}, "is cut short"),
        ({"model__safetensors": "version https://git-lfs"}, "is no safetensors file"),
        ({"config__json": misspelt}, "Did you mean 'BertModel'"),
        ({"config__json": foreign}, "brett"),
    ]
    folders = [
        (folder_with(bert, tmp_path / str(i), **files), said)
        for i, (files, said) in enumerate(cases)
    ]
    nowhere = tmp_path / "no" / "such" / "place"
    for path, said in [*folders, (nowhere, "no such folder"), (bert / "config.json", "is a file")]:
        with pytest.raises(ModelError) as error:
            inspect(find_checkpoint(path))
        assert said in str(error.value) and str(path) in str(error.value)


def test_a_quantized_one_is_refused(bert: Path, tmp_path: Path) -> None:
    quantized = said_otherwise(bert, quantization_config={"quant_method": "bitsandbytes"})
    with pytest.raises(AlreadyQuantizedError, match="bitsandbytes"):
        inspect(find_checkpoint(folder_with(bert, tmp_path / "q", config__json=quantized)))


def cached(bert: Path, cache: Path, name: str) -> Path:
    """The checkpoint as huggingface_hub keeps what it downloaded."""
    snapshot = cache / f"models--{name.replace('/', '--')}" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    for path in bert.iterdir():
        (snapshot / path.name).symlink_to(path)
    return snapshot


def test_a_name_is_found_in_the_cache(bert: Path, tmp_path: Path, monkeypatch) -> None:
    import huggingface_hub.constants as constants

    snapshot = cached(bert, tmp_path, "owner/name")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = find_checkpoint("owner/name")
    assert found.folder == snapshot and len(found.tensors) > 10
    assert find_checkpoint("owner/name", cached_only=True).folder == snapshot
    with pytest.raises(ModelError, match=r"cache \(.*\): download it \(hf download owner/other"):
        find_checkpoint("owner/other", cached_only=True)
    with pytest.raises(ModelError, match=r"HF_HUB_OFFLINE is set.*hf download owner/other"):
        find_checkpoint("owner/other")


def test_texts_that_name_a_checkpoint(bert: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    cached(bert, tmp_path / "cache", "gpt2")
    onnx = tmp_path / "onnx"
    onnx.mkdir()
    (onnx / "model.onnx").touch()
    (onnx / "config.json").touch()
    named = [str(bert), "gpt2", "owner/name", "owner/name-v1.5"]
    others = ["gpt3", "m.onnx", "onnx", "onnx/other", "a/b/c", "module:factory", "./x/y", "."]
    assert [text for text in (*named, *others) if names_checkpoint(text)] == named
