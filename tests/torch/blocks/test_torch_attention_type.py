"""A recipe's `attention: bfloat16` in blocks that run as one call."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from octavo.recipe import AttentionType, preset
from octavo.torch import export_onnx, inspect, load, quantize_dynamic, report, save
from tests.models import encoder, relative

pytestmark = pytest.mark.usefixtures("one_registry")

RECIPE = replace(preset("int8"), attention=AttentionType.BFLOAT16)
X = torch.randn(2, 40, 64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """By a recipe that allows bfloat16, and by one that does not."""
    return tuple(
        quantize_dynamic(encoder(64, layers=1), recipe=recipe) for recipe in (RECIPE, "int8")
    )


def notes(model: nn.Module) -> str:
    return "\n".join(report(model).notes)


def test_blocks_multiply_in_bfloat16_where_the_recipe_allows_it(models: tuple[Any, Any]) -> None:
    half, whole = models
    assert 0 < relative(half(X), whole(X)) < 0.01
    assert torch.equal(half(X[:, :16]), whole(X[:, :16]))  # few queries are float32
    assert "multiplies in bfloat16" in notes(half)
    assert "bfloat16" not in notes(whole)
    assert report(half).recipe["attention"] == "bfloat16"


def test_copies_files_and_compiled_models_keep_it(models: tuple[Any, Any], tmp_path: Path) -> None:
    half, whole = models
    save(half, tmp_path / "m.safetensors")
    for same in (
        copy.deepcopy(half),
        pickle.loads(pickle.dumps(half)),
        load(tmp_path / "m.safetensors", lambda: encoder(64, layers=1)),
        torch.compile(half, backend="eager"),
    ):
        assert torch.equal(same(X), half(X))
    assert torch.equal(torch.compile(whole, backend="eager")(X), whole(X))


def test_an_exported_model_keeps_it(models: tuple[Any, Any], tmp_path: Path) -> None:
    exported = export_onnx(models[0], (X,), tmp_path / "m.onnx", "native")
    nodes = [n for n in onnx.load(exported.path).graph.node if n.op_type == "Attention"]
    assert nodes
    assert all(any(a.name == "bfloat16" for a in node.attribute) for node in nodes)
    portable = export_onnx(models[0], (X,), tmp_path / "p.onnx")
    assert any("target native" in note for note in portable.notes)


def test_reports_and_inspections_tell_of_it() -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(64, 64)), recipe=RECIPE)
    assert "changed nothing, since no block" in notes(model)
    assert "bfloat16" in str(inspect(encoder(64, layers=1), RECIPE))
