"""Which rows masks hide, and of which arrays they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from octavo.core.masked_rows import Padding, of_tokens

RIGHT = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], np.int64)
LEFT = RIGHT[:, ::-1]
IDS = np.zeros((3, 4), np.int64)
HIDDEN = 5
Y = np.arange(3 * 4 * 6, dtype=np.float32).reshape(3, 4, 6)

MASKS: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "right": ({"attention_mask": RIGHT}, RIGHT),
    "left": ({"attention_mask": LEFT}, LEFT),
    "bool": ({"attention_mask": RIGHT.astype(bool)}, RIGHT),
    "float": ({"attention_mask": RIGHT.astype(np.float32)}, RIGHT),
    "numbered segments": ({"attention_mask": 2 * RIGHT}, RIGHT),
    "of BERT": ({"input_mask": RIGHT}, RIGHT),
    "of PyTorch, whose ones are hidden": ({"src_key_padding_mask": RIGHT == 0}, RIGHT),
    "added to scores": (
        {"src_key_padding_mask": np.where(RIGHT == 0, -np.inf, 0).astype(np.float32)},
        RIGHT,
    ),
    "of a decoder": ({"decoder_input_ids": IDS, "decoder_attention_mask": LEFT}, LEFT),
    "inside of a mapping": ({"features": {"input_ids": IDS, "attention_mask": RIGHT}}, RIGHT),
    "over a cache": (
        {"input_ids": IDS, "attention_mask": np.concatenate([np.ones((3, 7), int), RIGHT], 1)},
        RIGHT,
    ),
    "of both sequences, where either is seen": (
        {"attention_mask": RIGHT, "decoder_attention_mask": LEFT},
        RIGHT | LEFT,
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_hidden_rows_are_left_out_and_counted(name: str) -> None:
    feed, kept = MASKS[name]
    padding = Padding.of(feed)
    one, other = padding.seen("y", Y, -Y)
    assert one.shape == (1, kept.sum(), 6)
    np.testing.assert_array_equal(one[0], Y[kept != 0])
    np.testing.assert_array_equal(other, -one)
    assert padding.rows == (kept == 0).sum()
    (flat,) = padding.seen("y", Y.reshape(12, 6), layer=True)
    np.testing.assert_array_equal(flat, one[0])


NO_MASKS: dict[str, dict[str, Any]] = {
    "nothing hidden": {"attention_mask": np.ones((3, 4), int)},
    "everything hidden": {"attention_mask": np.zeros((3, 4), int)},
    "four axes": {"attention_mask": RIGHT[:, None, None]},
    "of another length": {"attention_mask": RIGHT[:, :3]},
    "numbers": {"attention_mask": RIGHT - 0.5},
    "texts": {"attention_mask": RIGHT.astype(str)},
    "a list": {"attention_mask": RIGHT.tolist()},
    "no mask": {"input_ids": RIGHT},
    "the decoder has none, and is as long": {"attention_mask": RIGHT, "decoder_input_ids": IDS},
    "labels, from which a model makes the decoder's inputs": {
        "input_ids": IDS,
        "attention_mask": RIGHT,
        "labels": IDS,
    },
    "ones that may be seen or hidden": {"input_ids": IDS, "padding_mask": RIGHT},
    "of what the decoder attends to": {"encoder_attention_mask": RIGHT, "input_ids": IDS},
}


@pytest.mark.parametrize("name", NO_MASKS)
def test_what_nobody_hides_is_compared_whole(name: str) -> None:
    padding = Padding.of(NO_MASKS[name])
    (found,) = padding.seen("y", Y)
    assert found is Y
    assert padding.rows == 0


def test_arrays_that_may_be_of_something_else_stay_whole() -> None:
    padding = Padding.of({"input_ids": IDS, "attention_mask": RIGHT, "pixels": np.zeros((12, 2))})
    square = Y[:, :, 0]
    for name, array in {
        "pooler_output": square,  # as wide as there are tokens
        "output_0": square,
        "logits": square,
        "classes": Y[:, 0],
        "loss": np.float32(1),
        "present.0.key": np.zeros((3, 4, 4, 8)),  # as many heads as tokens
        "image_embeds": Y.reshape(12, 6),  # as many images as tokens
    }.items():
        assert padding.seen(name, array)[0] is array, name
    for array in (square, Y.reshape(12, 6), np.zeros((12, 4, 8))):
        assert padding.seen("start_logits", array, layer=True)[0] is array
    assert padding.rows == 0
    for name in ("start_logits", "1.end_logits", "output_mask"):
        assert padding.seen(name, square)[0].shape == (1, 7), name
    assert padding.seen("y", Y, Y[:2])[1].shape == (2, 4, 6)  # shapes differ: said elsewhere


def value(name: str, *shape: int | str | None) -> Any:
    return SimpleNamespace(name=name, shape=shape)


OUTPUTS = [
    value("words", "batch", "tokens"),
    value("scores", "batch", 4),
    value("boxes", "batch", 4, 6),
    value("start_logits", None, None),
]


@pytest.mark.parametrize(
    ("mask", "known"),
    [
        (("batch", "tokens"), {"words": True, "scores": False, "boxes": False}),
        ((None, None), {"scores": False, "boxes": False}),
        ((3, 4), {}),
    ],
)
def test_a_graph_says_which_outputs_are_of_tokens(mask: Any, known: dict[str, bool]) -> None:
    assert of_tokens([value("ids", 3, 4), value("attention_mask", *mask)], OUTPUTS) == known
    padding = Padding.of({"attention_mask": RIGHT}, known)
    square, seen = Y[:, :, 0], (1, 7)
    shapes = {name: padding.seen(name, square)[0].shape for name in ("words", "scores")}
    assert shapes == {"words": seen if known.get("words") else (3, 4), "scores": (3, 4)}
    assert padding.seen("start_logits", square)[0].shape == seen
    assert padding.seen("boxes", Y)[0].shape == ((3, 4, 6) if known else (1, 7, 6))
