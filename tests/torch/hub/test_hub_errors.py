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

from octavo.errors import (
    AlreadyQuantizedError,
    ModelError,
    NothingQuantizedError,
    OptionError,
    OutputError,
    RecipeError,
)
from octavo.recipe import FLOAT, Recipe
from octavo.torch.hub import OctavoConfig, aligned_files
from octavo.torch.layers.linear import QuantizedLinear
from tests.torch.hub.families import BERT, checkpoint, load


@pytest.fixture(scope="module")
def float_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(BERT, tmp_path_factory.mktemp("float"))


@pytest.fixture
def folder(float_folder: Path, tmp_path: Path) -> Path:
    made = load(BERT, float_folder, quantization_config=OctavoConfig())
    made.save_pretrained(tmp_path / "int8", max_shard_size="60kB")
    return tmp_path / "int8"


def test_a_name_in_place_of_a_configuration(float_folder: Path) -> None:
    with pytest.raises(OptionError, match=r"'int8' is a str; .* OctavoConfig\(recipe='int8'\)"):
        load(BERT, float_folder, quantization_config="int8")


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
    with pytest.raises(OutputError, match=r"checkpoint holds model\.safetensors"):
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
    with pytest.raises(ModelError, match="dequantize"):
        load(BERT, folder).dequantize()


def _lost(tensors: dict[str, Any], name: str) -> None:
    del tensors[name]


def _nan(tensors: dict[str, Any], name: str) -> None:
    tensors[name].view(-1)[0] = torch.nan


DENSE = "encoder.layer.1.output.dense"


@pytest.mark.parametrize(
    ("change", "what", "message"),
    [
        (_nan, f"{DENSE}.scale", "scale holds nan"),
        (_lost, f"{DENSE}.scale", r"its files lack .*dense\.scale"),
        (_nan, f"{DENSE}.weight", "dense: weight"),
    ],
    ids=["nan-scale", "no-scale", "nan-weight"],
)
def test_tensors_that_make_no_layer_are_named(
    change: Any, what: str, message: str, folder: Path, float_folder: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {}
    if what.endswith("weight"):
        folder, given = tmp_path / "float", {"quantization_config": OctavoConfig()}
        shutil.copytree(float_folder, folder)
    file = next(f for f in folder.glob("*.safetensors") if what in load_file(f))
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    change(tensors, what)
    save_file(tensors, file, metadata)
    with pytest.raises((ModelError, ValueError), match=message):
        load(BERT, folder, **given)


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
    ("change", "message"),
    [
        ({"version": 3, "octavo_version": "9.1"}, "version 3, written by Octavo 9.1"),
        ({"recipe": "int3"}, "unknown preset 'int3'"),
        ({"recipes": "int8"}, "'recipes'. Did you mean 'recipe'"),
        ({"format": "packed"}, "unknown format 'packed'"),
        ({"layers": None}, "no `layers`"),
        ({"layers": [{"class": "QuantizedLinnear", "config": {}, "names": ["encoder"]}]},
         "a 'QuantizedLinnear', a layer that this Octavo"),
        ({"layers": [{"class": "QuantizedLinear", "config": {}, "names": ["decoder.wi"]}]},
         r"has none of the layers .*decoder\.wi"),
    ],
    ids=["newer", "recipe", "field", "format", "no-layers", "class", "other-model"],
)  # fmt: skip
def test_what_config_json_says_is_checked(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    rewrite(folder, lambda data: data.update(change))
    with pytest.raises(ModelError, match=message):
        load(BERT, folder)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"recipe": "int9"}, RecipeError, "unknown preset 'int9'"),
        ({"skips": ["x"]}, OptionError, "'skips'. Did you mean 'skip'"),
        ({"skip": "pooler"}, OptionError, "needs a list of layers' names, not 'pooler'"),
        ({"skip": None}, OptionError, "needs a list of layers' names, not None"),
        ({"skip": 3}, OptionError, "needs a list of layers' names, not 3"),
        ({"skip": ["pooler", 3]}, OptionError, "needs a list of layers' names, not "),
        ({"skip": ["pooler.dens"]}, OptionError, "'pooler.dens' matches no layer"),
        ({"format": "compressed-tensors", "recipe": "int8-accurate"}, OptionError,
         "format and recipe"),
        ({"recipe": Recipe("none", FLOAT)}, NothingQuantizedError, "no layer of BertModel"),
    ],
    ids=["recipe", "field", "skip", "none", "number", "numbers", "skip-name", "format", "nothing"],
)  # fmt: skip
def test_what_a_user_asks_is_checked(
    float_folder: Path, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load(BERT, float_folder, quantization_config=OctavoConfig(**given))


@pytest.mark.parametrize("part", ["float", "float without dtype", "int8"])
def test_a_file_that_is_cut_short_is_named(
    part: str, folder: Path, float_folder: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {}
    if part != "int8":
        folder, given = tmp_path / "cut", {"quantization_config": OctavoConfig()}
        shutil.copytree(float_folder, folder)
    if part == "float without dtype":  # which transformers then reads from the file
        data = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(data | {"dtype": None}))
    file = min(folder.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match=rf"{file.name} is cut short"):
        load(BERT, folder, **given)


@pytest.mark.parametrize("place", ["cuda:0", 0, {"": "disk"}, "meta"])
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
