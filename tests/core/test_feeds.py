"""Shapes in words, and which ones to give in place of those that a model does not run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from octavo.core.feeds import Shapes, fitting_shapes


def of_length(most: int, asked: list[int]) -> Callable[[Shapes], Mapping[str, Any] | None]:
    def runs(shapes: Shapes) -> Mapping[str, Any] | None:
        length = shapes["ids"][1] if shapes else 16
        asked.append(length)
        return {"ids": np.ones((4, length))} if length <= most else None

    return runs


@pytest.mark.parametrize("most", [8, 9, 64, 512, 1023])
def test_the_longest_that_runs_is_found(most: int) -> None:
    asked: list[int] = []
    shapes = {"ids": (2, 1024), "mask": (2, 1024), "image": (2, 3, 8, 8), "k": (1,)}
    found = fitting_shapes(shapes, of_length(most, asked))
    assert found == f"it runs on ids=2x{most},mask=2x{most},image=2x3x8x8,k=1, for example"
    assert len(asked) <= 17
    assert max(asked) <= 2 * most


def test_lengths_beyond_all_models_are_not_tried() -> None:
    asked: list[int] = []
    found = fitting_shapes({"ids": (2, 10**9)}, of_length(512, asked))
    assert found == "it runs on ids=2x512, for example"
    assert max(asked) == 1024


def test_where_length_is_not_the_matter_there_is_an_example() -> None:
    def runs(shapes: Shapes) -> Mapping[str, Any] | None:
        return None if shapes else {"x": np.ones((4, 16))}

    assert fitting_shapes({"x": (1, 2, 3)}, runs) == "it runs on x=4x16, for example"
    assert fitting_shapes({"x": (5,)}, runs) == "it runs on x=4x16, for example"
    assert fitting_shapes({"x": (1, 9)}, lambda shapes: None) == ""
