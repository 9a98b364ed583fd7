"""A recipe's `attention: bfloat16` in ONNX files: what native files do, and portable ones say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.files.metadata import metadata
from octavo.onnx import convert_target, inspect, quantize_dynamic, session
from octavo.recipe import AttentionType, preset
from octavo.results.report import Report
from tests import graphs
from tests.graphs import mlp

MODEL, FEED = graphs.attention()
RECIPE = replace(preset("int8"), attention=AttentionType.BFLOAT16)


def quantized(out: Path, target: str, recipe: object = RECIPE) -> Report:
    options = {"recipe": recipe, "target": target, "verify": False}
    return quantize_dynamic(MODEL, out, **options)  # type: ignore[arg-type]


def allowed(path: Path) -> list[bool]:
    """Of each Attention node, whether it multiplies in bfloat16."""
    nodes = [n for n in onnx.load(path).graph.node if n.op_type == "Attention"]
    return [any(a.name == "bfloat16" and a.i == 1 for a in node.attribute) for node in nodes]


def output(path: Path) -> np.ndarray:
    found: np.ndarray = session(path).run(None, FEED)[0]
    return found


def test_a_native_file_has_what_the_recipe_allows(tmp_path: Path) -> None:
    done = quantized(tmp_path / "half.onnx", "native")
    quantized(tmp_path / "whole.onnx", "native", "int8")
    assert allowed(tmp_path / "half.onnx") == [True]
    assert allowed(tmp_path / "whole.onnx") == [False]
    assert "1 of them multiply in bfloat16, which the recipe allows" in done.notes
    assert done.recipe["attention"] == "bfloat16"
    assert metadata(tmp_path / "half.onnx")["octavo.attention"] == "bfloat16"
    half, whole = output(tmp_path / "half.onnx"), output(tmp_path / "whole.onnx")
    assert 0 < np.abs(half - whole).max() < 0.03 * np.abs(whole).max()


def test_a_portable_file_multiplies_in_float32_and_says_so(tmp_path: Path) -> None:
    done = quantized(tmp_path / "half.onnx", "portable")
    quantized(tmp_path / "whole.onnx", "portable", "int8")
    assert any("is for PyTorch and target native" in note for note in done.notes)
    np.testing.assert_array_equal(output(tmp_path / "half.onnx"), output(tmp_path / "whole.onnx"))


def test_conversions_keep_it(tmp_path: Path) -> None:
    native, portable, again = (tmp_path / f"{n}.onnx" for n in ("native", "portable", "again"))
    quantized(native, "native")
    said = convert_target(native, portable, to="portable", verify=False)
    assert any("is for PyTorch and target native" in note for note in said.notes)
    convert_target(portable, again, to="native", verify=False)
    assert allowed(again) == [True]


def test_a_model_without_attention_says_that_nothing_changed(tmp_path: Path) -> None:
    done = quantize_dynamic(mlp(), tmp_path / "m.onnx", recipe=RECIPE, target="native")
    assert any("changed nothing, since no attention" in note for note in done.notes)


@pytest.mark.parametrize("attention", AttentionType)
def test_an_inspection_shows_it(attention: AttentionType) -> None:
    found = inspect(MODEL, replace(RECIPE, attention=attention))
    other = attention is AttentionType.BFLOAT16
    assert ("Attention may multiply in bfloat16" in str(found)) == other
    assert (found.to_dict().get("attention") == "bfloat16") == other
