"""A Llama of 1.1 billion parameters in the shape of TinyLlama, with random weights, as GGUF files.

Each block of 32 weights has random integers and one scale, as the file's type holds them, so that a
file is made as fast as it is written: no float weights are made and rounded. Files lie in the cache
(0.6 to 1.2 GB).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.fetch import cache_dir, locked

WIDTH, LAYERS, HEADS, KV_HEADS, FORWARD, VOCABULARY = 2048, 22, 32, 4, 5632, 32_000
CONTEXT = 2048
_BLOCK = 32
_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}
TYPES = tuple(_BYTES)


def config(layers: int = LAYERS) -> dict[str, Any]:
    """Arguments of transformers' LlamaConfig."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "intermediate_size": FORWARD,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
    }


def model_file(kind: str) -> Path:
    """The GGUF file of one of TYPES; made now if the cache lacks it."""
    path = cache_dir() / "models" / f"llama-1.1b-random-1.{kind}.gguf"
    if not path.is_file():
        with locked(path.name):
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(".partial")
                _write(partial, kind)
                partial.replace(path)
    return path


def _shapes() -> Iterator[tuple[str, tuple[int, int]]]:
    """Names of GGUF and shapes [outputs, inputs] of all matrices."""
    yield "token_embd", (VOCABULARY, WIDTH)
    kv = WIDTH // HEADS * KV_HEADS
    for i in range(LAYERS):
        yield f"blk.{i}.attn_q", (WIDTH, WIDTH)
        yield f"blk.{i}.attn_k", (kv, WIDTH)
        yield f"blk.{i}.attn_v", (kv, WIDTH)
        yield f"blk.{i}.attn_output", (WIDTH, WIDTH)
        yield f"blk.{i}.ffn_gate", (FORWARD, WIDTH)
        yield f"blk.{i}.ffn_up", (FORWARD, WIDTH)
        yield f"blk.{i}.ffn_down", (WIDTH, FORWARD)
    yield "output", (VOCABULARY, WIDTH)


def _write(path: Path, kind: str) -> None:
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    _add_vocabulary(writer)
    matrices = dict(_shapes())
    raw = gguf.GGMLQuantizationType[kind]
    for name, (n, k) in matrices.items():
        size = k // _BLOCK * _BYTES[kind]
        shape, dtype = (n, size), np.dtype(np.uint8)
        writer.add_tensor_info(f"{name}.weight", shape, dtype, n * size, raw)
    norms = [f"blk.{i}.{kind}" for i in range(LAYERS) for kind in ("attn_norm", "ffn_norm")]
    ones = np.ones(WIDTH, np.float32)
    for name in [*norms, "output_norm"]:
        writer.add_tensor_info(f"{name}.weight", ones.shape, ones.dtype, ones.nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(0)
    for name, shape in matrices.items():
        scale = 0.1 if name == "token_embd" else shape[1] ** -0.5
        writer.write_tensor_data(_blocks(kind, shape, scale, random))
    for _ in [*norms, "output_norm"]:
        writer.write_tensor_data(ones)
    writer.close()


def _add_vocabulary(writer: Any) -> None:
    """llama.cpp reads no file without one."""
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"token{i}" for i in range(VOCABULARY)])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([1] * VOCABULARY)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _blocks(
    kind: str, shape: tuple[int, int], scale: float, random: np.random.Generator
) -> NDArray[np.uint8]:
    """Random blocks whose weights have the standard deviation `scale`."""
    n, k = shape
    made = random.integers(0, 256, (n, k // _BLOCK, _BYTES[kind]), np.uint8)
    steps = {"Q4_0": 4.61, "Q4_1": 4.61, "Q8_0": 73.9}[kind]  # of integers that are as likely
    d = np.array([scale / steps], np.float16)
    made[..., :2] = d.view(np.uint8)
    if kind == "Q4_1":
        made[..., 2:4] = (-7.5 * d).astype(np.float16).view(np.uint8)
    return made.reshape(n, -1)
