"""What the stacks for tuning promise: equal functions, and int8 that breaks where it is said to."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import tune_stacks
from benchmarks.tune_planted import BASE, CRITERION, SPREAD, left_float
from benchmarks.tune_stacks import Stack
from benchmarks.zoo.sessions import Session, open_session
from octavo.onnx import quantize_dynamic
from octavo.recipe import Recipe

pytestmark = pytest.mark.slow

DIRECTIONS = pytest.mark.parametrize(
    "factor", [1000.0, 1 / 1000], ids=["weights 1000x", "inputs 1000x"]
)


def opened(stack: Stack, folder: Path) -> Session:
    return open_session(tune_stacks.write_onnx(stack, folder / "stack.onnx"))


def scores(session: Session) -> np.ndarray:
    return np.asarray(session.run(None, {"x": tune_stacks.task()[0]})[0])


def quantized(stack: Stack, folder: Path, recipe: Recipe = BASE) -> float:
    out = folder / "int8.onnx"
    model = tune_stacks.write_onnx(stack, folder / "float.onnx")
    report = quantize_dynamic(model, out, recipe=recipe, verify=False)
    assert len(report.layers) == len(stack.layers)
    return tune_stacks.evaluate(open_session(out))


def met(baseline: float, accuracy: float) -> bool:
    return CRITERION.meets(baseline, accuracy)


@DIRECTIONS
def test_a_planted_layer_leaves_the_float_model_as_it_was(tmp_path: Path, factor: float) -> None:
    exact = scores(opened(tune_stacks.healthy(12), tmp_path))
    found = scores(opened(tune_stacks.planted(12, 3, factor=factor), tmp_path))
    assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()


@DIRECTIONS
@pytest.mark.parametrize("layers", [3, 12])
def test_int8_breaks_at_the_bad_layer_and_nowhere_else(
    tmp_path: Path, layers: int, factor: float
) -> None:
    stack = tune_stacks.planted(layers, 1, factor=factor)
    exact = tune_stacks.evaluate(opened(stack, tmp_path))
    assert exact > 0.99
    assert quantized(stack, tmp_path) < 0.9 * exact
    assert met(exact, quantized(stack, tmp_path, left_float(stack.bad_names)))
    healthy = [tune_stacks.name_of(i) for i in range(layers) if i not in stack.bad]
    assert quantized(stack, tmp_path, left_float(healthy)) < 0.9 * exact


def test_three_bad_layers_must_all_be_found(tmp_path: Path) -> None:
    stack = tune_stacks.planted(12, 5, count=3)
    assert len(set(stack.bad)) == 3
    exact = tune_stacks.evaluate(opened(stack, tmp_path))
    assert met(exact, quantized(stack, tmp_path, left_float(stack.bad_names)))
    for name in stack.bad_names:
        rest = [other for other in stack.bad_names if other != name]
        assert not met(exact, quantized(stack, tmp_path, left_float(rest)))


def test_a_deep_stack_is_no_worse_in_int8(tmp_path: Path) -> None:
    stack = tune_stacks.healthy(96)
    exact = tune_stacks.evaluate(opened(stack, tmp_path))
    assert exact > 0.99
    assert quantized(stack, tmp_path) > exact - 0.004


def test_spread_damage_is_of_no_single_layer(tmp_path: Path) -> None:
    stack = tune_stacks.spread(12, 5, SPREAD[12])
    exact = tune_stacks.evaluate(opened(stack, tmp_path))
    names = stack.bad_names
    assert len(names) == 12
    assert not met(exact, quantized(stack, tmp_path))
    for name in names[::5]:  # any one of them may be int8, and any one float does not mend it
        assert not met(exact, quantized(stack, tmp_path, left_float([name])))
        others = [other for other in names if other != name]
        assert met(exact, quantized(stack, tmp_path, left_float(others)))
