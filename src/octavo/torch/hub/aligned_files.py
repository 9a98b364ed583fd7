"""Has `save_pretrained` write tensors at multiples of 64 bytes, where kernels can use them mapped.

safetensors' own writer begins the data at a multiple of 8, and copies all of it first.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from octavo.files.checkpoints import CONFIG
from octavo.files.staging import Staging
from octavo.torch.files.safetensors import can_hold, write
from octavo.torch.hub.config import METHOD

VERSION_KEY = "octavo.version"
REPORT_KEY = "octavo.report"
"""Entries of each file's metadata."""


@dataclass(frozen=True)
class _Writer:
    """Stands for safetensors' `save_file` in `transformers`: files of other models go there."""

    others: Any

    def __call__(
        self,
        tensors: Mapping[str, Tensor],
        filename: str,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Writes the file whole, in place of what was there, or not at all."""
        ours = metadata is not None and VERSION_KEY in metadata
        if not ours or not all(can_hold(tensor.dtype) for tensor in tensors.values()):
            self.others(tensors, filename, metadata=metadata)
            return
        path = Path(filename)
        try:
            with Staging(path) as staging:
                with staging.model.open("wb") as file:
                    write(file, tensors, metadata or {})
                staging.commit()
        except OSError:
            _take_back(path)
            raise


def _take_back(path: Path) -> None:
    """Removes what `save_pretrained` wrote of a model before `path`: config.json, other shards.

    The one describes layers that the folder does not hold, the others are no model.
    """
    config = path.parent / CONFIG
    with contextlib.suppress(OSError, ValueError, AttributeError):
        said, begun = json.loads(config.read_text("utf-8")), config.stat().st_mtime_ns
        if said.get("quantization_config", {}).get("quant_method") != METHOD:
            return
        for shard in path.parent.glob(re.sub(r"\d+(?=-of-\d+)", "*", path.name)):
            if shard.stat().st_mtime_ns >= begun:
                shard.unlink()
        config.unlink()


def write_aligned() -> None:
    """Puts the writer in its place. Without that place, files are as safetensors writes them: what
    lies elsewhere is copied when it is first used."""
    from transformers import modeling_utils

    plain = getattr(modeling_utils, "safe_save_file", None)
    if plain is not None and not isinstance(plain, _Writer):
        modeling_utils.safe_save_file = _Writer(plain)
