"""What `examples/` work on where no path is given: files as users have them, made in the cache.

The packages hold other forms: Whisper in CTranslate2's format, nano-ocr as PyTorch's weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo import nano_ocr, smollm, whisper_tiny
from benchmarks.zoo.fetch import cache_dir, fetch, locked
from benchmarks.zoo.minilm_text import model_dir, questions, tokenize
from benchmarks.zoo.sessions import Array, Float32, open_session

_RECIPE = 1  # raise when what a folder holds changes
_FIT, _TEST = 1500, 300
_REGULARIZATION = 1.0  # beside the sum of squares of 1,500 vectors
PAGE = ("Small models read whole pages", "one word after the other", "in less than a second")


def embedder() -> Path:
    """all-MiniLM-L6, a checkpoint of sentence-transformers."""
    return model_dir()


def language_model() -> Path:
    """SmolLM2-135M-Instruct, a GGUF file of 4 bits."""
    return smollm.model_file()


def whisper() -> Path:
    """Whisper tiny.en, a checkpoint of transformers."""
    return _folder("whisper-tiny.en", _write_whisper)


def speech() -> list[Path]:
    """Telephone prompts, WAV files of 8 kHz."""
    (root,) = fetch("asterisk-core-sounds-en-wav").rglob("en_US_f_Allison")
    return [root / f"{prompt.name}.wav" for prompt in whisper_tiny.prompts(3)]


def reader() -> Path:
    """nano-ocr, an ONNX file that reads one word."""
    return nano_ocr.onnx_path()


def page() -> Path:
    """A picture of PAGE, black on white."""
    return _folder("page", _draw_page) / "page.png"


def classifier() -> Path:
    """`model.onnx`, all-MiniLM-L6 that sorts questions into six classes, and `labelled.npz`."""
    return _folder("questions", _write_classifier)


def _folder(name: str, make: Callable[[Path], None]) -> Path:
    """`samples/NAME` in the cache, whole or not there at all."""
    folder = cache_dir() / "samples" / f"{name}-r{_RECIPE}"
    if not folder.is_dir():
        with locked(f"samples-{name}"):
            if not folder.is_dir():
                partial = folder.with_suffix(".partial")
                partial.mkdir(parents=True, exist_ok=True)
                make(partial)
                partial.rename(folder)
    return folder


def _write_whisper(folder: Path) -> None:
    """Model, tokenizer, features, and how `generate` asks: in English, without timestamps."""
    from tokenizers import Tokenizer
    from transformers import GenerationConfig, PreTrainedTokenizerFast, WhisperFeatureExtractor

    held = whisper_tiny.folder()
    suppressed = json.loads((held / "config.json").read_text("utf-8"))
    made = whisper_tiny.model()
    made.generation_config = GenerationConfig(
        bos_token_id=whisper_tiny.START,
        eos_token_id=whisper_tiny.END,
        pad_token_id=whisper_tiny.END,
        decoder_start_token_id=whisper_tiny.START,
        no_timestamps_token_id=whisper_tiny.NO_TIMESTAMPS,
        suppress_tokens=suppressed["suppress_ids"],
        begin_suppress_tokens=suppressed["suppress_ids_begin"],
        is_multilingual=False,
        max_length=448,
    )
    made.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(held / "tokenizer.json"))
    end = tokenizer.id_to_token(whisper_tiny.END)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=end, unk_token=end
    ).save_pretrained(folder)


def _draw_page(folder: Path) -> None:
    from PIL import Image, ImageDraw

    picture = Image.new("L", (620, 60 * len(PAGE) + 20), 255)
    pen = ImageDraw.Draw(picture)
    for i, line in enumerate(PAGE):
        pen.text((20, 60 * i + 20), line, fill=0, font=nano_ocr.typeface("DejaVuSans"))
    picture.save(folder / "page.png")


def _write_classifier(folder: Path) -> None:
    """A linear head, found by least squares over the mean of the tokens."""
    import onnx
    from safetensors.numpy import load_file

    from benchmarks.zoo.minilm_graph import draw

    config = json.loads((model_dir() / "config.json").read_text())
    model = draw(load_file(model_dir() / "model.safetensors"), config)
    asked = questions()
    names = sorted(set(asked.labels))
    label = np.array([names.index(name) for name in asked.labels])
    order = np.random.default_rng(0).permutation(len(label))
    fit, test = order[:_FIT], order[_FIT : _FIT + _TEST]
    _add_mean(model)
    onnx.save(model, folder / "model.onnx")
    vectors = _vectors(folder / "model.onnx", asked.take(fit.tolist()).texts)
    wanted = np.eye(len(names), dtype=np.float32)[label[fit]]
    squares = vectors.T @ vectors + _REGULARIZATION * np.eye(vectors.shape[1], dtype=np.float32)
    _add_head(model, np.linalg.solve(squares, vectors.T @ wanted))
    onnx.save(model, folder / "model.onnx")
    arrays: dict[str, Any] = {"label": label[test], **tokenize(asked.take(test.tolist()).texts)}
    np.savez(folder / "labelled.npz", **arrays)


def _vectors(path: Path, texts: Sequence[str]) -> Float32:
    session = open_session(path)
    parts = [texts[i : i + 32] for i in range(0, len(texts), 32)]
    return np.concatenate([session.run(None, tokenize(part))[0] for part in parts])


def _add_mean(model: Any) -> None:
    """`vectors`, the mean of the tokens that are no padding, in place of the hidden states."""
    from onnx import TensorProto, helper, numpy_helper

    for name, axis in (("last_axis", 2), ("tokens_axis", 1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([axis]), name))
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Unsqueeze", ["attention_mask", "last_axis"], "wide_mask", {}),
        ("Cast", ["wide_mask"], "mask", {"to": TensorProto.FLOAT}),
        ("Mul", ["last_hidden_state", "mask"], "real_tokens", {}),
        ("ReduceSum", ["real_tokens", "tokens_axis"], "sum", {"keepdims": 0}),
        ("ReduceSum", ["mask", "tokens_axis"], "count", {"keepdims": 0}),
        ("Div", ["sum", "count"], "vectors", {}),
    ]
    model.graph.node.extend(
        helper.make_node(op, inputs, [name], name=f"/head/{name}", **attributes)
        for op, inputs, name, attributes in steps
    )
    _set_output(model, "vectors")


def _add_head(model: Any, weight: Array) -> None:
    """`logits`, a number for each class."""
    from onnx import helper, numpy_helper

    model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "classes"))
    model.graph.node.append(
        helper.make_node("MatMul", ["vectors", "classes"], ["logits"], name="/head/MatMul")
    )
    _set_output(model, "logits")


def _set_output(model: Any, name: str) -> None:
    from onnx import TensorProto, helper

    del model.graph.output[:]
    model.graph.output.append(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", f"{name}_width"])
    )
