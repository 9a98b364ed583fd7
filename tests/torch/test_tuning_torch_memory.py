"""What a model adds to a fresh process."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from octavo.errors import ModelError
from octavo.recipe import PRESETS
from octavo.torch import TorchTarget
from tests.torch.tuning_models import wide

INT8 = PRESETS["int8"]
FEED = {"0": np.ones((1, 16), np.float32)}


def test_weights_count() -> None:
    target = TorchTarget("tests.torch.tuning_models:wide")
    weights = target.float_model().bytes
    assert weights > 20 << 20
    floating, quantized = (target.peak_memory(recipe, FEED) for recipe in (None, INT8))
    assert 0.95 * weights < floating < 2.5 * weights
    assert 0.2 * weights < quantized < 0.7 * floating


@pytest.mark.slow
def test_a_module_without_a_factory_and_its_activations() -> None:
    target = TorchTarget(wide())
    weights = target.float_model().bytes
    one = target.peak_memory(INT8, FEED)
    assert 0.2 * weights < one < 0.7 * weights
    many = target.peak_memory(INT8, {"0": np.ones((4096, 16), np.float32)})
    assert many - one > 4096 * (2048 + 2560) * 4 * 0.9


class Ends(nn.Module):
    """Ends its process where it is run."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(16, 16)

    def forward(self, x: object) -> None:
        raise SystemExit("no more of it")


def test_a_process_that_fails_is_an_error_that_says_why() -> None:
    with pytest.raises(ModelError, match="ended with exit code 1: no more of it"):
        TorchTarget(Ends()).peak_memory(None, FEED)
    model = wide()
    model.lost = lambda: 0
    with pytest.raises(ModelError, match=r"Sequential cannot be pickled .* name it as module:fac"):
        TorchTarget(model).peak_memory(None, FEED)
    Ends.__module__, before = "__main__", Ends.__module__
    try:
        with pytest.raises(ModelError, match="cannot have 1 of type Ends, as the running script"):
            TorchTarget(nn.Sequential(nn.ReLU(), Ends())).peak_memory(None, FEED)
    finally:
        Ends.__module__ = before
