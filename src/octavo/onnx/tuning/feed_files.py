"""Inputs of a run as a file, for another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.recipe.target import Feed


def write_feed(path: Path, feed: Feed) -> None:
    """Writes `feed` as a .npz; inputs may have any names."""
    held: dict[str, Any] = {"names": np.array(list(feed), dtype=str)}
    for i, given in enumerate(feed.values()):
        array = np.asarray(given)
        held[f"array{i}"] = array.astype(str) if array.dtype.kind == "O" else array
    np.savez(path, **held)


def read_feed(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The inverse of `write_feed`; text comes back as NumPy's str."""
    with np.load(path, allow_pickle=False) as archive:
        return {str(name): archive[f"array{i}"] for i, name in enumerate(archive["names"])}
