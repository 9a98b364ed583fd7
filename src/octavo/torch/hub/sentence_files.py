"""Files of a sentence-transformers model, so that release 5 reads them as well as 6.

The ONNX backend needs optimum-onnx, and that transformers 4.57: with release 6, which writes other
names of classes and of settings, it does not work yet. Both read the names of release 5.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.files.checkpoints import MODULES

_OURS = "sentence_transformers."
_MODES = {
    "cls": "cls_token",
    "mean": "mean_tokens",
    "max": "max_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}


def rename_for_release_5(folder: Path, longest: int | None) -> None:
    """Rewrite files of sentence-transformers 6 for release 5; modules that 5 lacks are left alone.

    `longest` is the most tokens that a text may have.
    """
    modules = json.loads((folder / MODULES).read_text("utf-8"))
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        place = folder / module["path"]
        if not module["type"].startswith(_OURS):
            continue
        if kind == "Transformer":
            _write(place / "sentence_bert_config.json", {"max_seq_length": longest})
        elif kind == "Pooling":
            path = place / "config.json"
            _write(path, _pooling(json.loads(path.read_text("utf-8"))))
        module["type"] = f"{_OURS}models.{kind}"
    _write(folder / MODULES, modules)


def _pooling(config: dict[str, Any]) -> dict[str, Any]:
    """Return `{"embedding_dimension": 384, "pooling_mode": "mean"}` in the words of release 5."""
    if "embedding_dimension" not in config:
        return config
    chosen = config.pop("pooling_mode")
    modes = {chosen} if isinstance(chosen, str) else set(chosen)
    return {
        "word_embedding_dimension": config.pop("embedding_dimension"),
        **{f"pooling_mode_{old}": mode in modes for mode, old in _MODES.items()},
        **config,
    }


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2), encoding="utf-8")
