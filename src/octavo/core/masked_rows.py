"""Rows that masks hide: padding, of which nobody uses what a model computes.

attention_mask [[1, 1, 1], [1, 0, 0]], y [2, 3, 384]   ->   y [1, 4, 384]: the tokens that are seen
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_SEEN = ("attention_mask", "input_mask")
"""How names of masks end whose ones are seen, as in transformers."""
_HIDDEN = ("key_padding_mask",)
"""How names of masks end whose ones are hidden, as in PyTorch's transformer layers. Of a
`padding_mask` nobody knows which ones hide: EncodecModel's are seen."""
_SEQUENCES = ("encoder", "decoder", "tgt", "target", "query")
"""How names begin that say to which of a model's sequences an input belongs."""
_LABELS = ("labels", "targets")
"""How names of inputs end that may be of a decoder, which makes its own inputs of them."""
_TOKENS = ("input_ids", "inputs_embeds")
_BY_TOKEN = re.compile(r"(^|[\W_])(start|end)_(logits|scores|probs)$|mask$", re.IGNORECASE)
"""Outputs with two axes of which the second is that of tokens; of others it may be of classes."""
_TOKEN_AXES = 3  # batch, tokens and what there is of each


def of_tokens(inputs: Iterable[Any], outputs: Iterable[Any]) -> dict[str, bool]:
    """Tell which outputs of an ONNX graph have tokens along axis 1, where the graph says so.

    `inputs` and `outputs` are values with a `name` and a `shape`, of sizes or names of sizes: an
    axis named as a mask's is one of tokens; one of a fixed size is none, where the masks' axes are
    open.
    """
    masks = {_axis(v) for v in inputs if len(v.shape or ()) == 2 and _names_mask(v.name)}
    fixed = any(isinstance(size, int) for size in masks)
    known = {v.name: _axis(v) for v in outputs if len(v.shape or ()) > 1}
    found = {name: True for name, at in known.items() if isinstance(at, str) and at in masks}
    if masks and not fixed:
        found.update({name: False for name, at in known.items() if isinstance(at, int)})
    return found


def _axis(value: Any) -> int | str | None:
    """Return the size of axis 1, or its name; None where it has neither."""
    at = value.shape[1]
    found: int | str | None = at if isinstance(at, (int, str)) else getattr(at, "value", None)
    return found


def _names_mask(name: str) -> bool:
    return name.rpartition(".")[2].endswith((*_SEEN, *_HIDDEN))


# docs/notes/checking.md: "Padding is not compared"
class Padding:
    """The padding in one run's inputs, by the shapes [batch, tokens] of what has some.

    `rows` counts the hidden positions of the masks that `seen` has used.
    """

    def __init__(
        self,
        seen: Mapping[tuple[int, int], Mask],
        known: Mapping[str, bool] | None = None,
        batches: Collection[int] = (),
    ) -> None:
        """Keep masks by their shapes [batch, tokens], as `Padding.of` finds them.

        `known` is what `of_tokens` says of outputs, `batches` the first sizes of all inputs.
        """
        self._seen, self._known, self._batches = seen, dict(known or {}), frozenset(batches)
        self._used: set[tuple[int, int]] = set()

    @classmethod
    def of(cls, feed: Mapping[str, Any], known: Mapping[str, bool] | None = None) -> Padding:
        """Build the padding from the masks among arrays of inputs by name.

        Mappings inside of `feed` are looked into. Masks have two axes. One that hides nothing, or
        everything, counts for nothing; and so does one of a shape that another sequence without a
        mask has too. `known` is what the graph says of the outputs (`of_tokens`), where there is
        one.
        """
        inputs = list(_arrays(feed))
        masks: dict[str, list[Mask]] = {}
        for name, value in inputs:
            mask = _mask(name, value)
            if mask is not None:
                masks.setdefault(_sequence(name), []).append(mask)
        if not masks:
            return cls({})
        batches = {value.shape[0] for _, value in inputs if value.ndim}
        seen: dict[tuple[int, int], Mask] = {}
        for mask in _sequences(inputs, masks):
            shape = mask.shape[0], mask.shape[1]
            seen[shape] = seen.get(shape, np.zeros(shape, np.bool_)) | mask
        return cls({k: m for k, m in seen.items() if m.any() and not m.all()}, known, batches)

    @property
    def rows(self) -> int:
        """Positions that were left out."""
        return sum(int((~self._seen[shape]).sum()) for shape in self._used)

    def seen(self, name: str, *arrays: Array, layer: bool = False) -> tuple[Array, ...]:
        """Cut `arrays` of one shape [batch, tokens, k] to [1, seen tokens, k]; return others as is.

        Arrays of two axes, [batch, tokens], are cut only where a name or the graph says so; those
        of more than three axes where the graph does. What a `layer` computes may be
        [batch * tokens, k], too.
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
        """Return the shape of the mask that belongs to arrays of this name, if there is one."""
        size = arrays[0].shape
        if any(array.shape != size for array in arrays) or len(size) < 2:
            return None
        known = None if layer else self._known.get(name)
        by_token = known is not False and (
            known or len(size) == _TOKEN_AXES or bool(not layer and _BY_TOKEN.search(name))
        )
        flattened = layer and len(size) == 2 and size[0] not in self._batches
        for shape in self._seen:
            if by_token and size[:2] == shape:
                return shape
            if flattened and size[0] == shape[0] * shape[1] and shape[1] > 1:
                return shape
        return None


def _arrays(feed: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    for name, value in feed.items():
        if isinstance(value, Mapping):
            yield from _arrays({str(key): item for key, item in value.items()})
        elif isinstance(value, np.ndarray):
            yield name.rpartition(".")[2], value


def _sequence(name: str) -> str:
    """Tell which of the model's sequences an input belongs to."""
    if name.endswith(_LABELS):
        return "decoder"
    return next((start for start in _SEQUENCES if name.startswith(start)), "")


def _mask(name: str, value: Array) -> Mask | None:
    """Return an array, True where a token is seen; None where `value` is no mask of tokens."""
    if value.ndim != 2 or not _names_mask(name):
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
    """Yield masks of the sequences that the inputs name: all True for one without a mask."""
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
    """Tell whether it holds ids [batch, tokens] or vectors [batch, tokens, k], and is no mask."""
    axes = {"i": 2, "u": 2, "f": 3}.get(value.dtype.kind)
    return value.ndim == axes and not name.endswith("mask")
