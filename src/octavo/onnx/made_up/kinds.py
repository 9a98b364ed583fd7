"""What an input of a model is taken for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
    """What one input was taken for, and why.

    `rows` is the length of the table that integers index, `avoided` are ids that the model
    compares with a constant (padding), `choices` numbers by which it may choose a branch, `words`
    the texts that it knows. Of masks, `hidden` is the element (0 or 1) that hides. Of images,
    `channels_last` and whether pixels go up `to_255`. Lengths are `less` by so many.
    """

    role: Role
    why: str = ""
    rows: int | None = None
    avoided: tuple[int, ...] = ()
    choices: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    hidden: int = 0
    channels_last: bool = False
    to_255: bool = False
    less: int = 0
