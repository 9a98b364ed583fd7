"""The folder in which a document's blocks run: small real models and data, named as there.

`model.onnx` is a BERT with two layers that sorts texts into six classes, as transformers and
PyTorch's exporter write it; its weights are drawn, not trained. Labels are what it says itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import octavo.onnx
from benchmarks.zoo.export import cached, quiet, versions
from benchmarks.zoo.minilm_graph import draw

WORDS, TEXTS, LENGTH = 1000, 96, 16
_RECIPE = 2  # raise when the export below changes

MODULES = {
    "mymodule.py": """
import numpy as np

with np.load("labelled.npz") as data:
    inputs = {name: data[name] for name in ("input_ids", "attention_mask")}
    label = data["label"]


def evaluate(session):
    (logits,) = session.run(None, inputs)
    return float(np.mean(np.argmax(logits, axis=1) == label))
""",
    "mypackage/__init__.py": "",
    "mypackage/models.py": """
from torch import nn


def build():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
""",
    "conf.yaml": """
model:
  name: bert
  framework: onnxrt_integerops
quantization:
  approach: post_training_dynamic_quant
tuning:
  accuracy_criterion:
    relative: 0.01
""",
    "my.yaml": """
version: 1
base: int8
rules:
  - name: "/bert/encoder/layer.0/*"
    scheme: float
""",
}


def prepare(folder: Path) -> Path:
    """Fills `folder` with everything that documents name and do not make themselves."""
    folder.mkdir()
    float_model = folder / "model.onnx"
    shutil.copy(_classifier(), float_model)
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.lstrip("\n"))
    _data(folder, float_model)
    checkpoint(folder / "path" / "to" / "checkpoint")
    _float_embedder(folder / "path" / "to" / "checkpoint", folder / "float.onnx")
    octavo.onnx.quantize_dynamic(float_model, folder / "model.int8.onnx", verify=False)
    _checkpoint(folder / "checkpoint")
    _decoders(folder)
    native = folder / "model.int8.native.onnx"
    octavo.onnx.quantize_dynamic(float_model, native, target="native", verify=False)
    shutil.copy(native, folder / "model.native.onnx")
    return folder


def checkpoint(folder: Path) -> None:
    """A sentence-transformers model of one layer, with drawn weights and a tokenizer of letters."""
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    with quiet():
        _bert(400, num_hidden_layers=1, intermediate_size=128).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", *map(chr, range(32, 127))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Split("", "isolated")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128
    ).save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}
    for name, data in (("modules.json", modules), ("1_Pooling/config.json", pooling)):
        (folder / name).write_text(json.dumps(data))


def _float_embedder(checkpoint: Path, out: Path) -> None:
    """The checkpoint as a float ONNX file."""
    import onnx
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    weights = load_file(checkpoint / "model.safetensors")
    positions = np.arange(config["max_position_embeddings"])[None]
    onnx.save(draw({"embeddings.position_ids": positions, **weights}, config), out)


def _decoders(folder: Path) -> None:
    """A tiny decoder: a GGUF file, a folder of floats, and one of GPTQ's."""
    import transformers

    from tests.torch.hub.families import checkpoint as of_family
    from tests.torch.hub.gguf_models import write_model
    from tests.torch.hub.int4_folders import LLAMA, written

    with quiet():
        written(folder / "path" / "to" / "gptq-checkpoint", "gptq")
        of_family(LLAMA, folder / "decoder")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "decoder")
    _tokenizer(folder / "decoder", model.config.vocab_size)
    write_model(folder / "model.gguf", model, "llama", "Q4_0", words=model.config.vocab_size)


def _data(folder: Path, model: Path) -> None:
    """Inputs of the model, as `.npz` and `inputs.jsonl`; with labels in `labelled.npz`; texts."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, WORDS, (TEXTS, LENGTH))
    lengths = rng.integers(LENGTH // 2, LENGTH + 1, TEXTS)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int64)
    inputs = {"input_ids": ids, "attention_mask": mask}
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, inputs)
    ordered = np.sort(logits, axis=1)
    clear = np.argsort(ordered[:, -2] - ordered[:, -1])[: TEXTS * 2 // 3]  # not the doubtful ones
    for name in ("data.npz", "real_inputs.npz"):
        np.savez(folder / name, **{key: value[:8] for key, value in inputs.items()})
    runs = [{key: value[i : i + 1].tolist() for key, value in inputs.items()} for i in range(4)]
    (folder / "inputs.jsonl").write_text("\n".join(map(json.dumps, runs)))
    texts = [{"text": text} for text in ("a cat sits", "rain falls on the roof", "two of them")]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
    kept = {key: value[clear] for key, value in inputs.items()}
    np.savez(folder / "labelled.npz", **kept, label=np.argmax(logits[clear], axis=1))


def _checkpoint(folder: Path) -> None:
    """A BERT with random weights and its tokenizer, as transformers saves them."""
    _bert(WORDS).save_pretrained(folder)
    _tokenizer(folder, WORDS)


def _bert(words: int, name: str = "BertModel", **options: Any) -> Any:
    """A BERT of 64 columns with random weights."""
    from tests.models import transformer

    sizes = {"hidden_size": 64, "intermediate_size": 256} | options
    return transformer(name, vocab_size=words, **sizes)


def _tokenizer(folder: Path, size: int) -> None:
    from transformers import BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "cat", "rain"]
    words += [f"word{i}" for i in range(size - len(words))]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def _classifier() -> Path:
    name = f"documents-bert-{versions('torch', 'transformers')}-r{_RECIPE}.onnx"
    return cached(name, _export)


def _export(path: Path) -> None:
    import torch

    labels = {"num_labels": 6, "initializer_range": 0.08, "attn_implementation": "eager"}
    model = _bert(WORDS, "BertForSequenceClassification", **labels)

    class Logits(torch.nn.Module):  # type: ignore[misc]
        """Two tensors in, one out."""

        def __init__(self) -> None:
            super().__init__()
            self.bert, self.classifier = model.bert, model.classifier

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            pooled = self.bert(input_ids=input_ids, attention_mask=attention_mask).pooler_output
            logits: torch.Tensor = self.classifier(pooled)
            return logits

    ids = torch.arange(2 * LENGTH).reshape(2, LENGTH)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0  # so that no tracer concludes that masking can be left out
    axes = {0: "batch", 1: "sequence"}
    with quiet(), torch.no_grad():
        torch.onnx.export(
            Logits().eval(),
            (ids, mask),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["input_ids", "attention_mask"],
            output_names=["logits"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes, "logits": {0: "batch"}},
        )
