"""GRU and RNN have no int8 operator in stock ONNX Runtime: they stay float, and say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.errors import NothingQuantizedError
from tests.graphs import INT8, assert_near_float, convert, error, run, text, values, weight

T, B, WIDTH, H = 5, 2, 12, 8


def recurrent(op: str, gates: int, rest: str = "", width: int = WIDTH) -> onnx.ModelProto:
    body = f"[cell] , h = {op} <hidden_size = {H}> (x, w, r) {rest or 'y = Identity (h)'}"
    weights = {
        "w": weight(1, gates * H, width, spread=False),
        "r": weight(1, gates * H, H, spread=False),
        "v": weight(H, 24),
    }
    return text(body, f"float[{T}, {B}, {width}] x", weights=weights)


@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor", "int8-block"])
def test_stays_float_with_a_reason(tmp_path: Path, op: str, gates: int, recipe: str) -> None:
    model = recurrent(op, gates, "s = Squeeze (h) y = MatMul (s, v)")
    done = convert(model, tmp_path, recipe=recipe)
    assert op in done.ops
    outcome = done.outcome("cell")
    assert not outcome.quantized
    assert f"no int8 {op}" in outcome.reason
    assert outcome.bytes_before == outcome.bytes_after == 4 * gates * H * (WIDTH + H)
    assert_near_float(done, model, {"x": values(T, B, WIDTH)}, 2 * INT8)


@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("RNN", 1)])
def test_nothing_else_is_an_error(tmp_path: Path, op: str, gates: int) -> None:
    with pytest.raises(NothingQuantizedError, match=f"{op}: stock ONNX Runtime has no int8 {op}"):
        convert(recurrent(op, gates), tmp_path)


def test_recipe_float16_halves_a_gru(tmp_path: Path) -> None:
    model = recurrent("GRU", 3, width=80)
    done = convert(model, tmp_path, recipe="float16")
    outcome = done.outcome("cell")
    assert outcome.quantized
    assert outcome.bytes_after * 2 == outcome.bytes_before
    feeds = {"x": values(T, B, 80)}
    found = error(run(done.path, feeds)[0], run(model, feeds)[0])
    assert 0 < found <= 2 * float(np.finfo(np.float16).eps)
