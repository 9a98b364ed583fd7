"""Inputs made up for PyTorch models that came without any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from octavo.errors import InputDataError
from octavo.torch import TorchTarget
from tests.models import Attends, Speech, Tied, net
from tests.torch.tuning_models import Wrapped


def reads() -> nn.Module:
    """As a Hugging Face model: ids, a mask and types, of which each has a default."""

    def forward(
        m: Any, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None
    ) -> Any:
        x = m.words(input_ids)
        if token_type_ids is not None:
            x = x + m.types(token_type_ids)
        return x if attention_mask is None else x * attention_mask[..., None]

    return net(forward, types=nn.Embedding(2, 8), words=nn.Embedding(300, 8))


def values(feeds: Any, name: str) -> np.ndarray:
    return np.concatenate([feed[name].ravel() for feed in feeds])


def test_like_an_example() -> None:
    example = {
        "x": np.random.default_rng(0).normal(100, 1, (2, 50, 3)).astype(np.float32),
        "ids": torch.tensor([[7, 9, 12, 8]] * 8),
        "ones": torch.ones(6, dtype=torch.int32),
        "zeros": torch.zeros(500),
        "flag": True,
        "pair": (torch.randn(2, 2), [torch.tensor([False, True] * 20)]),
    }

    target = TorchTarget(net(lambda m, **inputs: inputs["x"]), example_inputs=example)
    feeds = target.made_up({}, 3)
    assert len(feeds) == 4
    assert {feed["x"].shape for feed in feeds} == {(2, 50, 3)}
    assert {feed["x"].dtype for feed in feeds} == {np.dtype(np.float32)}
    assert abs(values(feeds, "x").mean() - 100) < 0.2
    assert 0.9 < values(feeds, "x").std() < 1.1
    assert set(values(feeds, "ids")) == set(range(7, 13))
    assert values(feeds, "ids").dtype == np.int64
    assert set(values(feeds, "ones")) == {1}
    assert values(feeds, "ones").dtype == np.int32
    assert 0.9 < values(feeds, "zeros").std() < 1.1
    assert all(feed["flag"] is True for feed in feeds)
    pair, (flags,) = feeds[0]["pair"]
    assert (pair.shape, flags.dtype, set(flags)) == ((2, 2), np.dtype(bool), {False, True})
    assert not np.array_equal(feeds[0]["x"], feeds[1]["x"])
    for again, feed in zip(target.made_up({}, 3), feeds, strict=True):
        np.testing.assert_array_equal(again["ids"], feed["ids"])
    assert not np.array_equal(target.made_up({}, 4)[0]["x"], feeds[0]["x"])


def test_an_example_in_other_shapes() -> None:
    target = TorchTarget(Speech(), example_inputs=(torch.randn(1, 2, 12),))
    for name in ("x", "0"):
        (shape,) = {feed["x"].shape for feed in target.made_up({name: (3, 9, 12)}, 0)}
        assert shape == (3, 9, 12)


def test_shapes_alone() -> None:
    feeds = TorchTarget(Speech()).made_up({"x": (2, 4, 12)}, 0)
    assert [sorted(feed) for feed in feeds] == [["x"]] * 4
    assert 0.8 < values(feeds, "x").std() < 1.2
    feeds = TorchTarget(Tied()).made_up({"0": (3, 90)}, 0)
    assert {feed["ids"].dtype for feed in feeds} == {np.dtype(np.int64)}
    assert values(feeds, "ids").min() == 0
    assert values(feeds, "ids").max() == 39


def test_ids_masks_and_types_by_their_names() -> None:
    target = TorchTarget(reads())
    names = ("input_ids", "attention_mask", "token_type_ids")
    feeds = target.made_up(dict.fromkeys(names, (2, 60)), 0)
    assert values(feeds, "input_ids").max() == 299
    assert set(values(feeds, "token_type_ids")) == {0, 1}
    for feed in feeds:
        assert feed["attention_mask"].tolist() == [[1] * 60, [1] * 45 + [0] * 15]
    feeds = target.made_up({}, 0)
    assert [sorted(feed) for feed in feeds] == [["input_ids"]] * 4
    assert values(feeds, "input_ids").max() == 299


def test_a_mask_of_torchs_own_layers_hides_the_end_of_one_row() -> None:
    class Padded(Attends):
        def forward(self, x: Any, src_key_padding_mask: Any) -> Any:
            return super().forward(x, src_key_padding_mask)["found"]

    feeds = TorchTarget(Padded(fast=False)).made_up(
        {"x": (2, 5, 16), "src_key_padding_mask": (2, 5)}, 0
    )
    assert {feed["src_key_padding_mask"].dtype for feed in feeds} == {np.dtype(bool)}
    for feed in feeds:
        assert feed["src_key_padding_mask"].tolist() == [[False] * 5, [False] * 3 + [True] * 2]


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Linear(7, 3), (4, 7)),
        (Wrapped, (4, 20)),
        (Speech, (4, 16, 12)),
        (lambda: nn.GRU(5, 6), (16, 4, 5)),
        (Attends, (4, 16, 16)),
        (Tied, (4, 16)),
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 5), nn.ReLU()), (4, 3, 16)),
        (
            lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 26 * 26, 3)),
            (4, 1, 28, 28),
        ),
        (lambda: nn.LSTMCell(9, 4), (4, 9)),
        (lambda: net(lambda m, x: m.square(x, x), square=nn.Bilinear(6, 6, 2)), (4, 6)),
    ],
)
def test_guessed_from_the_first_layers(make: Any, shape: tuple[int, ...]) -> None:
    target = TorchTarget(make())
    feeds = target.made_up({}, 0)
    assert {value.shape for feed in feeds for value in feed.values()} == {shape}
    assert all(np.isfinite(target.float_model().run(feed)[0]).all() for feed in feeds)


def padded(padding: int) -> nn.Module:
    """Nothing comes of padding, wherever it stands."""

    def forward(m: Any, ids: Any, lengths: Any, position_ids: Any) -> Any:
        assert lengths.max() == ids.shape[1] and lengths.min() >= 1
        return m.words(ids) + m.places(position_ids)

    return net(forward, words=nn.Embedding(40, 8, padding), places=nn.Embedding(12, 8))


@pytest.mark.parametrize("padding", [0, 1, 39])
def test_padding_ends_one_row_and_lengths_and_positions_fit(padding: int) -> None:
    shapes = {"ids": (3, 12), "lengths": (3,), "position_ids": (3, 12)}
    for feed in TorchTarget(padded(padding)).made_up(shapes, 0):
        is_padding = feed["ids"] == padding
        assert is_padding[-1].tolist() == [False] * 9 + [True] * 3 and not is_padding[:-1].any()
        assert len(np.unique(feed["ids"])) > 15 and feed["ids"].max() >= 38
        assert feed["lengths"].tolist() == [12, 12, 9]
        assert feed["position_ids"].tolist() == [list(range(12))] * 3


def deep() -> nn.Module:
    steps = [nn.Conv2d(3 if i == 0 else 4, 4, 3, 2, 1) for i in range(5)]
    return nn.Sequential(*steps, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def raw() -> nn.Module:
    """Reads samples [batch, length] through a convolution of one channel."""

    def forward(m: Any, samples: Any) -> Any:
        if samples.ndim != 2:
            raise ValueError("samples are [batch, length]")
        return m.second(m.first(samples[:, None]))

    return net(forward, first=nn.Conv1d(1, 4, 10, 5), second=nn.Conv1d(4, 4, 8, 4))


@pytest.mark.parametrize(
    ("make", "shape", "least"), [(deep, (2, 3, 224, 224), 0.0), (raw, (2, 16000), -1.0)]
)
def test_pictures_and_sounds_as_deep_models_see_them(
    make: Any, shape: tuple[int, ...], least: float
) -> None:
    feeds = TorchTarget(make()).made_up({}, 0)
    assert len(feeds) == 4
    for feed in feeds:
        (array,) = feed.values()
        assert array.shape == shape and array.dtype == np.float32
        assert least <= array.min() and array.max() <= 1 and array.std() > 0.02
        steps = np.abs(np.diff(array, axis=-1)).mean()
        assert steps < array.std()  # noise has more


def test_what_cannot_be_made_up() -> None:
    nan = nn.Linear(3, 3)
    nan.bias.data.fill_(torch.nan)
    for model, shapes, words in (
        (nn.Linear(3, 3), {"ipnut": (1, 3)}, "Did you mean 'input'"),
        (nn.Linear(3, 3), {"1": (1, 3)}, "no input '1'"),
        (nn.Linear(3, 3), {"input": (1, 4)}, "input=1x4: it runs on input=4x3"),
        (nn.Bilinear(3, 4, 5), {}, "input1, input2.*example_inputs"),
        (nan, {"input": (1, 3)}, "no finite numbers"),
    ):
        with pytest.raises(InputDataError, match=words):
            TorchTarget(model).made_up(shapes, 0)
