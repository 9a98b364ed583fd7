"""What a model adds to a fresh process."""

from __future__ import annotations

from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from torch import nn

from octavo.core.fresh_process import ChildError
from octavo.errors import ModelError
from octavo.recipe import PRESETS
from octavo.torch import TorchTarget
from tests.torch.tuning_models import wide

INT8 = PRESETS["int8"]
FEED = {"0": np.ones((1, 16), np.float32)}


@pytest.mark.parametrize(
    ("recipe", "least", "most"),
    [(INT8, 0.2, 0.7), pytest.param(None, 0.95, 2.5, marks=pytest.mark.slow)],
)
def test_weights_count(recipe: Any, least: float, most: float) -> None:
    target = TorchTarget("tests.torch.tuning_models:wide")
    weights = target.float_model().bytes
    assert weights > 20 << 20
    assert least * weights < target.peak_memory(recipe, FEED) < most * weights


@pytest.mark.slow
def test_a_module_without_a_factory_and_its_activations() -> None:
    target = TorchTarget(wide())
    weights = target.float_model().bytes
    one = target.peak_memory(INT8, FEED)
    assert 0.2 * weights < one < 0.7 * weights
    many = target.peak_memory(INT8, {"0": np.ones((4096, 16), np.float32)})
    assert many - one > 4096 * (2048 + 2560) * 4 * 0.9


class OfAScript(nn.Linear):
    """A class that the test says is of the running script."""


def test_a_process_that_fails_is_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide()
    model.lost = lambda: 0
    with pytest.raises(ModelError, match=r"Sequential cannot be pickled .* name it as module:fac"):
        TorchTarget(model).peak_memory(None, FEED)

    def fails(*args: Any, **given: Any) -> Any:
        raise ChildError(CompletedProcess([], 1, stderr=b"warned\nno more of it\n"))

    monkeypatch.setattr("octavo.torch.tuning.memory.call", fails)
    with pytest.raises(ModelError, match="ended with exit code 1: no more of it"):
        TorchTarget(wide()).peak_memory(None, FEED)
    script = nn.Sequential(nn.ReLU(), OfAScript(16, 16))
    monkeypatch.setattr(OfAScript, "__module__", "__main__")
    with pytest.raises(ModelError, match="cannot have 1 of type OfAScript, as the running script"):
        TorchTarget(script).peak_memory(None, FEED)
