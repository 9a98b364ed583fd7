"""sentence-transformers on all-MiniLM-L6, quantized by one argument."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

from benchmarks.zoo.minilm_text import lee_documents, model_dir
from octavo.torch import report
from octavo.torch.hub import OctavoConfig
from octavo.torch.layers.linear import QuantizedLinear

sentence_transformers = pytest.importorskip("sentence_transformers")

pytestmark = pytest.mark.models

LEAST, WORST = 0.998, 0.99  # the mean cosine of float and int8 embeddings, and each sentence's


def test_sentences_are_encoded_as_by_the_float_model(tmp_path: Path) -> None:
    texts = [text.partition(".")[0] for text in lee_documents()[:16]]
    original = sentence_transformers.SentenceTransformer(str(model_dir()), device="cpu")
    given = {"quantization_config": OctavoConfig()}
    model = sentence_transformers.SentenceTransformer(
        str(model_dir()), device="cpu", model_kwargs=given
    )
    found = model.encode(texts, convert_to_tensor=True)
    cosines = cosine_similarity(found, original.encode(texts, convert_to_tensor=True))
    assert cosines.mean() > LEAST
    assert cosines.min() > WORST
    assert len(report(model[0].auto_model).quantized) > 36

    model.save_pretrained(str(tmp_path))
    again = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert isinstance(again[0].auto_model.encoder.layer[0].output.dense, QuantizedLinear)
    assert torch.equal(again.encode(texts, convert_to_tensor=True), found)
    half = again.half().encode(texts, convert_to_tensor=True)
    assert half.dtype is torch.float16 and cosine_similarity(half.float(), found).min() > WORST
