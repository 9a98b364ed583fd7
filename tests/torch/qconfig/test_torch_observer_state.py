"""An observer's state_dict holds all that it has seen."""

import io
import warnings
from typing import Any

import pytest
import torch

from octavo.torch.qconfig.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from tests.models import seeded

RANGED = (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    HistogramObserver,
)
EVERY = pytest.mark.parametrize("kind", RANGED)
PER_CHANNEL = pytest.mark.parametrize("kind", RANGED[2:4])


def data(seed: int, channels: int = 5) -> torch.Tensor:
    return seeded(channels, 40, seed=seed, scale=seed + 1)


def assert_alike(one: Any, other: Any) -> None:
    for a, b in zip(one.calculate_qparams(), other.calculate_qparams(), strict=True):
        assert torch.equal(a, b)
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key])


@EVERY
def test_a_new_observer_goes_on_where_the_saved_one_was(kind: Any) -> None:
    saved, new = kind(eps=1e-3), kind()
    saved(data(0))
    saved(data(1))
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    new.load_state_dict(torch.load(file, weights_only=True))
    assert_alike(saved, new)
    saved(data(2))
    new(data(2))
    assert_alike(saved, new)


@EVERY
def test_one_that_has_seen_something_forgets_it(kind: Any) -> None:
    saved, used = kind(), kind()
    saved(data(0))
    used(data(5))
    used.load_state_dict(saved.state_dict())
    assert_alike(saved, used)
    used.load_state_dict(kind().state_dict())
    with pytest.raises(ValueError, match="has observed nothing yet"):
        used.calculate_qparams()


@PER_CHANNEL
def test_channels_come_with_the_state(kind: Any) -> None:
    saved, used = kind(), kind()
    saved(data(0, channels=3))
    used(data(1, channels=7))
    model, other = torch.nn.ModuleDict({"a": saved}), torch.nn.ModuleDict({"a": used})
    other.load_state_dict(model.state_dict())
    assert_alike(saved, used)
    with pytest.raises(RuntimeError, match="size mismatch for min_val"):
        used.load_state_dict({**saved.state_dict(), "min_val": torch.tensor(0.0)})


@EVERY
def test_a_state_of_torch_ao_is_read(kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pytest.importorskip("torch.ao.quantization.observer")
        saved = getattr(theirs, kind.__name__)()
        saved(data(0))
        state = saved.state_dict()
    ours, same = kind(), kind()
    ours.load_state_dict(state)
    same(data(0))
    for a, b in zip(ours.calculate_qparams(), same.calculate_qparams(), strict=True):
        assert torch.allclose(a.float(), b.float(), rtol=2e-3, atol=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved.load_state_dict(ours.state_dict())
    assert torch.equal(saved.min_val, ours.min_val)


def test_one_that_keeps_nothing_has_no_state() -> None:
    observer = PlaceholderObserver()
    observer(data(0))
    assert not observer.state_dict()
    observer.load_state_dict({})
