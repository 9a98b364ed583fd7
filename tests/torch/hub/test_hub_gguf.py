"""GGUF files in transformers: the file's integers in our layers, whatever converted them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers

from octavo.errors import ModelError, OptionError
from octavo.recipe import PRESETS
from octavo.recipe.bit_budget import Mix
from octavo.torch import report
from octavo.torch.hub import OctavoConfig, load_gguf
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from tests.cli_support import run
from tests.models import VOCABULARY, relative, transformer
from tests.torch.hub.gguf_models import write_model

IDS = {"input_ids": torch.arange(2, 20)[None]}


def _model(name: str, **given: Any) -> Any:
    model = transformer(f"{name}ForCausalLM", max_position_embeddings=64, **given)
    for name, parameter in model.named_parameters():  # else all 0 or 1
        if parameter.dim() == 1:
            parameter.data = torch.rand_like(parameter) * 0.5 + ("norm" in name)
    return model


MODELS = {
    "llama": lambda: _model("Llama", head_dim=16),
    "qwen2": lambda: _model("Qwen2"),
    "qwen3": lambda: _model("Qwen3", head_dim=128),
    "gemma3": lambda: _model("Gemma3", head_dim=16, query_pre_attn_scalar=16),
}


def _through_blocks(model: Any, kind: str) -> Any:
    """The float model with the weights that blocks of this type stand for."""
    known = gguf.GGMLQuantizationType[kind]
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            rows = gguf.quantize(module.weight.detach().numpy(), known)
            module.weight.data = torch.from_numpy(gguf.dequantize(rows, known).copy())
    return model


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """m.gguf of four bits with a vocabulary, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return write_model(tmp_path / "m.gguf", MODELS["llama"](), "llama", "Q4_0", words=VOCABULARY)


def _quantized(model: Any) -> dict[str, Any]:
    kinds = (QuantizedLinear, QuantizedPackedEmbedding)
    return {n: m for n, m in model.named_modules() if isinstance(m, kinds)}


@torch.no_grad()
def _logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(**IDS).logits
    return found


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", "Q4_1"),
        ("qwen2", "Q4_0"),
        ("qwen3", "Q8_0"),
        ("gemma3", "Q4_0"),
    ],
)
def test_layers_hold_the_weights_of_the_file(name: str, kind: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    write_model(tmp_path / "m.gguf", model, name, kind)
    exact = _through_blocks(model, kind)
    made = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", quantization_config=OctavoConfig()
    )
    layers = _quantized(made)
    assert len(layers) == 2 * 7 + 2
    for where, layer in layers.items():
        wanted = exact.get_submodule(where)
        factor = float(getattr(wanted, "scalar_embed_scale", 1))
        torch.testing.assert_close(
            layer.weight() + 0, wanted.weight.detach() * factor, rtol=1e-6, atol=0
        )
    assert relative(_logits(made), _logits(exact)) < 0.04
    found = report(made)
    assert {o.layer.name for o in found.quantized} == layers.keys()
    assert f"16 weights keep the file's integers ({kind})" in found.notes


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_what_is_saved_is_loaded_again(name: str, tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", MODELS[name](), name, "Q4_1")
    made = load_gguf(tmp_path / "m.gguf")
    made.save_pretrained(tmp_path / "saved")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert torch.equal(_logits(again), _logits(made))
    tied = again.model.embed_tokens.packed, again.lm_head.packed
    assert tied[0].data_ptr() == tied[1].data_ptr()
    size = (tmp_path / "saved" / "model.safetensors").stat().st_size
    assert size < 1.3 * (tmp_path / "m.gguf").stat().st_size + 30_000  # of names and the report


def test_floats_follow_the_recipe_and_names_stay_float(tmp_path: Path) -> None:
    model = MODELS["llama"]()
    others = {"output.weight": "F16", "blk.0.ffn_up.weight": "BF16"}
    write_model(tmp_path / "m.gguf", model, "llama", "Q4_0", others)
    made = load_gguf(tmp_path / "m.gguf", skip=["*.q_proj"])
    outcomes = {o.layer.name: o for o in report(made).layers}
    assert outcomes["model.layers.0.mlp.up_proj"].scheme.startswith("int8 per channel")
    assert outcomes["lm_head"].scheme.startswith("int8 per channel")
    assert outcomes["model.layers.0.mlp.down_proj"].scheme.startswith("int4 per block of 32")
    assert outcomes["model.layers.1.self_attn.q_proj"].reason == "skip names '*.q_proj'"
    held = made.model.layers[1].self_attn.q_proj
    assert type(held) is torch.nn.Linear
    exact = _through_blocks(model, "Q4_0").model.layers[1].self_attn.q_proj.weight
    torch.testing.assert_close(held.weight, exact, rtol=1e-6, atol=0)


def test_blocks_that_no_groups_hold_are_said(tmp_path: Path) -> None:
    model = MODELS["llama"]()
    write_model(tmp_path / "m.gguf", model, "llama", "Q8_0", {"blk.1.attn_q.weight": "Q5_1"})
    made = load_gguf(tmp_path / "m.gguf")
    assert "1 weights were rounded anew: no groups hold them (Q5_1)" in report(made).notes
    outcomes = {o.layer.name: o for o in report(made).layers}
    rounded = outcomes["model.layers.1.self_attn.q_proj"]
    assert rounded.notes == ("Q5_1 rounded to int8-32",)
    assert rounded.sqnr_db is not None and rounded.sqnr_db > 40
    assert relative(_logits(made), _logits(model)) < 0.1


def test_the_command_writes_a_folder_with_the_tokenizer(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.txt").write_text("not of the model")
    assert run("quantize", "m.gguf", "-o", "out") == 0
    out, _ = capsys.readouterr()
    assert out.startswith("m.gguf -> out\n")
    assert "keep the file's integers (Q4_0)" in out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "octavo_report.json"} <= names
    assert "other.txt" not in names
    made = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(_logits(made), _logits(load_gguf(tmp_path / "m.gguf")))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert len(tokenizer) == VOCABULARY
    said = json.loads((tmp_path / "out" / "octavo_report.json").read_text())
    assert said["source"] == "m.gguf"
    assert run("quantize", "m.gguf") == 0
    assert (tmp_path / "m-octavo").is_dir()
    capsys.readouterr()
    assert run("quantize", "m.gguf", "--to", "onnx") == 2
    assert "octavo.torch.hub.export" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind", "rules"),
    [
        ("llama", "Q5_1", []),
        ("qwen3", "Q8_0", [{"name": "*.0.mlp.up_proj", "scheme": "float"}]),
        ("gemma3", "Q4_0", []),
    ],
)
def test_inspect_says_by_the_header_what_loading_does(
    name: str, kind: str, rules: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    write_model(path, MODELS[name](), name, kind, others={"blk.1.ffn_up.weight": "F16"})
    (tmp_path / "r.yaml").write_text(json.dumps({"version": 1, "base": "int8", "rules": rules}))
    before = path.read_bytes()
    assert run("inspect", str(path), "--recipe", str(tmp_path / "r.yaml"), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    made = report(load_gguf(path, recipe=tmp_path / "r.yaml"))
    assert [one["name"] for one in said["layers"]] == [o.layer.name for o in made.layers]
    assert [one["scheme"] for one in said["layers"]] == [o.scheme for o in made.layers]
    assert [one["own_bytes"] for one in said["layers"]] == [o.bytes_before for o in made.layers]
    assert said["model_bytes"] == made.model_bytes_before
    assert abs(said["bytes_after"] - made.model_bytes_after) < 0.05 * made.model_bytes_after
    assert f"a GGUF file of {name} with" in said["quantized"]
    assert path.read_bytes() == before
    assert run("inspect", str(path)) == 0
    out = capsys.readouterr().out
    assert "octavo quantize keeps these integers" in out
    assert f"{kind} with the file's integers" in out or f"{kind} rounded anew" in out


def test_files_are_not_tuned_nor_made_smaller(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf.yaml").write_text("model: {name: m, framework: onnxrt_integerops}\n")
    assert run("tune", "conf.yaml", "--model", "m.gguf", "--approach", "dynamic") != 0
    assert "give the float checkpoint" in capsys.readouterr().err
    assert run("quantize", "m.gguf", "--bits", "4.5") == 2
    assert "m.gguf keeps the integers of llama.cpp: leave them out" in capsys.readouterr().err


def _damaged(path: Path, change: Any) -> str:
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ModelError) as error:
        load_gguf(path)
    return str(error.value)


def test_bad_files_are_refused_before_anything_is_written(llama: Path, tmp_path: Path) -> None:
    path, whole = llama, llama.read_bytes()
    assert "cut short" in _damaged(path, lambda data: whole[:-4000])
    assert "'lamma'" in _damaged(path, lambda data: whole.replace(b"llama", b"lamma"))
    message = _damaged(path, lambda data: whole.replace(b"ffn_up.weight", b"ffn_xx.weight", 1))
    assert re.search(r"lacks model\.layers\.\d\.mlp\.up_proj\.weight", message)
    assert re.search(r"no place for blk\.\d\.ffn_xx\.weight; a newer transformers", message)
    assert run("quantize", "m.gguf", "-o", "out") == 3
    assert not (tmp_path / "out").exists()
    path.write_bytes(whole)
    with pytest.raises(OptionError, match="skip: 'nothing'"):
        load_gguf(path, skip=["nothing"])


@pytest.mark.parametrize(
    ("architecture", "said", "words"),
    [
        ("llama", {}, r"lacks .*q_proj.* needs: get the file again, or convert the model anew"),
        (
            "llama",
            {"split.count": 3},
            r"one of 3 parts of a split file.* llama-gguf-split",
        ),
        ("martian", {}, r"of the architecture 'martian', which transformers .* does not read"),
        ("qwen35", {}, r"\(qwen35\) lacks the field 'qwen35\.\w+.*convert the model anew"),
        ("gpt-oss", {}, r"\(gpt-oss\) lacks "),
        ("t5", {}, r"\(t5\): transformers cannot load it: ValueError: Unrecognized"),
    ],
    ids=[
        "not whole",
        "split",
        "unknown architecture",
        "no field",
        "spelt by llama.cpp",
        "no class",
    ],
)
def test_what_a_file_lacks_is_said_with_the_way_out(
    architecture: str, said: dict[str, int], words: str, tmp_path: Path
) -> None:
    from tests.checkpoints.gguf_files import write_gguf

    keys: dict[str, Any] = {"block_count": 1, "context_length": 64, "embedding_length": 64}
    keys |= {"feed_forward_length": 96, "attention.head_count": 4, "vocab_size": 64}
    metadata = {f"{architecture}.{key}": value for key, value in keys.items()} | said
    table = {"token_embd.weight": (np.zeros((64, 64), np.float32), "F32")}
    path = write_gguf(tmp_path / "m.gguf", table, architecture, metadata)
    with pytest.raises(ModelError, match=words):
        load_gguf(path)


def test_experts_are_refused_by_name(tmp_path: Path) -> None:
    from tests.checkpoints.gguf_files import write_gguf

    path = tmp_path / "m.gguf"
    keys = {"block_count": 1, "context_length": 64, "embedding_length": 64}
    keys |= {"feed_forward_length": 96, "attention.head_count": 4, "vocab_size": 64}
    keys |= {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
    metadata = {f"qwen3moe.{key}": value for key, value in keys.items()} | {"general.name": "x"}
    w = np.zeros((4, 32, 64), np.float32)
    write_gguf(path, {"blk.0.ffn_up_exps.weight": (w, "Q4_0")}, "qwen3moe", metadata)
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_up_exps\.weight holds experts"):
        load_gguf(path)


def test_a_configuration_is_read_without_the_vocabulary(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = transformers.AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")
    reader = gguf.GGUFReader
    monkeypatch.setattr(gguf, "GGUFReader", None)
    assert transformers.AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf") == plain
    assert plain.vocab_size == VOCABULARY
    monkeypatch.setattr(gguf, "GGUFReader", reader)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(Exception, match=r"."):  # in transformers' own words
        transformers.AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")


def test_a_limit_of_bits_is_refused_where_the_file_has_its_integers(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", MODELS["llama"](), "llama", "Q8_0")
    config = OctavoConfig(recipe=replace(PRESETS["int4"], mix=Mix(bits=5)))
    with pytest.raises(OptionError, match=r"are for float models, and m\.gguf keeps"):
        transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file="m.gguf", quantization_config=config
        )
