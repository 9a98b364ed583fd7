"""What is registered with `transformers.modeling_utils` once that is loaded."""

from __future__ import annotations

import functools
from typing import Any

from transformers import modeling_utils

import octavo.torch.hub.gguf_quantizer
import octavo.torch.hub.saving  # noqa: F401
from octavo.torch.hub.folders import check_files


def _of_whole_files(find: Any) -> Any:
    """Wrap `find`, which may open the first of a checkpoint's files, in a check of all of them.

    Damage is thus said in Octavo's words.
    """

    @functools.wraps(find)
    def find_dtype(dtype: Any, checkpoint_files: Any, *args: Any, **kwargs: Any) -> Any:
        if any(getattr(value, "saves_quantized", False) for value in (*args, *kwargs.values())):
            check_files(checkpoint_files or ())
        return find(dtype, checkpoint_files, *args, **kwargs)

    return find_dtype


_theirs: Any = modeling_utils
if hasattr(_theirs, "_get_dtype"):
    _theirs._get_dtype = _of_whole_files(_theirs._get_dtype)
