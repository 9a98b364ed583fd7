"""Where models are compared whose outputs show nothing, are discrete, or are drawn by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.errors import ModelError, VerificationError
from octavo.onnx import quantize_dynamic, session
from octavo.onnx.check.model_pair import ModelPair
from octavo.onnx.check.outputs import OutputComparison
from octavo.onnx.check.runs import Runs, open_float
from octavo.onnx.read.load import load
from tests.graphs import checked, normal, refused, ruined, text

X, Y, ANY = "float[m, 64] x", "float[m, 16] y", "float[] y"
KEPT = np.where(np.arange(64) == 0, np.float32(0), np.float32(1))


def tail(body: str, output: str, *, bad: bool = False, **weights: Any) -> onnx.ModelProto:
    """x [m, 64] -> mm -> h [m, 16] -> `body`; the layer is ruined by quantization where `bad`."""
    w = ruined() if bad else normal(64, 16) / np.float32(8)
    stored = {"keep": KEPT, "w": w, "b": np.zeros(16, np.float32), "zero": np.float32(0), **weights}
    stored = {name: np.float32(a) if isinstance(a, float) else a for name, a in stored.items()}
    start = "x0 = Mul (x, keep) [mm] h0 = MatMul (x0, w) h = Add (h0, b) "
    return text(start + body, X, output, stored)


SHOWS_NOTHING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "quiet sigmoid": ("y = Sigmoid (h)", Y, {"b": np.full(16, -16, np.float32)}),
    "loud sigmoid": ("y = Sigmoid (h)", Y, {"b": np.full(16, 40, np.float32)}),
    "softmax of large numbers": ("s = Mul (h, k) y = Softmax (s)", Y, {"k": 4e3}),
    "argmax": ("y = ArgMax <axis = 1, keepdims = 0> (h)", "int64[m] y", {}),
    "clip": ("s = Mul (h, k) y = Clip (s, zero, one)", Y, {"k": 1e5, "one": 1.0}),
    "masked": ("y = Mul (h, zero)", Y, {}),
    "a cast label": ("a = ArgMax <axis = 1> (h) y = Cast <to = 7> (a)", "int64[m, 1] y", {}),
    "a sigmoid, turned": (
        "s = Sigmoid (h) y = Transpose (s)", "float[16, m] y", {"b": np.full(16, 40, np.float32)},
    ),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("name", SHOWS_NOTHING)
def test_what_shows_nothing_is_compared_before(name: str, target: str, tmp_path: Path) -> None:
    """Neither refused nor called passed; a layer that is ruined is found all the same."""
    body, output, weights = SHOWS_NOTHING[name]
    v = checked(tail(body, output, **weights), tmp_path, target=target)
    if "sigmoid" in name and target == "native":  # the layer took the sigmoid in: nothing to see
        assert (v.status, v.error) == ("unchecked", None) and v.detail.startswith("output 'y' ")
        return
    assert v.status == "compared" and v.error is not None and 0 < v.error < 0.01
    assert "before " in v.detail and v.ran_on.startswith("x ")
    if "b" in weights:
        return  # the constant is nearly all of the layer's output
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'mm'"):
        checked(tail(body, output, bad=True, **weights), tmp_path, target=target)


def test_labels_alone_are_compared_before(tmp_path: Path) -> None:
    body = "label = ArgMax <axis = 1> (h)"
    v = checked(tail(body, "int64[m, 1] label"), tmp_path)
    assert v.detail == "before ArgMax 'label', whose output holds no floating-point numbers"


def test_numbers_that_the_float_model_does_not_have_are_left_out(tmp_path: Path) -> None:
    """Half of the square roots are NaN in both models: the others were compared, not all."""
    v = checked(tail("y = Sqrt (h)", Y), tmp_path)
    assert v.status == "compared" and "of 'y' not finite in the float model" in v.detail


# Where the output itself is compared, and nothing more is to say.
SHOWN = {
    "labels beside probabilities": (
        "y = Softmax (h) label = ArgMax <axis = 1> (y)", f"{Y}, int64[m, 1] label",
    ),
    "small numbers that nothing bounds": ("y = Mul (h, k)", Y),
    # A guard and a step at 0, which int8 keeps.
    "guards decide nothing that matters": (
        "bad = IsNaN (h) clean = Where (bad, zero, h) "
        "up = Greater (clean, zero) y = Where (up, clean, zero)", Y,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_outputs_that_show_the_layers_are_compared_themselves(name: str, tmp_path: Path) -> None:
    v = checked(tail(*SHOWN[name], k=1e-9), tmp_path)
    assert (v.status, v.detail) == ("passed", "") and v.error and v.error < 0.01


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("y = ArgMax <axis = 1> (r)", "int64[m, 1] y, float[m, 16] g"),
        ("y = Greater (g, r)", "bool[m, 16] y"),
    ],
    ids=["labels that no other output shows", "all ways behind an output"],
)
def test_a_ruined_layer_beside_a_good_one_is_found(body: str, output: str, tmp_path: Path) -> None:
    """x -> good -> g and x -> ruined -> r, which share nothing."""
    heads = """x0 = Mul (x, keep)
        [good_layer] g = MatMul (x0, good)
        [ruined_layer] r = MatMul (x0, bad) """
    stored = {"keep": KEPT, "good": normal(64, 16) / np.float32(8), "bad": ruined()}
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'ruined_layer'"):
        checked(text(heads + body, X, output, stored), tmp_path)


@pytest.mark.parametrize("hidden", [-1e4, -1e9, -3.4e38, -np.inf])
def test_a_mask_is_not_what_errors_are_relative_to(hidden: float, tmp_path: Path) -> None:
    mask = np.where(np.arange(16) < 8, np.float32(0), np.float32(hidden))[None]
    body = "m = Less (mask, zero) y = Where (m, mask, h)"
    v = checked(tail(body, Y, mask=mask), tmp_path)
    assert v.status == "passed" and v.error is not None and 1e-6 < v.error < 0.01
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'mm'"):
        checked(tail(body, Y, bad=True, mask=mask), tmp_path)


def test_a_layer_that_is_far_off_where_no_output_shows_it(tmp_path: Path) -> None:
    """The largest of its numbers is always the same one."""
    body = """s = Add (h, first)
        which = ArgMax <axis = 1, keepdims = 0> (s)
        y = Gather (table, which)"""
    first = np.where(np.arange(16) == 3, np.float32(1e4), np.float32(0))
    v = checked(tail(body, Y, bad=True, first=first, table=normal(16, 16)), tmp_path)
    assert (v.status, v.error) == ("unchecked", None)
    assert "no output shows it, but layer 'mm' is 0." in v.detail


def test_lengths_that_follow_predictions_are_given_to_both(tmp_path: Path) -> None:
    """As speech is made: as many steps as a layer says, and another layer over them."""
    body = """s = ReduceSum <keepdims = 0> (h)
        long = Mul (s, thirty)
        positive = Abs (long)
        steps = Ceil (positive)
        n = Cast <to = 7> (steps)
        r = Range (nought, n, one)
        rf = Cast <to = 1> (r)
        column = Unsqueeze (rf, axis)
        waves = Sin (column)
        wide = Mul (waves, keep)
        [after] y = MatMul (wide, w2)"""
    weights = {"thirty": 30.0, "nought": np.array(0), "one": np.array(1), "axis": np.array([1])}
    v = checked(tail(body, ANY, w2=normal(64, 16, seed=3), **weights), tmp_path)
    assert v.status == "compared" and v.error is not None and 0 < v.error < 0.01
    assert "Ceil 'steps'" in v.detail
    # What comes after the decision is compared too.
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'after'"):
        checked(tail(body, ANY, w2=ruined(), **weights), tmp_path)


def test_choices_are_given_to_both(tmp_path: Path) -> None:
    """The largest of sixteen near ones: another is chosen by int8, and rows of a table follow."""
    body = """which = ArgMax <axis = 1, keepdims = 0> (h)
        row = Gather (table, which)
        y = Add (row, h)"""
    table = normal(16, 16, seed=5) * np.float32(100)
    near = np.repeat(normal(64, 1), 16, axis=1) + normal(64, 16, seed=1) * np.float32(1e-4)
    v = checked(tail(body, Y, table=table, w=near), tmp_path)
    assert v.status == "compared" and v.error is not None and v.error < 0.01
    assert "with the float model's ArgMax 'which' in both" in v.detail


def test_noise_is_the_same_for_both(tmp_path: Path) -> None:
    body = """noise = RandomNormalLike <dtype = 1> (h)
        z0 = Add (h, noise)
        z = Concat <axis = 1> (z0, z0, z0, z0)
        z1 = Mul (z, keep)
        [after] y = MatMul (z1, w2)"""
    v = checked(tail(body, Y, w2=normal(64, 16, seed=3)), tmp_path)
    assert v.status == "compared" and v.error is not None and 0 < v.error < 0.01
    assert "with the float model's noise in both" in v.detail
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'after'"):
        checked(tail(body, Y, w2=ruined()), tmp_path)


def test_noise_that_nothing_can_be_given_for(tmp_path: Path) -> None:
    """In a branch: no two runs of the float model agree, so nothing is said of the other."""
    body = """most = ReduceMax <keepdims = 0> (x)
        c = Greater (most, low)
        y = If (c) <then_branch = t () => (float[] o) { o = RandomNormalLike <dtype = 1> (h) },
                    else_branch = e () => (float[] o) { o = Identity (h) }>"""
    source = load(tail(body, ANY, low=-1e9))
    report = quantize_dynamic(source.origin, tmp_path / "out.onnx", verify=False)
    runs = Runs(open_float(source), session(tmp_path / "out.onnx"), source)
    feed = {"x": normal(3, 64)}
    runs.again(feed)  # sessions draw the same numbers, each its own: now they are a run apart
    pair = ModelPair(source, tmp_path / "out.onnx", [o.layer.name for o in report.quantized])
    found = OutputComparison(runs.names, pair, runs.again).compare(runs.given([feed]), 0.1)
    assert not found.distances
    assert found.summary == "output 'y' differs between two runs of the float model itself"


def test_layers_without_a_part_in_the_output(tmp_path: Path) -> None:
    """A softmax over one key is 1 whatever the layers say: they are compared themselves."""
    body = "s = ReduceSum (h, axis) p = Softmax (s) y = Mul (x, p)"
    v = checked(tail(body, "float[m, 64] y", axis=np.array([1])), tmp_path)
    assert v.status == "compared" and v.detail == "at layer 'mm'"
    assert v.error is not None and 0 < v.error < 0.01


def test_lossless_layers_pass_at_once(tmp_path: Path) -> None:
    """Weights and activations that int8 holds exactly."""
    w = np.random.default_rng(0).integers(-1, 2, (64, 16)).astype(np.float32) * 127
    body = "s = Sign (x) x1 = Mul (s, full) [mm] y = MatMul (x1, w)"
    v = checked(text(body, X, Y, {"w": w, "full": np.float32(127)}), tmp_path)
    assert (v.status, v.error, v.detail) == ("passed", 0.0, "")


def test_an_output_that_nothing_is_known_of(tmp_path: Path) -> None:
    """x is all zeros: the layer's output is its bias, in both models."""
    body = "none = Mul (x, zero) [mm] y = MatMul (none, w)"
    v = checked(text(body, X, Y, {"zero": np.float32(0), "w": normal(64, 16)}), tmp_path)
    assert (v.status, v.error) == ("unchecked", None)
    assert v.detail == "output 'y' holds one and the same number everywhere"
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("inputs", [None, {"x": normal(2, 64)}], ids=["made up", "given"])
def test_models_that_cannot_be_looked_into(inputs: Any, tmp_path: Path, monkeypatch: Any) -> None:
    def fails(*_: Any) -> Any:
        raise ModelError("its layers cannot be looked at")

    monkeypatch.setattr(ModelPair, "floating", fails)
    body, output, _ = SHOWS_NOTHING["argmax"]
    v = checked(tail(body, output), tmp_path, check_inputs=inputs)
    assert v.status == "unchecked" and "holds no floating-point numbers" in v.detail
    assert "cannot be looked at" in v.detail
