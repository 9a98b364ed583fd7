"""Small GGUF files, written by gguf itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np


def write_gguf(
    path: Path,
    tensors: Mapping[str, tuple[Any, str]],
    architecture: str = "llama",
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """`tensors`: float32 arrays and the types that they are quantized to, by name."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (metadata or {}).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            add[type(value)](key, value)
    for name, (values, kind) in tensors.items():
        known = gguf.GGMLQuantizationType[kind]
        data = np.ascontiguousarray(gguf.quantize(values, known))
        writer.add_tensor(name, data, raw_dtype=known)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
