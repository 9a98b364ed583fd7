"""Inputs of a run as a file, for another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from octavo.recipe.target import Feed

_ARRAY, _MAPS = "array", "maps"


def write_feed(path: Path, feed: Feed) -> None:
    """Writes `feed` as a .npz; inputs may have any names, and be maps or lists of maps."""
    held: dict[str, Any] = {"names": np.array(list(feed), dtype=str)}
    for i, given in enumerate(feed.values()):
        if isinstance(given, (dict, list)):
            held[f"{_MAPS}{i}"] = np.array(json.dumps(_pairs(given)))
            continue
        array = np.asarray(given)
        held[f"{_ARRAY}{i}"] = array.astype(str) if array.dtype.kind == "O" else array
    np.savez(path, **held)


def read_feed(path: Path) -> dict[str, Any]:
    """The inverse of `write_feed`; text comes back as NumPy's str."""
    with np.load(path, allow_pickle=False) as archive:
        names = [str(name) for name in archive["names"]]
        return {name: _read(archive, i) for i, name in enumerate(names)}


def _read(archive: Any, i: int) -> Any:
    if f"{_ARRAY}{i}" in archive:
        return archive[f"{_ARRAY}{i}"]
    return _maps(json.loads(str(archive[f"{_MAPS}{i}"])))


def _pairs(given: Any) -> Any:
    """Keys need not be text, as JSON's are."""
    if isinstance(given, dict):
        return {"map": [[key, value] for key, value in given.items()]}
    return [_pairs(one) for one in given]


def _maps(pairs: Any) -> Any:
    if isinstance(pairs, dict):
        return dict(pairs["map"])
    return [_maps(one) for one in pairs]
