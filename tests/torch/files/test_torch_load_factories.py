"""Factories that read weights themselves: a checkpoint, or a folder of transformers."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertModel, GPT2LMHeadModel

from octavo.torch import compare, load, quantize_dynamic, report, save
from tests.models import mlp, net, transformer

IDS = torch.arange(8)[None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    transformer().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def saved(model: nn.Module, tmp_path: Path) -> tuple[nn.Module, Path]:
    quantized = quantize_dynamic(model)
    save(quantized, tmp_path / "model.safetensors")
    return quantized, tmp_path / "model.safetensors"


def test_from_pretrained_makes_the_model(folder: Path, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(folder)
    quantized, path = saved(model, tmp_path)
    for factory in (
        lambda: AutoModel.from_pretrained(folder),
        lambda: BertModel.from_pretrained(folder, attn_implementation="sdpa"),
        lambda: AutoModel.from_config(model.config),
    ):
        again = load(path, factory)
        with torch.no_grad():
            found = again(IDS).last_hidden_state
            assert torch.equal(found, quantized(IDS).last_hidden_state)
        tensors = [*again.parameters(), *again.buffers()]
        assert not any(t.is_meta for t in tensors)
        assert not any(isinstance(m, nn.Linear) for m in again.modules())
        assert report(again).layers == report(quantized).layers


def test_a_model_around_one_that_is_loaded(folder: Path, tmp_path: Path) -> None:
    def classifier() -> nn.Module:
        body, head = AutoModel.from_pretrained(folder), nn.Linear(48, 3)
        return net(lambda m, ids: m.head(m.body(ids).pooler_output), body=body, head=head).eval()

    quantized, path = saved(classifier(), tmp_path)
    with torch.no_grad():
        assert torch.equal(load(path, classifier)(IDS), quantized(IDS))


def test_generation_settings_are_those_of_the_folder(tmp_path: Path) -> None:
    model = transformer("GPT2LMHeadModel")
    model.generation_config.max_new_tokens = 3
    model.save_pretrained(tmp_path / "gpt2")
    quantized, path = saved(model, tmp_path)
    again = load(path, lambda: GPT2LMHeadModel.from_pretrained(tmp_path / "gpt2"))
    assert again.generation_config.max_new_tokens == 3
    assert torch.equal(again(IDS).logits, quantized(IDS).logits)


def test_a_factory_that_loads_a_checkpoint_is_quiet(tmp_path: Path) -> None:
    torch.save(mlp(8, 8, 2).state_dict(), tmp_path / "weights.pt")

    def factory() -> nn.Module:
        model = mlp(8, 8, 2)
        model.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
        return model

    quantized, path = saved(factory(), tmp_path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        again, x = load(path, factory), torch.randn(3, 8)
        assert torch.equal(again(x), quantized(x))
        compare(factory(), again, x)
        report(again)
    assert not said
    with pytest.warns(UserWarning, match="of the factory's own"):
        load(path, lambda: (warnings.warn("of the factory's own", stacklevel=1), factory())[1])
