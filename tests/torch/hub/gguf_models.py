"""Models of transformers as GGUF files, changed as llama.cpp's converter changes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.checkpoints.gguf_files import write_gguf

_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "vocab_size": "vocab_size",
}
_EPSILONS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
}


def write_model(
    path: Path,
    model: Any,
    architecture: str,
    kind: str,
    others: Mapping[str, str] | None = None,
    words: int = 0,
    said: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """The model's matrices become `kind`, vectors F32; `others` has other types by GGUF's names.

    With `words` a vocabulary of so many goes along, of one-byte words. `said` are more fields of
    the architecture (None: without the field), `more` more tensors.
    """
    config = model.config
    metadata: dict[str, Any] = {
        f"{architecture}.{key}": getattr(config, name) for key, name in _KEYS.items()
    }
    for name, key in _EPSILONS.items():
        if hasattr(config, name):
            metadata[f"{architecture}.{key}"] = getattr(config, name)
    metadata[f"{architecture}.rope.freq_base"] = 10000.0
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    metadata[f"{architecture}.rope.dimension_count"] = head
    metadata[f"{architecture}.attention.key_length"] = head
    metadata["general.name"] = "mistral" if config.model_type == "mistral" else "tiny"
    metadata |= {f"{architecture}.{key}": value for key, value in (said or {}).items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    metadata["tokenizer.ggml.padding_token_id"] = 0
    if words:
        metadata |= _vocabulary(words)
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tied = set(model.all_tied_weights_keys)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name in tied:
            continue
        base, _, suffix = name.rpartition(".")
        theirs = f"{names.get_name(base)}.{suffix}"
        values = _changed(tensor.float().numpy(), theirs, architecture, config)
        vector = values.ndim == 1
        tensors[theirs] = values, "F32" if vector else (others or {}).get(theirs, kind)
    tensors |= {name: (np.asarray(t, np.float32), "F32") for name, t in (more or {}).items()}
    return write_gguf(path, tensors, architecture, metadata)


def _changed(values: Any, name: str, architecture: str, config: Any) -> Any:
    if architecture == "llama" and ("attn_q." in name or "attn_k." in name):
        heads = config.num_attention_heads if "attn_q." in name else config.num_key_value_heads
        parts = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        return np.ascontiguousarray(parts.swapaxes(1, 2).reshape(values.shape))
    if architecture.startswith(("gemma", "nemotron")) and name.endswith("norm.weight"):
        return values + 1
    return values


def _vocabulary(words: int) -> dict[str, Any]:
    found = ["<|endoftext|>", *(f"<{i}>" for i in range(words - 257))]
    letters = [c for c in map(chr, range(0x21, 0x250)) if c.isprintable() and not c.isspace()]
    found += [*letters[:255], letters[0] + letters[1]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": found,
        "tokenizer.ggml.token_type": [1] * words,
        "tokenizer.ggml.merges": [f"{letters[0]} {letters[1]}"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
