"""Some rows of the matrices in safetensors files, to look at before the files are loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from octavo.recipe.weight_losses import ROWS

_PIECES = 8


def stored_rows(
    files: Collection[str], names: Collection[str]
) -> Iterator[tuple[str, Tensor, int]]:
    """Yield for each float matrix of `names` its name, rows from all over it, its element count.

    Other files than safetensors have none.
    """
    for path in files:
        if Path(path).suffix != ".safetensors":
            continue
        with safe_open(path, "pt") as file:
            for name in sorted(set(file.keys()) & set(names)):
                part = file.get_slice(name)
                shape = part.get_shape()
                if len(shape) != 2 or 0 in shape:
                    continue
                step = max(1, shape[0] // _PIECES)
                size = min(step, ROWS // _PIECES)
                rows = torch.cat([part[i : i + size] for i in range(0, shape[0], step)])
                if rows.is_floating_point():
                    yield name, rows, shape[0] * shape[1]
