"""Which texts name a checkpoint of transformers. Loads none of its libraries."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = tuple(".onnx .ort .pb .py .json .yaml .yml .safetensors .tflite .npz".split())
_TOLD = ("config.json", "modules.json")


def is_gguf(text: str) -> bool:
    """Whether `text` is a GGUF file of llama.cpp, by its name or its first bytes."""
    path = Path(text).expanduser()
    if not path.is_file():
        return False
    if path.suffix.lower() == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def names_checkpoint(text: str) -> bool:
    """Whether `text` is the folder of a checkpoint of transformers, or a name in its cache.

    A name that is not in the cache counts where it has the form of the Hub's, `owner/name`, whose
    owner is no folder here. A folder of ONNX files that has no safetensors is none.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        told = any((path / name).is_file() for name in _TOLD)
        of_onnx = any(path.glob("*.onnx")) or any(path.glob("*/*.onnx"))
        return (told or not of_onnx) if any(path.glob("*.safetensors*")) else told and not of_onnx
    if os.path.lexists(path) or not _NAME.fullmatch(text) or path.suffix.lower() in _FILES:
        return False
    owner, slash, _ = text.partition("/")
    cached = (_cache() / f"models--{text.replace('/', '--')}").is_dir()
    return cached or bool(slash and not owner.startswith(".") and not Path(owner).exists())


def _cache() -> Path:
    """Where huggingface_hub keeps what it downloaded, without loading it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or str(Path(home) / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")).expanduser()
