"""Files that earlier versions wrote still load, and give what they gave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import transformers

import octavo.onnx
import octavo.torch
import octavo.torch.hub
from octavo.files.metadata import metadata
from octavo.recipe import load_recipe, preset
from tests.earlier_versions import models
from tests.earlier_versions.write import BITS, HERE, RECIPES, TARGETS, hidden, layer_bits

VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "given.npz").exists())
CLOSE = 0.002
"""Of the largest output, where float operators of other libraries stand between ours: a difference
in their last bit may round an input to the next of 256 integers."""
AS_PORTABLE = 0.03
"""Of the largest output: the LSTM of target portable has one scale for a whole activation."""

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def written(version: str, ends: str) -> Iterator[tuple[Path, np.ndarray]]:
    """The files and folders whose names hold `ends`, and what each gave."""
    with np.load(HERE / version / "given.npz") as given:
        for name in given:
            if ends in name:
                yield HERE / version / name, given[name]


def assert_close(found: np.ndarray, given: np.ndarray, name: str, tolerance: float = CLOSE) -> None:
    assert found.shape == given.shape, name
    assert np.abs(found - given).max() <= tolerance * np.abs(given).max(), name


def test_every_kind_of_file_is_there(version: str) -> None:
    names = {path.name for path, _ in written(version, "")}
    graphs = {f"{name}.onnx" for name in TARGETS}
    modules = {f"{recipe}.safetensors" for recipe in RECIPES}
    assert names >= graphs | modules | {f"checkpoint.{recipe}" for recipe in RECIPES}


def test_graphs_give_what_they_gave(version: str) -> None:
    for path, given in written(version, ".onnx"):
        assert metadata(path)["octavo.version"] == version
        (y,) = octavo.onnx.session(path).run(None, {"ids": models.ids()})
        if path.name.startswith("native"):
            assert np.array_equal(y, given), path
        assert_close(y, given, path.name)


def test_a_native_file_becomes_a_portable_one(version: str, tmp_path: Path) -> None:
    for path, given in written(version, "native."):
        out = tmp_path / path.name
        octavo.onnx.convert_target(path, out, to="portable")
        (y,) = octavo.onnx.session(out).run(None, {"ids": models.ids()})
        assert_close(y, given, path.name, AS_PORTABLE)


def test_modules_give_what_they_gave(version: str) -> None:
    for path, given in written(version, ".safetensors"):
        found = hidden(octavo.torch.load(path, models.Module))
        assert np.array_equal(found, given), path  # all of its layers are ours


def test_checkpoints_give_what_they_gave(version: str) -> None:
    for path, given in written(version, "checkpoint."):
        model = transformers.AutoModel.from_pretrained(path)
        assert_close(hidden(model), given, path.name)
        assert layer_bits(model) == json.loads((HERE / version / BITS).read_text())[path.name]


def test_a_recipe_is_read(version: str) -> None:
    assert load_recipe(HERE / version / "recipe.yaml") == preset("int4")
