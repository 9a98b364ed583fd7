"""Has `save_pretrained` write tensors at multiples of 64 bytes, where kernels can use them mapped.

safetensors' own writer begins the data at a multiple of 8, and copies all of it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from octavo.files.staging import Staging
from octavo.torch.files.safetensors import can_hold, write

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
        """Write the file whole, in place of what was there, or not at all."""
        ours = metadata is not None and VERSION_KEY in metadata
        if not ours or not all(can_hold(tensor.dtype) for tensor in tensors.values()):
            self.others(tensors, filename, metadata=metadata)
            return
        with Staging(filename) as staging:
            with staging.model.open("wb") as file:
                write(file, tensors, metadata or {})
            staging.commit()


def write_aligned() -> None:
    """Put the writer of aligned files in the place of transformers' `safe_save_file`.

    Where transformers has no such function, files are as safetensors writes them: tensors that are
    not aligned are copied when they are first used.
    """
    from transformers import modeling_utils

    plain = getattr(modeling_utils, "safe_save_file", None)
    if plain is not None and not isinstance(plain, _Writer):
        modeling_utils.safe_save_file = _Writer(plain)
