"""What undoes a converter's change: an order of rows, or more, which is found without weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.errors import ModelError
from octavo.torch.hub.gguf_names import Place


def _fails(values: Any) -> Any:
    raise KeyError("num_heads")


def test_an_order_of_rows_is_found() -> None:
    order = np.array([2, 0, 3, 1])
    found = Place("w", lambda values: values[order]).rows(4)
    np.testing.assert_array_equal(found, order)


@pytest.mark.parametrize(
    "undo",
    [
        lambda values: values.reshape(2, 2, 8).swapaxes(0, 1).reshape(4, 8),
        lambda values: values[:, [1, 0]],
        lambda values: values + 1,
        lambda values: values.T,
    ],
    ids=["reshaped", "columns", "numbers", "transposed"],
)
def test_what_looks_at_more_than_rows_is_no_order(undo: Any) -> None:
    assert Place("w", undo).rows(4) is None


def test_other_failures_are_said_of_the_parameter() -> None:
    with pytest.raises(ModelError, match=r"layers\.0\.w: transformers cannot convert.*num_heads"):
        Place("layers.0.w", _fails).rows(4)
