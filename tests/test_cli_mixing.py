"""`octavo quantize --recipe int4-mixed`: what --bits, --size and --max-error make of the recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import octavo.onnx
from octavo.errors import VerificationError
from octavo.recipe import PRESETS, Recipe, Report
from octavo.recipe.mix import Mix
from tests.cli_support import REPORT, run


class FrontEnd:
    """Stands for `octavo.onnx.quantize_dynamic`: remembers recipes, and fails below some bits."""

    def __init__(self) -> None:
        self.recipes: list[Recipe] = []
        self.enough = 0.0

    def __call__(self, source: Any, out: Any, *, recipe: Recipe, **options: Any) -> Report:
        self.recipes.append(recipe)
        if recipe.mix is not None and (recipe.mix.bits or 99) < self.enough:
            raise VerificationError("the outputs differ")
        return REPORT


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FrontEnd:
    fake = FrontEnd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(octavo.onnx), "quantize_dynamic", fake)
    _save(tmp_path / "m.onnx")
    return fake


def _save(path: Path) -> None:
    """Two MatMuls of 256 x 256, and 4,000 bytes beside them."""
    weights = {f"w{i}": np.eye(256, dtype=np.float32) for i in range(2)}
    bias = numpy_helper.from_array(np.arange(1000, dtype=np.float32)[:256], "b")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
            helper.make_node("MatMul", ["h", "w1"], ["g"], name="second"),
            helper.make_node("Add", ["g", "b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 256])],
        [bias, *(numpy_helper.from_array(w, name) for name, w in weights.items())],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_the_preset_alone_is_as_it_is(front_end: FrontEnd) -> None:
    assert run("quantize", "m.onnx", "--recipe", "int4-mixed") == 0
    assert front_end.recipes == [PRESETS["int4-mixed"]]


def test_bits_reach_the_recipe(front_end: FrontEnd) -> None:
    assert run("quantize", "m.onnx", "--recipe", "int4-mixed", "--bits", "5.5") == 0
    assert front_end.recipes[0].mix == Mix(bits=5.5)


@pytest.mark.parametrize(
    ("said", "nbytes"), [("100kB", 100_000), ("64KiB", 65_536), ("0.1 MB", 100_000)]
)
def test_a_size_leaves_room_for_what_is_beside_layers(
    front_end: FrontEnd, said: str, nbytes: int
) -> None:
    assert run("quantize", "m.onnx", "--recipe", "int4-mixed", "--size", said) == 0
    mix = front_end.recipes[0].mix
    assert mix is not None
    assert mix.size is not None
    beside = Path("m.onnx").stat().st_size - 2 * 4 * 256 * 256
    assert mix.size == nbytes - beside


def test_an_error_takes_the_fewest_bits_that_keep_to_it(front_end: FrontEnd) -> None:
    front_end.enough = 5.3
    assert run("quantize", "m.onnx", "--recipe", "int4-mixed", "--max-error", "0.01") == 0
    assert [r.mix.bits for r in front_end.recipes if r.mix] == [4.5, 5.0, 5.5]
    assert {r.max_error for r in front_end.recipes} == {0.01}


def test_an_error_that_no_bits_keep_to_fails(
    front_end: FrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    front_end.enough = 50
    assert run("quantize", "m.onnx", "--recipe", "int4-mixed", "--max-error", "0.01") != 0
    assert "the outputs differ" in capsys.readouterr().err
    assert len(front_end.recipes) == 6


def test_an_error_is_for_any_recipe(front_end: FrontEnd) -> None:
    assert run("quantize", "m.onnx", "--max-error", "0.01") == 0
    assert [r.max_error for r in front_end.recipes] == [0.01]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--bits 5", "--bits is for recipes that mix bits, and int8 does not"),
        ("--size 5MB", "--size is for recipes that mix bits, and int8 does not"),
        ("--recipe int4-mixed --bits 5 --size 5MB", "--bits and --size: give one of them"),
        ("--recipe int4-mixed --size many", "--size 'many' is no size"),
        ("--recipe int4-mixed --size 1kB", "bytes already; allow more"),
        ("--recipe int4-mixed --bits -1", "above 0 and finite"),
        ("--recipe int4 --max-error 0", "above 0 and finite"),
    ],
)
def test_what_contradicts_is_refused(
    front_end: FrontEnd, capsys: pytest.CaptureFixture[str], options: str, said: str
) -> None:
    assert run("quantize", "m.onnx", *options.split()) != 0
    assert said in capsys.readouterr().err
    assert not front_end.recipes


def test_an_error_wants_the_check(front_end: FrontEnd, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--recipe", "int4-mixed", "--max-error", "0.01", "--no-verify")
    assert run("quantize", "m.onnx", *options) != 0
    assert "leave --no-verify out" in capsys.readouterr().err
    assert not front_end.recipes


def test_layers_too_small_for_few_bits_get_more(
    front_end: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.cli import mixing
    from octavo.errors import TooFewBitsError

    def make(recipe: Any) -> Any:
        if recipe.mix.bits < 5:
            raise TooFewBitsError("bits 4.5: these layers take 4.7 a weight or more")
        return recipe

    found: Any = mixing.fewest_bits(PRESETS["int4-mixed"], 0.1, make)
    assert found.mix.bits == 5.0
