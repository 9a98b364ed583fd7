"""Cutting a sequence: into batches of candidates, and into groups of layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TypeVar

BATCH = 4  # candidates yielded at once, whatever the number of workers: results depend on it

Item = TypeVar("Item")


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """`items` by BATCH, in order; no more of them are read than are given out."""
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch


def groups(items: Sequence[Item], count: int) -> list[list[Item]]:
    """`items` in `count` runs of consecutive ones, whose lengths differ by one at most."""
    edges = [at * len(items) // count for at in range(count + 1)] if items else []
    return [list(items[a:b]) for a, b in pairwise(edges) if a < b]
