"""`octavo quantize --recipe int4-mixed`: what --bits, --size and --max-error make of the recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import TooFewBitsError, VerificationError
from octavo.recipe import PRESETS, Recipe
from octavo.recipe.bit_budget import Mix
from tests.cli_support import FrontEnd, run
from tests.graphs import save, text

MIXED = ("quantize", "m.onnx", "--recipe", "int4-mixed")


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FrontEnd:
    """Beside m.onnx, of two MatMuls of 256 x 256 and a bias."""
    monkeypatch.chdir(tmp_path)
    weights = {f"w{i}": np.eye(256, dtype=np.float32) for i in range(2)}
    weights["b"] = np.arange(256, dtype=np.float32)
    body = "[first] h = MatMul (x, w0) [second] g = MatMul (h, w1) y = Add (g, b)"
    save(text(body, "float[rows, 256] x", "float[rows, 256] y", weights), Path("m.onnx"))
    return FrontEnd(monkeypatch)


def needs(front_end: FrontEnd, bits: float, error: type[Exception]) -> None:
    """Every conversion with fewer `bits` fails."""

    def check(recipe: Recipe) -> None:
        if recipe.mix is not None and (recipe.mix.bits or 99) < bits:
            raise error("too few")

    front_end.does = check


@pytest.mark.parametrize(
    ("options", "mix"), [((), PRESETS["int4-mixed"].mix), (("--bits", "5.5"), Mix(bits=5.5))]
)
def test_bits_reach_the_recipe(front_end: FrontEnd, options: tuple[str, ...], mix: Mix) -> None:
    assert run(*MIXED, *options) == 0
    assert front_end.recipes == [replace(PRESETS["int4-mixed"], mix=mix)]


@pytest.mark.parametrize(
    ("said", "nbytes"), [("100kB", 100_000), ("80KiB", 81_920), ("0.1 MB", 100_000)]
)
def test_a_size_leaves_room_for_what_is_beside_layers(
    front_end: FrontEnd, said: str, nbytes: int
) -> None:
    assert run(*MIXED, "--size", said) == 0
    beside = Path("m.onnx").stat().st_size - 2 * 4 * 256 * 256
    assert [recipe.mix for recipe in front_end.recipes] == [Mix(bits=None, size=nbytes - beside)]


@pytest.mark.parametrize("error", [VerificationError, TooFewBitsError])
def test_an_error_takes_the_fewest_bits_that_keep_to_it(
    front_end: FrontEnd, error: type[Exception]
) -> None:
    needs(front_end, 5.3, error)
    assert run(*MIXED, "--max-error", "0.01") == 0
    assert [r.mix.bits for r in front_end.recipes if r.mix] == [4.5, 5.0, 5.5]
    assert {r.max_error for r in front_end.recipes} == {0.01}


def test_an_error_that_no_bits_keep_to_fails(front_end: FrontEnd) -> None:
    needs(front_end, 50, VerificationError)
    assert run(*MIXED, "--max-error", "0.01") == VerificationError.exit_code
    assert len(front_end.recipes) == 6


def test_an_error_is_for_any_recipe(front_end: FrontEnd) -> None:
    assert run("quantize", "m.onnx", "--max-error", "0.01") == 0
    assert [r.max_error for r in front_end.recipes] == [0.01]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--bits 5", "--bits is for recipes that mix bits"),
        ("--size 5MB", "--size is for recipes that mix bits"),
        ("--recipe int4-mixed --bits 5 --size 5MB", "--bits and --size: give one of them"),
        ("--recipe int4-mixed --size many", "--size 'many' is no size"),
        ("--recipe int4-mixed --size 1kB", "bytes already; allow more"),
        ("--recipe int4-mixed --bits -1", "above 0 and finite"),
        ("--recipe int4 --max-error 0", "above 0 and finite"),
        ("--recipe int4-mixed --max-error 0.01 --no-verify", "leave --no-verify out"),
    ],
)
def test_what_contradicts_is_refused(
    front_end: FrontEnd, capsys: pytest.CaptureFixture[str], options: str, said: str
) -> None:
    assert run("quantize", "m.onnx", *options.split()) == 2
    assert said in capsys.readouterr().err
    assert not front_end.recipes
