"""Has transformers read the configuration of a GGUF file without its vocabulary.

The result is the same. transformers asks gguf's reader, which takes seconds and hundreds of
megabytes where a vocabulary is large (`octavo.checkpoints.gguf_reader`).
"""

from __future__ import annotations

import importlib
from typing import Any

from octavo.checkpoints.gguf_reader import light_reader


def read_metadata_lightly() -> None:
    """Have transformers read a GGUF file with the light reader in calls that want no tensors."""
    theirs: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    plain = theirs.load_gguf_checkpoint

    def load_gguf_checkpoint(path: Any, return_tensors: bool = False, **given: Any) -> Any:
        if not return_tensors:
            try:
                with light_reader():
                    return plain(path, return_tensors, **given)
            except Exception:  # noqa: BLE001 - what is wrong is then said as it always was
                pass
        return plain(path, return_tensors, **given)

    theirs.load_gguf_checkpoint = load_gguf_checkpoint


read_metadata_lightly()
