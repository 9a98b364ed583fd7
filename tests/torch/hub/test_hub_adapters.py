"""Adapters of PEFT on a quantized base: what answers as on the float one, and what PEFT refuses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import octavo.torch
from octavo.errors import ModelError
from octavo.torch.hub import OctavoConfig
from octavo.torch.layers.base import QuantizedModule
from tests.models import VOCABULARY, relative, transformer

peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
    pytest.mark.filterwarnings("ignore:Unsupported layer type"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to"),
]

IDS = torch.randint(5, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
BERT = transformers.BertForSequenceClassification
GPT2 = transformers.GPT2ForSequenceClassification
KINDS: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "bert": (BERT, {"num_hidden_layers": 1, "num_labels": 3}, ["query", "value"]),
    "roberta": (
        transformers.RobertaForSequenceClassification,
        {"num_hidden_layers": 1, "num_labels": 3, "pad_token_id": 1},
        ["query", "value"],
    ),
    "gpt2": (GPT2, {"n_layer": 1, "num_labels": 3, "pad_token_id": 0}, ["c_attn"]),
    "llama": (
        transformers.LlamaForSequenceClassification,
        {"num_hidden_layers": 1, "num_labels": 3, "pad_token_id": 0},
        ["q_proj", "v_proj"],
    ),
}
RANDOM = {"init_lora_weights": False}
WORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LoRA": (peft.LoraConfig, RANDOM),
    "DoRA": (peft.LoraConfig, RANDOM | {"use_dora": True}),
    "rank-stabilized": (peft.LoraConfig, RANDOM | {"use_rslora": True}),
    "further whole modules": (peft.LoraConfig, RANDOM | {"modules_to_save": ["pooler"]}),
    "a whole table": (peft.LoraConfig, RANDOM | {"modules_to_save": ["word_embeddings"]}),
    "LN tuning": (peft.LNTuningConfig, {"target_modules": ["LayerNorm"]}),
}
QUERY = {"target_modules": ["query"]}
TABLE = {"target_modules": ["word_embeddings"]}
REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "LoRA of a table": (peft.LoraConfig, TABLE),
    "target_parameters": (
        peft.LoraConfig,
        {"target_modules": [], "target_parameters": ["query.weight"]},
    ),
    "IA3": (peft.IA3Config, QUERY | {"feedforward_modules": []}),
    "LoHa": (peft.LoHaConfig, QUERY),
    "LoKr": (peft.LoKrConfig, QUERY),
    "AdaLoRA": (peft.AdaLoraConfig, QUERY | {"total_step": 10}),
    "OFT": (peft.OFTConfig, QUERY | {"oft_block_size": 8}),
    "VeRA": (peft.VeraConfig, QUERY),
    "trainable tokens": (peft.TrainableTokensConfig, TABLE | {"token_indices": [5]}),
}


def _written(name: str, folder: Path) -> tuple[Any, list[str]]:
    kind, given, names = KINDS[name]
    transformer(kind.__name__, **given).save_pretrained(folder)
    return kind, names


def _adapted(kind: Any, folder: Path, config: Any) -> Any:
    """A float model with an adapter that matters."""
    torch.manual_seed(0)
    model = peft.get_peft_model(kind.from_pretrained(folder), config).eval()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            norm = "LayerNorm" in name and name.endswith("weight")
            parameter.data = torch.randn_like(parameter) * 0.1 + norm
    model.save_pretrained(folder / "adapter")
    return model


@torch.no_grad()
def _logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(IDS).logits
    return found


def _answers(kind: Any, folder: Path, config: Any, recipe: str = "int8") -> Any:
    """The adapter on the quantized base, loaded in both ways, answers as on the float one."""
    exact = _adapted(kind, folder, config)
    plain = kind.from_pretrained(folder, quantization_config=OctavoConfig(recipe)).eval()
    assert relative(_logits(plain), _logits(exact)) > 0.2
    made = peft.PeftModel.from_pretrained(plain, folder / "adapter").eval()
    assert relative(_logits(made), _logits(exact)) < (0.15 if recipe == "int4" else 0.06)
    made.save_pretrained(folder / "again")
    base = kind.from_pretrained(folder, quantization_config=OctavoConfig(recipe)).eval()
    again = peft.PeftModel.from_pretrained(base, folder / "again").eval()
    assert torch.equal(_logits(again), _logits(made))
    return made


@pytest.mark.parametrize("tuner", WORKS)
def test_tuners_that_the_page_names_work(tuner: str, tmp_path: Path) -> None:
    kind, names = _written("bert", tmp_path)
    make, given = WORKS[tuner]
    config = make(task_type="SEQ_CLS", **{"target_modules": names} | given)
    _answers(kind, tmp_path, config)


@pytest.mark.parametrize("recipe", ["int8", "float16", "int4"])
@pytest.mark.parametrize("name", KINDS)
def test_a_head_comes_float_from_the_adapter(name: str, recipe: str, tmp_path: Path) -> None:
    kind, names = _written(name, tmp_path)
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=names, **RANDOM)
    if recipe == "float16":  # LoRA is for bases of integers
        config = peft.LNTuningConfig(task_type="SEQ_CLS", target_modules=r".*[nN]orm|.*ln_f")
    made = _answers(kind, tmp_path, config, recipe)
    head = [m for n, m in made.named_modules() if ".modules_to_save." in n]
    assert head
    assert not any(isinstance(module, QuantizedModule) for module in head)


def test_a_soft_prompt_needs_a_float_table(tmp_path: Path) -> None:
    kind, _ = _written("bert", tmp_path)
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    exact = _adapted(kind, tmp_path, config)
    given = OctavoConfig(skip=["*.word_embeddings"])
    base = kind.from_pretrained(tmp_path, quantization_config=given).eval()
    made = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert relative(_logits(made), _logits(exact)) < 0.06


@pytest.mark.parametrize("tuner", REFUSED)
def test_tuners_that_do_not_are_refused_by_peft(tuner: str, tmp_path: Path) -> None:
    kind, _ = _written("bert", tmp_path)
    make, given = REFUSED[tuner]
    model = kind.from_pretrained(tmp_path, quantization_config=OctavoConfig())
    with pytest.raises((ValueError, TypeError), match=r"not supported|No |unknown layer type"):
        _logits(peft.get_peft_model(model, make(task_type="SEQ_CLS", **given)))


def test_a_model_without_a_float_parameter_takes_adapters() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    x = torch.randn(3, 64)
    for more in ([], ["2"]):
        made = octavo.torch.quantize_dynamic(copy.deepcopy(model))
        with torch.no_grad():
            expected = made(x)
        config = peft.LoraConfig(target_modules=["0"], modules_to_save=more)
        adapted = peft.get_peft_model(made, config)
        with torch.no_grad():
            assert relative(adapted(x), expected) < 0.02  # LoRA begins at nothing
        assert isinstance(adapted.base_model.model[0].lora_A["default"], nn.Linear)


def test_what_has_no_way_back_is_named() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LSTM(64, 64)).eval()
    made = octavo.torch.quantize_dynamic(model)
    config = peft.LoraConfig(target_modules=["0"], modules_to_save=["1"])
    with pytest.raises(ModelError, match=r"modules_to_save: .*QuantizedLSTM.*skip"):
        peft.get_peft_model(made, config)
