"""How a checkpoint is loaded: what is in memory, what is mapped, what is registered when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from octavo.core.kernels.packing import ALIGNMENT
from octavo.torch import report
from octavo.torch.hub import OctavoConfig
from octavo.torch.layers.experts import QuantizedExperts
from tests import fresh
from tests.torch.hub.families import BERT, BY_NAME, checkpoint, load

PEAK = """
import sys
import torch, transformers
import transformers.models.llama.modeling_llama
import octavo.torch.hub.streaming
from octavo.torch.hub import OctavoConfig

def high_water():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024

before = high_water()
model = transformers.AutoModelForCausalLM.from_pretrained(
    sys.argv[1], quantization_config=OctavoConfig()
)
print(high_water() - before)
"""


@pytest.mark.slow
def test_peak_memory_is_the_quantized_model_and_one_tensor(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=6,
        num_attention_heads=8,
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path, max_shard_size="100MB")
    size = sum(parameter.nbytes for parameter in model.parameters())
    largest = max(parameter.nbytes for parameter in model.parameters())
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    read_ahead = 64 << 20  # pages of the files are let go this often
    peak = int(done.stdout)
    assert peak < size / 4 + 2 * largest + read_ahead + (32 << 20)
    assert peak < 0.6 * size


def test_a_saved_folder_is_mapped(tmp_path: Path) -> None:
    checkpoint(BERT, tmp_path / "float")
    load(BERT, tmp_path / "float", quantization_config=OctavoConfig()).save_pretrained(
        tmp_path / "int8"
    )
    model = load(BERT, tmp_path / "int8")
    layer = model.encoder.layer[0].attention.self.query
    ranges = [
        [int(end, 16) for end in line.split()[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(tmp_path / "int8" / "model.safetensors"))
    ]
    address = layer.packed.data_ptr()
    assert any(first <= address < last for first, last in ranges)
    assert address % ALIGNMENT == 0  # else kernels would copy it


def test_a_layer_that_the_checkpoint_lacks_stays_float(tmp_path: Path) -> None:
    checkpoint(BERT, tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, quantization_config=OctavoConfig(skip=["bert.encoder.layer.0", "*.pooler.*"])
    )
    left = {o.layer.name: o.reason for o in report(model).left_float}
    assert left["classifier"].startswith("its weights are not in the checkpoint")
    assert left["bert.pooler.dense"] == "skip names '*.pooler.*'"
    assert left["bert.encoder.layer.0.output.dense"] == "skip names 'bert.encoder.layer.0'"
    assert isinstance(model.classifier, torch.nn.Linear)


def test_a_layer_of_which_the_checkpoint_has_the_bias_alone_stays_float(tmp_path: Path) -> None:
    tensors = load_file(checkpoint(BERT, tmp_path) / "model.safetensors")
    del tensors["pooler.dense.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    model = load(BERT, tmp_path, quantization_config=OctavoConfig())
    left = {o.layer.name: o.reason for o in report(model).left_float}
    assert left["pooler.dense"].startswith("its weights are not in the checkpoint")


def test_what_is_refused_when_its_weights_are_there_stays_float(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = BY_NAME["mixtral"]
    folder = checkpoint(family, tmp_path)
    expected = load(family, folder)

    def refuses(module: Any, choice: Any) -> str:
        return "" if module.down_proj.is_meta else "its experts are not alike"

    monkeypatch.setattr(QuantizedExperts, "refuses", staticmethod(refuses))
    model = load(family, folder, quantization_config=OctavoConfig())
    left = {o.layer.name: o.reason for o in report(model).left_float}
    assert left["model.layers.1.mlp.experts"] == "its experts are not alike"
    for name, parameter in expected.model.layers[1].mlp.experts.named_parameters():
        found = model.model.layers[1].mlp.experts.get_parameter(name)
        assert torch.equal(found, parameter)
        assert found.requires_grad


def test_a_fresh_process_that_imports_octavo_torch_gives_the_same_bits(tmp_path: Path) -> None:
    checkpoint(BERT, tmp_path / "float")
    model = load(BERT, tmp_path / "float", quantization_config=OctavoConfig())
    model.save_pretrained(tmp_path / "int8")
    ids = torch.arange(2, 20).reshape(2, 9)
    with torch.no_grad():
        expected = model(ids).last_hidden_state
    torch.save((ids, expected), tmp_path / "expected.pt")
    code = f"""
import sys
import octavo.torch
assert not {{"transformers", "peft"}} & {{*sys.modules}}
import torch
from transformers import AutoModel
model = AutoModel.from_pretrained({str(tmp_path / "int8")!r})
ids, expected = torch.load({str(tmp_path / "expected.pt")!r})
with torch.no_grad():
    print(torch.equal(model(ids).last_hidden_state, expected))
"""
    assert fresh.python(code).stdout.strip() == "True"
