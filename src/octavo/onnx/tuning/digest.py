"""What tells one float model, under given options, from all others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import octavo
from octavo.onnx.read.load import Source

_PIECE = 1 << 22  # bytes


def digest(source: Source, options: Mapping[str, Any]) -> str:
    """SHA-256 of the model's bytes, those of its data files, the options and Octavo's version."""
    total = hashlib.sha256()
    total.update(json.dumps({**options, "octavo": octavo.__version__}, sort_keys=True).encode())
    if source.path is None:
        assert source.proto is not None
        total.update(source.proto.SerializeToString(deterministic=True))
    else:
        _add(source.path, total)
    for path in sorted(source.data_files):
        total.update(path.name.encode())
        _add(path, total)
    return total.hexdigest()


def _add(path: Path, total: Any) -> None:
    with path.open("rb", buffering=0) as file:
        piece = memoryview(bytearray(_PIECE))
        while count := file.readinto(piece):
            total.update(piece[:count])
