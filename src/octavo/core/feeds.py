"""Inputs of a model's runs, read from files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import InputDataError, brief

GIVE = "give a .npz or .jsonl file, a mapping of input names to arrays, or a list of mappings"

_WRITE = {
    ".npz": "write arrays with numpy.savez(path, name=array)",
    ".jsonl": 'write one JSON object a line, such as {"x": [[0.5, 1.0]]}',
}


def read_runs(path: Path) -> list[tuple[str, Any]]:
    """Each run with where it stands: a .npz is one, a .jsonl has one a line.

    Raises InputDataError for another file, and one that cannot be read.
    """
    if not path.is_file():
        raise InputDataError(f"inputs {path}: no such file; {GIVE}")
    if path.suffix not in (".npz", ".jsonl"):
        raise InputDataError(f"inputs {path}: the suffix is {path.suffix!r}; {GIVE}")
    where = str(path)
    try:
        if path.suffix == ".npz":
            if not zipfile.is_zipfile(path):  # NumPy speaks of pickled data then
                raise ValueError("it is no .npz archive")
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return [(where, {name: archive[name] for name in archive.files})]
        runs = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{path}, line {number}"
            if line.strip():
                runs.append((where, json.loads(line)))
    except Exception as error:  # zipfile, json and numpy each raise their own
        raise InputDataError(
            f"inputs {where}: cannot be read: {brief(error)}; {_WRITE[path.suffix]}"
        ) from error
    return runs
