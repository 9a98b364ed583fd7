"""What an input of a model is taken for, and what words of a name may tell of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_WORD_ENDS = re.compile(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Role(Enum):
    """What an input means to the model, as far as its graph tells."""

    IDS = "ids"  # rows of a table of words
    TYPES = "token types"  # rows of a table of a few segments
    POSITIONS = "positions"
    INDEX = "indices"  # into what the model computes
    CATEGORY = "categories"  # compared with constants, element by element
    MODE = "mode"  # leads into one branch or another
    MASK = "mask"
    ADDED_MASK = "added mask"  # 0, or a number far below it, added to what a Softmax reads
    LENGTHS = "lengths"
    PAST = "past"
    STATE = "state"  # of a recurrent layer
    STEP = "step"  # of a diffusion, which sines and cosines of it show
    COUNT = "count"  # how many: beams, boxes, the largest k
    THRESHOLD = "threshold"
    RATE = "sampling rate"
    SCALE = "scale"  # a factor about 1
    PICTURE_SIZE = "picture size"  # height and width in pixels
    IMAGE = "image"
    AUDIO = "audio"
    FEATURES = "features"
    INTEGERS = "integers"
    TEXT = "text"


@dataclass(frozen=True)
class InputKind:
    """What one input was taken for.

    `rows` is the length of the table that integers index, `avoided` are ids that the model
    compares with a constant (padding), `choices` numbers by which it may choose a branch, `texts`
    those that it knows. Of masks, `hidden` is the element (0 or 1) that hides. Of images,
    `channels_last` and whether pixels go up `to_255`. Lengths are `less` by so many.
    Features of which a logarithm is taken are a power (`is_power`): above 0, over decades.
    """

    role: Role
    rows: int | None = None
    avoided: tuple[int, ...] = ()
    choices: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    hidden: int = 0
    channels_last: bool = False
    to_255: bool = False
    less: int = 0
    is_power: bool = False


def is_name(symbol: object) -> bool:
    """Tell whether a size has a name that stands for one size; `?` and `-1` do not."""
    return isinstance(symbol, str) and any(c.isalpha() for c in symbol)


def name_words(name: str | None) -> frozenset[str]:
    """Return the words in names like `attention_mask`, `inputLengths`, `past_key_values.0.key`."""
    text = _HUMPS.sub("_", name or "").lower()
    return frozenset(word for word in _WORD_ENDS.split(text) if word)


def has_word(name: str | None, *words: str) -> bool:
    """Tell whether one of `words` is a word of `name`. Names are the last hint, after the graph."""
    return not name_words(name).isdisjoint(words)
