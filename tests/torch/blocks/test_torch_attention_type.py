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

RECIPE = replace(preset("int8"), attention=AttentionType.BFLOAT16)


def encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 96, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


X = torch.randn(2, 40, 64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """By a recipe that allows bfloat16, and by one that does not."""
    return quantize_dynamic(encoder(), recipe=RECIPE), quantize_dynamic(encoder(), recipe="int8")


@torch.no_grad()
def output(model: nn.Module) -> torch.Tensor:
    found: torch.Tensor = model(X)
    return found


def test_blocks_multiply_in_bfloat16_where_the_recipe_allows_it(models: tuple[Any, Any]) -> None:
    half, whole = models
    assert not torch.equal(output(half), output(whole))
    assert (output(half) - output(whole)).norm() < 0.01 * output(whole).norm()
    assert any("multiplies in bfloat16" in note for note in report(half).notes)
    assert not any("bfloat16" in note for note in report(whole).notes)
    assert report(half).recipe["attention"] == "bfloat16"


def test_few_queries_are_float32(models: tuple[Any, Any]) -> None:
    with torch.no_grad():
        assert torch.equal(models[0](X[:, :16]), models[1](X[:, :16]))


def test_copies_and_files_keep_it(models: tuple[Any, Any], tmp_path: Path) -> None:
    expected = output(models[0])
    save(models[0], tmp_path / "m.safetensors")
    for same in (
        copy.deepcopy(models[0]),
        pickle.loads(pickle.dumps(models[0])),
        load(tmp_path / "m.safetensors", encoder),
    ):
        assert torch.equal(output(same), expected)


def test_a_compiled_model_computes_the_same(models: tuple[Any, Any]) -> None:
    for model in models:
        compiled = torch.compile(model, backend="eager")
        assert torch.equal(output(compiled), output(model))


def test_an_exported_model_keeps_it(models: tuple[Any, Any], tmp_path: Path) -> None:
    exported = export_onnx(models[0], (X,), tmp_path / "m.onnx", "native")
    nodes = [n for n in onnx.load(exported.path).graph.node if n.op_type == "Attention"]
    assert nodes
    assert all(any(a.name == "bfloat16" for a in node.attribute) for node in nodes)
    portable = export_onnx(models[0], (X,), tmp_path / "p.onnx")
    assert any("is for PyTorch and target native" in note for note in portable.notes)


def test_a_model_without_blocks_says_that_nothing_changed() -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(64, 64)), recipe=RECIPE)
    assert any("changed nothing, since no block" in note for note in report(model).notes)


def test_an_inspection_shows_it() -> None:
    assert "Attention may multiply in bfloat16" in str(inspect(encoder(), RECIPE))
