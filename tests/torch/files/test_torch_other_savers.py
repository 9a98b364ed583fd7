"""Other libraries' ways to save would lose what is quantized: they name octavo.torch.save."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from octavo.errors import ModelError
from octavo.torch import load, quantize_dynamic, save
from octavo.torch.layers import other_savers
from tests.models import transformer

transformers = pytest.importorskip("transformers")

NAMES_IT = r"octavo\.torch\.save"


def again(quantized: Any, how: str, tmp_path: Path) -> Any:
    if how == "pickled":
        return pickle.loads(pickle.dumps(quantized))
    if how == "copied":
        return copy.deepcopy(quantized)
    if how == "loaded":
        save(quantized, tmp_path / "model.octavo")
        return load(tmp_path / "model.octavo", transformer)
    return quantized


@pytest.mark.parametrize("how", ["as it is", "pickled", "copied", "loaded"])
def test_save_pretrained_raises_before_it_writes(how: str, tmp_path: Path) -> None:
    quantized = again(quantize_dynamic(transformer()), how, tmp_path)
    folder = tmp_path / "folder"
    for call in (quantized.save_pretrained, quantized.push_to_hub):
        with pytest.raises(ModelError, match=NAMES_IT):
            call(str(folder))
    with pytest.raises(ModelError, match=NAMES_IT):
        quantized.save_pretrained(str(folder), state_dict=quantized.state_dict())
    assert not folder.exists()


def test_what_holds_a_quantized_model_raises_too(tmp_path: Path) -> None:
    whole = transformer("BertForSequenceClassification")
    whole.bert = quantize_dynamic(whole.bert)
    with pytest.raises(ModelError, match=NAMES_IT):
        whole.save_pretrained(tmp_path)


@pytest.mark.parametrize("make", [transformer, lambda: nn.Sequential(nn.Linear(8, 8))])
def test_the_trainer_raises(make: Any, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(str(tmp_path / "a"))
    trainer = transformers.Trainer(quantize_dynamic(make()), arguments)
    with pytest.raises(ModelError, match=NAMES_IT):
        trainer.save_model(str(tmp_path / "b"))


def test_the_stack_is_looked_at_once_for_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = other_savers._library
    monkeypatch.setattr(other_savers, "_library", lambda m: looked.append(m) or real(m))
    counts = []
    for layers in (1, 20):
        model = quantize_dynamic(nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)]))
        for _ in range(2):
            looked.clear()
            model.state_dict()
            counts.append(len(looked))
    assert counts[0] > 0 and len(set(counts)) == 1


def test_sentence_transformers_raise(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Dense

    inner = nn.Sequential(Dense(32, 16))
    model = library.SentenceTransformer(modules=list(inner), device="cpu")
    quantized = quantize_dynamic(model)
    folder = tmp_path / "folder"
    for call in (quantized.save, quantized.save_pretrained):
        with pytest.raises(ModelError, match=NAMES_IT):
            call(str(folder))
    assert not folder.exists()
    model[0] = quantize_dynamic(model[0])  # a part of a float one
    with pytest.raises(ModelError, match=NAMES_IT):
        model.save(str(folder))


def test_hub_mixins_raise(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")

    class Mine(nn.Module, hub.PyTorchModelHubMixin):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

    class Own(Mine):
        def save_pretrained(self, save_directory: Any, **kwargs: Any) -> Any:
            save(self, save_directory)

    with pytest.raises(ModelError, match=NAMES_IT):
        quantize_dynamic(Mine()).save_pretrained(tmp_path / "a")
    quantize_dynamic(Own()).save_pretrained(tmp_path / "b")
    assert (tmp_path / "b").is_file()


def test_a_float_model_and_a_state_are_saved_as_ever(tmp_path: Path) -> None:
    model = transformer()
    quantized = quantize_dynamic(model)
    model.save_pretrained(tmp_path / "float")
    assert (tmp_path / "float" / "config.json").is_file()
    file = io.BytesIO()
    torch.save(quantized.state_dict(), file)
    file.seek(0)
    other = quantize_dynamic(transformer())
    other.load_state_dict(torch.load(file, weights_only=True))
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(other(ids)[0], quantized(ids)[0])


def test_a_model_without_quantized_layers_is_saved(tmp_path: Path) -> None:
    left = quantize_dynamic(transformer(), {nn.LSTM}, allow_nothing=True)
    left.save_pretrained(tmp_path)
    assert (tmp_path / "config.json").is_file()
