"""Rows that masks hide: padding, of which nobody uses what a model computes.

attention_mask [[1, 1, 1], [1, 0, 0]], y [2, 3, 384]   ->   y [1, 4, 384]: the tokens that are seen
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_SEEN = ("attention_mask", "input_mask")
"""How names of masks end whose ones are seen, as in transformers."""
_HIDDEN = ("padding_mask",)
"""How names of masks end whose ones are hidden, as in PyTorch's transformer layers."""
_SEQUENCES = ("encoder", "decoder", "tgt", "query")
"""How names begin that say to which of a model's sequences an input belongs."""
_TOKENS = ("input_ids", "inputs_embeds")
_NO_TOKENS = re.compile("pool|embed|sentence|feature|latent|^logits$", re.IGNORECASE)
"""Outputs with two axes of which the second is none of tokens, though it may be as long."""


# docs/notes/checking.md: "Padding is not compared"
class Padding:
    """The padding in one run's inputs, by the shapes [batch, tokens] of what has some.

    `rows` counts the hidden positions of the masks that `seen` has used.
    """

    def __init__(self, seen: Mapping[tuple[int, int], Mask], whole: Collection[str] = ()) -> None:
        """Outputs named in `whole` have no tokens, though their shapes look like it."""
        self._seen, self._whole = seen, frozenset(whole)
        self._used: set[tuple[int, int]] = set()

    @classmethod
    def of(cls, feed: Mapping[str, Any], whole: Collection[str] = ()) -> Padding:
        """By the masks among arrays of inputs by name; mappings inside of it are looked into.

        Masks have two axes. One that hides nothing, or everything, counts for nothing; and so does
        one of a shape that another sequence without a mask has too.
        """
        inputs = list(_arrays(feed))
        masks: dict[str, list[Mask]] = {}
        for name, value in inputs:
            mask = _mask(name, value)
            if mask is not None:
                masks.setdefault(_sequence(name), []).append(mask)
        if not masks:
            return cls({})
        seen: dict[tuple[int, int], Mask] = {}
        for mask in _sequences(inputs, masks):
            shape = mask.shape[0], mask.shape[1]
            seen[shape] = seen.get(shape, np.zeros(shape, np.bool_)) | mask
        return cls({k: m for k, m in seen.items() if m.any() and not m.all()}, whole)

    @property
    def rows(self) -> int:
        """Positions that were left out."""
        return sum(int((~self._seen[shape]).sum()) for shape in self._used)

    def seen(self, name: str, *arrays: Array, layer: bool = False) -> tuple[Array, ...]:
        """`arrays` of one shape [batch, tokens, ..] as [1, seen tokens, ..]; others as they are.

        One whose first axis has batch times tokens rows loses those of padding. The last axis of
        what a `layer` computes is never that of tokens.
        """
        shape = self._shape(name, arrays, layer) if self._seen else None
        if shape is None:
            return arrays
        self._used.add(shape)
        mask = self._seen[shape]
        if arrays[0].shape[:2] == shape:
            return tuple(array[mask][None] for array in arrays)
        return tuple(array[mask.reshape(-1)] for array in arrays)

    def _shape(self, name: str, arrays: tuple[Array, ...], layer: bool) -> tuple[int, int] | None:
        """Of the mask that belongs to arrays of this name, if there is one."""
        size = arrays[0].shape
        if name in self._whole or any(array.shape != size for array in arrays) or len(size) < 2:
            return None
        by_token = len(size) > 2 or not (layer or _NO_TOKENS.search(name))
        for shape in self._seen:
            # [batch, heads, tokens, ..] where there are as many heads as tokens
            of_heads = len(size) > 3 and size[2] == shape[1]
            if size[:2] == shape and by_token and not of_heads:
                return shape
            if size[0] == shape[0] * shape[1] and shape[1] > 1:
                return shape
        return None


def _arrays(feed: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    for name, value in feed.items():
        if isinstance(value, Mapping):
            yield from _arrays({str(key): item for key, item in value.items()})
        elif isinstance(value, np.ndarray):
            yield name.rpartition(".")[2], value


def _sequence(name: str) -> str:
    """Which of the model's sequences an input is of."""
    return next((start for start in _SEQUENCES if name.startswith(start)), "")


def _mask(name: str, value: Array) -> Mask | None:
    """True where a token is seen; None for what is no mask of tokens."""
    if value.ndim != 2 or not name.endswith((*_SEEN, *_HIDDEN)):
        return None
    ones = value != 0
    if value.dtype.kind == "f":
        if not np.isin(value, (0.0, 1.0)).all():  # numbers that are added to scores
            return ~np.isneginf(value) if np.isin(value, (0.0, -np.inf)).all() else None
    elif value.dtype.kind not in "biu":
        return None
    mask: Mask = ~ones if name.endswith(_HIDDEN) else ones
    return mask


def _sequences(
    inputs: Collection[tuple[str, Array]], masks: Mapping[str, list[Mask]]
) -> Iterator[Mask]:
    """What is seen of the sequences that the inputs name: of one without a mask, all."""
    for known in masks.values():
        yield from known
    for name, value in inputs:
        if not _holds_tokens(name, value):
            continue
        batch, tokens = value.shape[:2]
        known = masks.get(_sequence(name), [])
        if not known:
            yield np.ones((batch, tokens), np.bool_)
        elif name.endswith(_TOKENS):  # a mask covers what a cache holds of earlier tokens, too
            yield from (m[:, -tokens:] for m in known if len(m) == batch and tokens < m.shape[1])


def _holds_tokens(name: str, value: Array) -> bool:
    """Whether it holds ids [batch, tokens] or vectors [batch, tokens, k], and is no mask."""
    axes = {"i": 2, "u": 2, "f": 3}.get(value.dtype.kind)
    return value.ndim == axes and not name.endswith((*_SEEN, *_HIDDEN))
