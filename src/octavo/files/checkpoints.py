"""Which texts name a checkpoint of transformers, and where its weights are.

Loads none of its libraries.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from octavo.errors import ModelError, listed

CONFIG = "config.json"
MODULES = "modules.json"
"""Of sentence-transformers: where in a folder its parts are."""
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
AGAIN = "copy or download it again, whole"
PARTS = (
    f"{CONFIG}, weights ({WEIGHTS}, or {INDEX} and the files that it "
    "names) and, for text, a tokenizer's files"
)

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = tuple(".onnx .ort .pb .py .json .yaml .yml .safetensors .tflite .npz".split())
_TOLD = (CONFIG, MODULES)


def is_gguf(text: str) -> bool:
    """Tell whether `text` is a GGUF file of llama.cpp, by its name or its first bytes."""
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
    """Tell whether `text` is the folder of a checkpoint of transformers, or a name in its cache.

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


def refuse_without_weights(text: str) -> None:
    """Raise ModelError where `text` is a checkpoint's folder that lacks weights.

    Those of a sentence-transformers model may be in another folder, and are looked for later.
    """
    folder = Path(text).expanduser()
    if (folder / CONFIG).is_file():
        weight_files(folder)


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint. Raises ModelError where one is missing."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        raise ModelError(_without_weights(folder))
    try:
        named = json.loads(index.read_text("utf-8"))["weight_map"]
        shards = list(dict.fromkeys(map(str, named.values())))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{index} is damaged: it has no weight_map of names to files ({error}); {AGAIN}"
        ) from None
    missing = [name for name in shards if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{index} names {len(shards)} shards, of which {len(missing)} are missing: "
            f"{listed(missing, 3)}; copy or download them into {folder}"
        )
    return [folder / name for name in shards]


def _without_weights(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    others = [name for name in names if Path(name).suffix in (".bin", ".pt", ".pth", ".gguf")]
    if others:
        return (
            f"{folder} holds no {WEIGHTS} and no {INDEX}; its weights are in {listed(others, 3)}, "
            "which need code of other libraries to be read. Save them anew: "
            "AutoModel.from_pretrained(folder).save_pretrained(another)"
        )
    return (
        f"{folder} holds no weights (it holds {listed(names, 5)}). A checkpoint's folder holds "
        f"{PARTS}. Copy or download its weights into it, or save the model anew: save_pretrained"
    )


def _cache() -> Path:
    """Return the folder where huggingface_hub keeps its downloads, without loading it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or str(Path(home) / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")).expanduser()
