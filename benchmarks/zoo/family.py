"""A family of transformers: its row of the table in `families`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Size(Enum):
    """Of a model: as its makers published it, but for the layers, or small, for tests."""

    PUBLISHED = "published"
    SMALL = "small"


class Inputs(Enum):
    """What a model is called with."""

    TEXT = "tokens, and which of them count"
    IMAGE = "pictures"
    MEL = "mel spectrograms"
    WAVE = "sound"
    STATES = "hidden states"
    CROSS_TEXT = "tokens, and the states of an encoder"
    CROSS_STATES = "hidden states, and those of an encoder"
    TRANSLATION = "tokens of two languages"


@dataclass(frozen=True)
class Family:
    """A row. `published` and `small` are width, layers, heads and the feed-forward's width.

    `sizes` are the configuration's names of these four: several names may share a figure, and some
    have none. `also`
    are further arguments of the configuration, `also_published` and `also_small` those of one size.
    `part` is the submodule that counts. `attentions` is how many a layer has. `cached` says that
    keys and values can be kept from call to call; `head` is the class that generates. `spellings`
    are the implementations of attention that its class has. `named` is False for those that stand
    for whatever nobody named.
    """

    name: str
    kind: str
    published: tuple[int, int, int, int]
    inputs: Inputs = Inputs.TEXT
    small: tuple[int, int, int, int] = (64, 2, 4, 128)
    sizes: tuple[str, str, str, str] = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    )
    also: Mapping[str, Any] = field(default_factory=dict)
    also_published: Mapping[str, Any] = field(default_factory=dict)
    also_small: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    attentions: int = 1
    cached: bool = False
    head: str = ""
    spellings: tuple[str, ...] = ("eager", "sdpa")
    named: bool = True

    def widths(self, size: Size) -> tuple[int, int, int, int]:
        """Width, layers, heads and the feed-forward's width."""
        return self.published if size is Size.PUBLISHED else self.small

    def arguments(self, size: Size) -> dict[str, Any]:
        """Of the configuration."""
        own = self.also_published if size is Size.PUBLISHED else self.also_small
        figures = zip(self.sizes, self.widths(size), strict=True)
        widths = {name: figure for names, figure in figures for name in names.split()}
        return {**widths, **self.also, **own}

    def count(self, size: Size) -> int:
        """How many attentions the whole model has."""
        return self.attentions * self.widths(size)[1]
