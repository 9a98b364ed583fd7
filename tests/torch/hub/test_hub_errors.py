"""What is wrong with a folder or a configuration is named, and nothing is loaded half."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from octavo import Scheme
from octavo.errors import (
    AlreadyQuantizedError,
    ModelError,
    NothingQuantizedError,
    OptionError,
    OutputError,
    RecipeError,
)
from octavo.recipe import FLOAT, Recipe, Rule
from octavo.torch import quantize_dynamic
from octavo.torch.hub import OctavoConfig, aligned_files
from octavo.torch.layers.linear import QuantizedLinear
from tests.torch.hub.families import FAMILIES, checkpoint, load

BERT = next(family for family in FAMILIES if family.name == "bert")


@pytest.fixture(scope="module")
def float_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(BERT, tmp_path_factory.mktemp("float"))


@pytest.fixture
def folder(float_folder: Path, tmp_path: Path) -> Path:
    made = load(BERT, float_folder, quantization_config=OctavoConfig())
    made.save_pretrained(tmp_path / "int8", max_shard_size="60kB")
    return tmp_path / "int8"


@pytest.mark.parametrize("at", [1, 2])
def test_a_full_disk_leaves_no_part_of_a_model(
    at: int, float_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers writes config.json first, and shard by shard."""
    write, calls = aligned_files.write, []

    def full(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*arguments)

    monkeypatch.setattr(aligned_files, "write", full)
    made = load(BERT, float_folder, quantization_config=OctavoConfig())
    (tmp_path / "tokenizer.json").write_text("mine")
    with pytest.raises(OutputError, match=r"\.safetensors cannot be written: No space left"):
        made.save_pretrained(tmp_path, max_shard_size="60kB")
    assert len(calls) == at
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_float_weights_are_not_replaced(float_folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    shutil.copytree(float_folder, place)
    before = contents(place)
    made = load(BERT, place, quantization_config=OctavoConfig())
    message = (
        r"checkpoint holds model\.safetensors: weights that Octavo did not write.*another folder"
    )
    with pytest.raises(OutputError, match=message):
        made.save_pretrained(place)
    assert contents(place) == before


def test_a_failed_save_leaves_the_model_that_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, before = load(BERT, folder), contents(folder)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(OutputError, match="No space left"):
        patched.setattr(aligned_files, "write", full)
        made.save_pretrained(folder)
    assert contents(folder) == before
    made.save_pretrained(folder)  # one file in place of several, and of their index
    assert sorted(contents(folder)) == ["config.json", "model.safetensors"]
    ids = torch.arange(6)[None]
    again = load(BERT, folder)
    assert torch.equal(again(ids).last_hidden_state, made(ids).last_hidden_state)


def test_going_back_to_float_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"dequantize: .*load the float checkpoint"):
        load(BERT, folder).dequantize()


def test_a_scale_that_is_no_number_is_named(folder: Path) -> None:
    file = next(f for f in sorted(folder.glob("*.safetensors")) if "scale" in str(load_file(f)))
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith(".scale"))
    tensors[name].view(-1)[0] = torch.nan
    save_file(tensors, file, metadata)
    with pytest.raises(ModelError, match=rf"{name} holds nan.*copy the folder again"):
        load(BERT, folder)


def test_a_folder_of_octavos_is_what_it_is(folder: Path) -> None:
    """transformers would warn once, and leave out what is asked."""
    again = load(BERT, folder, quantization_config=OctavoConfig())
    assert isinstance(again.encoder.layer[0].output.dense, QuantizedLinear)
    for other, what in (
        (OctavoConfig("int4"), "another recipe"),
        (OctavoConfig("int4", skip=["classifier"]), "another recipe and skip"),
        (OctavoConfig(format="compressed-tensors"), "another format"),
    ):
        with pytest.raises(AlreadyQuantizedError, match=f"recipe 'int8', .*{what}: leave it out"):
            load(BERT, folder, quantization_config=other)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the `quantization_config` of a folder's config.json."""
    file = folder / "config.json"
    data = json.loads(file.read_text())
    change(data["quantization_config"])
    file.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 3, "octavo_version": "9.1"}, ModelError, "version 3, written by Octavo 9.1"),
        ({"recipe": "int3"}, RecipeError, "unknown preset 'int3'"),
        ({"recipes": "int8"}, OptionError, "unknown field 'recipes'. Did you mean 'recipe'"),
        ({"format": "packed"}, OptionError, "unknown format 'packed'"),
        ({"layers": None}, ModelError, "no `layers`"),
        ({"layers": [{"class": "QuantizedLinnear", "config": {}, "names": ["encoder"]}]},
         ModelError, "a 'QuantizedLinnear', a layer that this Octavo"),
        ({"layers": [{"class": "QuantizedLinear", "config": {}, "names": ["decoder.wi"]}]},
         ModelError, r"has none of the layers .*decoder\.wi"),
    ],
    ids=["newer", "recipe", "field", "format", "no-layers", "class", "other-model"],
)  # fmt: skip
def test_what_config_json_says_is_checked(
    folder: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    rewrite(folder, lambda data: data.update(change))
    with pytest.raises(error, match=message):
        load(BERT, folder)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"recipe": "int9"}, RecipeError, "unknown preset 'int9'"),
        ({"skips": ["x"]}, OptionError, "unknown field 'skips'. Did you mean 'skip'"),
        ({"skip": "pooler"}, OptionError, "needs a list of layers' names, not 'pooler'"),
        ({"skip": ["pooler.dens"]}, OptionError, "'pooler.dens' matches no layer"),
        ({"format": "compressed-tensors", "recipe": "int8-accurate"}, OptionError,
         "format and recipe .*use recipe='int8' or 'int4', or format='octavo'"),
        ({"recipe": Recipe("none", FLOAT)}, NothingQuantizedError, "no layer of BertModel"),
    ],
    ids=["recipe", "field", "skip", "skip-name", "format", "nothing"],
)  # fmt: skip
def test_what_a_user_asks_is_checked(
    float_folder: Path, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load(BERT, float_folder, quantization_config=OctavoConfig(**given))


def test_a_missing_tensor_is_named(folder: Path) -> None:
    file = next(f for f in sorted(folder.glob("*.safetensors")) if "scale" in str(load_file(f)))
    tensors = load_file(file)
    gone = next(name for name in tensors if name.endswith(".scale"))
    save_file({n: t for n, t in tensors.items() if n != gone}, file, {"format": "pt"})
    with pytest.raises(ModelError, match=rf"its files lack .*{gone}.*copy the folder again"):
        load(BERT, folder)


@pytest.mark.parametrize("part", ["float", "float without dtype", "int8"])
def test_a_file_that_is_cut_short_is_named(
    part: str, folder: Path, float_folder: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {}
    if part != "int8":
        folder, given = tmp_path / "cut", {"quantization_config": OctavoConfig()}
        checkpoint(BERT, folder)
    if part == "float without dtype":  # which transformers then reads from the file
        data = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(data | {"dtype": None}))
    file = sorted(folder.glob("*.safetensors"))[0]
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match=rf"{file.name} is cut short"):
        load(BERT, folder, **given)


def test_a_weight_with_nan_is_named(tmp_path: Path) -> None:
    folder = checkpoint(BERT, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.1.output.dense.weight"][3, 4] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"encoder\.layer\.1\.output\.dense: weight"):
        load(BERT, folder, quantization_config=OctavoConfig())


@pytest.mark.parametrize("place", ["cuda:0", 0, {"": "disk"}])
def test_a_place_where_no_quantized_layer_runs_is_refused(float_folder: Path, place: Any) -> None:
    with pytest.raises(OptionError, match="quantized run on the CPU"):
        load(BERT, float_folder, device_map=place, quantization_config=OctavoConfig())


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("torchao", {"quant_type": "int8"}, "quantized already, by torchao"),
        ("bitsandbytes", {"load_in_8bit": True}, "quantized already, by bitsandbytes"),
        ("quanto", {"weights": "int4"}, "quantized already, by quanto"),
        ("gptq", {"bits": 3}, "gptq: bits is 3; Octavo reads 4 and 8"),
        ("gptq", {"bits": 4, "group_size": 48}, "group_size is 48; Octavo reads -1 and multiples"),
        ("gptq", {"bits": 4, "checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'"),
        ("awq", {"bits": 4, "version": "gemv"}, "awq: version is 'gemv'; Octavo reads 'gemm'"),
        ("awq", {"bits": 4}, "no layer of BertModel is quantized by awq there"),
        ("compressed-tensors", {"config_groups": {}}, "config_groups is {}"),
    ],
)
def test_folders_of_others_are_refused_by_name(
    method: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = checkpoint(BERT, tmp_path)
    data = json.loads((folder / "config.json").read_text())
    data["quantization_config"] = {"quant_method": method, **fields}
    (folder / "config.json").write_text(json.dumps(data))
    with pytest.raises((AlreadyQuantizedError, ModelError, NothingQuantizedError), match=message):
        load(BERT, folder, quantization_config=OctavoConfig())


def test_what_quantize_dynamic_made_says_how_to_save_it(float_folder: Path, tmp_path: Path) -> None:
    made = quantize_dynamic(load(BERT, float_folder))
    with pytest.raises(ModelError, match="quantization_config=OctavoConfig"):
        made.save_pretrained(tmp_path)


def test_a_layer_without_a_form_in_compressed_tensors_is_named(
    float_folder: Path, tmp_path: Path
) -> None:
    recipe = Recipe("groups", Scheme(), (Rule(FLOAT, name="pooler.dense"),))
    made = load(BERT, float_folder, quantization_config=OctavoConfig(recipe))
    made.hf_quantizer.quantization_config.layout = type(
        made.hf_quantizer.quantization_config.layout
    ).COMPRESSED_TENSORS
    with pytest.raises(ModelError, match=r"embeddings\.word_embeddings is a QuantizedEmbedding"):
        made.save_pretrained(tmp_path)
