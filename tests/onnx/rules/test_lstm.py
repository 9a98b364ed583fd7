"""LSTM as DynamicQuantizeLSTM; GRU and RNN, which stay float."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from octavo.errors import NothingQuantizedError
from octavo.onnx.operators.stock_lstm import reference
from tests.graphs import (
    EXACT,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    Array,
    assert_close,
    assert_near_float,
    build,
    convert,
    error,
    node,
    run,
    text,
    values,
    weight,
)

T, B, WIDTH = 6, 3, 20
# The gates saturate, so errors shrink; a step's activations share one scale.
BOUND = 0.03


def lstm(
    hidden: int = 16,
    directions: int = 1,
    *,
    layout: int = 0,
    bias: bool = True,
    lengths: bool = False,
    states: bool = False,
    peepholes: bool = False,
    outs: tuple[str, ...] = ("y", "h", "c"),
    dtype: int = FLOAT,
    opset: int = 17,
    constant: tuple[bool, bool] = (True, True),
    **attributes: Any,
) -> tuple[Any, dict[str, Array]]:
    kind = np.float16 if dtype == FLOAT16 else np.float32
    gates = 4 * hidden
    arrays = {
        "W": weight(directions, gates, WIDTH, spread=False, seed=1) * np.sqrt(gates / WIDTH),
        "R": weight(directions, gates, hidden, spread=False, seed=2) * 2,
        "B": 0.5 * values(directions, 2 * gates, seed=3),
        "P": values(directions, 3 * hidden, seed=4),
    }
    # One unit's weights are much larger than another's: a scale a unit pays.
    arrays["W"] *= np.geomspace(0.1, 3.0, gates).astype(np.float32)[None, :, None]
    arrays = {k: v.astype(kind) for k, v in arrays.items()}
    batched = (B, T, WIDTH) if layout else (T, B, WIDTH)
    state = (B, directions, hidden) if layout else (directions, B, hidden)
    feeds = {"X": values(*batched, seed=5).astype(kind)}
    inputs: dict[str, Any] = {"X": (dtype, batched)}
    names = ["X", "W", "R", "B" if bias else "", "n" if lengths else "", "", "", ""]
    if lengths:
        inputs["n"], feeds["n"] = (INT32, (B,)), np.array([T, 2, 4], np.int32)
    if states:
        names[5:7] = ["h0", "c0"]
        for i, name in enumerate(("h0", "c0")):
            inputs[name] = (dtype, state)
            feeds[name] = (0.5 * values(*state, seed=6 + i)).astype(kind)
    if peepholes:
        names[7] = "P"
    for index, name in enumerate(("W", "R")):
        if not constant[index]:
            inputs[name], feeds[name] = (dtype, arrays[name].shape), arrays.pop(name)
    while names[-1] == "":
        names.pop()
    if layout:
        attributes["layout"] = 1
    direction = "bidirectional" if directions == 2 else attributes.pop("direction", "forward")
    attributes |= {"name": "lstm", "hidden_size": hidden, "direction": direction}
    model = build(
        [node("LSTM", names, outs, **attributes)],
        inputs,
        {o: (dtype, None) for o in outs if o},
        {k: v for k, v in arrays.items() if k in names},
        opset=opset,
    )
    return model, feeds


def check(tmp_path: Path, model: Any, feeds: dict[str, Array], **options: Any) -> Any:
    """Converts; compares with the float model, and tightly with float over the same integers."""
    done = convert(model, tmp_path, **options)
    assert "DynamicQuantizeLSTM" in done.ops
    assert "one scale a step" in done.outcome("lstm").notes[0]
    assert_near_float(done, model, feeds, BOUND)
    return done


@pytest.mark.parametrize(("hidden", "directions"), [(5, 1), (5, 2), (16, 2), (33, 1)])
def test_sizes_and_directions(tmp_path: Path, hidden: int, directions: int) -> None:
    check(tmp_path, *lstm(hidden, directions))


CASES: dict[str, dict[str, Any]] = {
    "no-bias": {"bias": False},
    "reverse": {"direction": "reverse"},
    "lengths": {"lengths": True},
    "initial-states": {"states": True},
    "peepholes": {"peepholes": True},
    "peepholes-two-directions": {"peepholes": True, "directions": 2},
    "clip": {"clip": 0.5},
    "activations": {"activations": ["Sigmoid", "Relu", "Tanh"]},
    "input-forget": {"input_forget": 1},
    "all-but-peepholes": {"lengths": True, "states": True, "directions": 2},
    "only-Y": {"outs": ("y",)},
    "only-Y_h": {"outs": ("", "h")},
    "only-Y_c": {"outs": ("", "", "c")},
    "opset-10": {"opset": 10},
    "opset-21": {"opset": 21},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_input_and_attribute(tmp_path: Path, case: dict[str, Any]) -> None:
    model, feeds = lstm(**case)
    check(tmp_path, model, feeds)


@pytest.mark.parametrize("name", ["lengths", "states", "peepholes", "clip", "input_forget"])
def test_the_cases_above_would_notice_a_lost_input(tmp_path: Path, name: str) -> None:
    """Each input and attribute changes the output by more than the bound."""
    case = {"clip": 0.5} if name == "clip" else {name: True}
    with_it, feeds = lstm(**({"input_forget": 1} if name == "input_forget" else case))
    without, fewer = lstm()
    assert error(run(with_it, feeds)[0], run(without, fewer)[0]) > 2 * BOUND


@pytest.mark.parametrize(
    ("directions", "case"),
    [
        (1, {}),
        (2, {"states": True}),
        (1, {"lengths": True}),
        (2, {"lengths": True}),
        (1, {"outs": ("", "h", "c")}),
        (2, {"outs": ("y",)}),
    ],
    ids=str,
)
def test_batch_first(tmp_path: Path, directions: int, case: dict[str, Any]) -> None:
    """layout=1, which ONNX Runtime's float LSTM does not run: its twin with layout=0 is."""
    model, feeds = lstm(directions=directions, layout=1, **case)
    twin, other = lstm(directions=directions, **case)
    for name, array in feeds.items():
        if name != "n":
            other[name] = np.swapaxes(array, 0, 1).copy()
    done = convert(model, tmp_path)
    expected = dict(zip([o.name for o in twin.graph.output], run(twin, other), strict=True))
    for output, actual in zip(model.graph.output, run(done.path, feeds), strict=True):
        theirs = expected[output.name]
        perm = (2, 0, 1, 3) if theirs.ndim == 4 else (1, 0, 2)
        assert_close(actual, np.ascontiguousarray(theirs.transpose(perm)), BOUND)


@pytest.mark.parametrize("layout", [0, 1])
def test_float16(tmp_path: Path, layout: int) -> None:
    """Against the same numbers in float32: ONNX Runtime's float LSTM knows no float16."""
    model, feeds = lstm(dtype=FLOAT16, states=True, lengths=True, layout=layout)
    done = convert(model, tmp_path)
    twin, _ = lstm(states=True, lengths=True)
    for i in twin.graph.initializer:
        half = numpy_helper.to_array(i).astype(np.float16).astype(np.float32)
        i.CopyFrom(numpy_helper.from_array(half, i.name))
    wide = {k: v.astype(np.float32) if k != "n" else v for k, v in feeds.items()}
    if layout:
        wide = {k: np.swapaxes(v, 0, 1).copy() if k != "n" else v for k, v in wide.items()}
    for actual, theirs in zip(run(done.path, feeds), run(twin, wide), strict=True):
        expected = theirs
        if layout:
            expected = theirs.transpose((2, 0, 1, 3) if theirs.ndim == 4 else (1, 0, 2))
        assert actual.dtype == np.float16
        assert error(actual, expected) <= BOUND


@pytest.mark.parametrize("constant", [(False, True), (True, False)], ids=["W", "R"])
def test_weights_that_are_computed_stay_float(tmp_path: Path, constant: tuple[bool, bool]) -> None:
    model, _ = lstm(constant=constant)
    letter = "W" if not constant[0] else "R"
    with pytest.raises(NothingQuantizedError, match=f"its {letter} is computed"):
        convert(model, tmp_path)


def test_weights_follow_the_rules_reference(tmp_path: Path) -> None:
    """int8 per gate unit, stored [D, inputs, 4H]."""
    model, _ = lstm(directions=2)
    done = convert(model, tmp_path)
    stored = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    floats = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    for letter in "WR":
        q, scale = stored[f"{letter}_quantized"], stored[f"{letter}_scale"]
        assert q.dtype == np.int8
        dequantized = q.transpose(0, 2, 1).astype(np.float64) * scale[:, :, None]
        assert error(dequantized, reference(floats[letter])) <= EXACT


def test_per_unit_scales_beat_one_scale(tmp_path: Path) -> None:
    """The reason for them: less error of Y_h against float."""
    model, feeds = lstm(hidden=33)
    expected = run(model, feeds)[1]
    ours = error(run(convert(model, tmp_path).path, feeds)[1], expected)
    theirs = convert(model, tmp_path, recipe="int8-per-tensor")
    assert 1.5 * ours <= error(run(theirs.path, feeds)[1], expected)


def test_qdq_leaves_it_float_with_a_reason(tmp_path: Path) -> None:
    model, _ = lstm()
    with pytest.raises(NothingQuantizedError, match="DequantizeLinear in front of an LSTM"):
        convert(model, tmp_path, quant_format="qdq")


# GRU and RNN have no int8 operator in stock ONNX Runtime: they stay float, and say so.
HIDDEN = 8


def recurrent(op: str, gates: int, rest: str = "", width: int = WIDTH) -> onnx.ModelProto:
    body = f"[cell] , h = {op} <hidden_size = {HIDDEN}> (x, w, r) {rest or 'y = Identity (h)'}"
    weights = {
        "w": weight(1, gates * HIDDEN, width, spread=False),
        "r": weight(1, gates * HIDDEN, HIDDEN, spread=False),
        "v": weight(HIDDEN, 24),
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
    assert outcome.bytes_before == outcome.bytes_after == 4 * gates * HIDDEN * (WIDTH + HIDDEN)
    assert_near_float(done, model, {"x": values(T, B, WIDTH)}, 2 * INT8)


def test_recipe_float16_halves_a_gru(tmp_path: Path) -> None:
    model = recurrent("GRU", 3, width=80)
    done = convert(model, tmp_path, recipe="float16")
    outcome = done.outcome("cell")
    assert outcome.quantized
    assert outcome.bytes_after * 2 == outcome.bytes_before
    feeds = {"x": values(T, B, 80)}
    found = error(run(done.path, feeds)[0], run(model, feeds)[0])
    assert 0 < found <= 2 * float(np.finfo(np.float16).eps)
