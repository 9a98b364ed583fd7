"""A service that embeds sentences with an int8 model in ONNX Runtime, without PyTorch.

    octavo quantize path/to/checkpoint --to native -o model
    OCTAVO_MODEL=model uvicorn embedding_service:app
    curl localhost:8000/embed -H 'content-type: application/json' -d '{"texts": ["a sentence"]}'

Needs fastapi, uvicorn, tokenizers and octavo. The folder is of a sentence-transformers model that
takes the mean of its tokens; set OCTAVO_THREADS to the cores that one worker may use.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI
from pydantic import BaseModel, Field
from tokenizers import Tokenizer

import octavo.onnx

LONGEST = 256  # tokens of a text; the rest is cut
app = FastAPI(title="Embeddings")


class Texts(BaseModel):
    """What is asked for."""

    texts: list[str] = Field(min_length=1, max_length=256)


class Embeddings(BaseModel):
    """Unit vectors, in the order of the texts."""

    embeddings: list[list[float]]


@lru_cache
def model() -> tuple[Tokenizer, ort.InferenceSession]:
    """Tokenizer and session, opened by the first request; any number of threads may use them."""
    folder = Path(os.environ["OCTAVO_MODEL"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(LONGEST)
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OCTAVO_THREADS", "0"))
    session = octavo.onnx.session(folder / "onnx" / "model.onnx", sess_options=options)
    return tokenizer, session


@app.post("/embed")
def embed(request: Texts) -> Embeddings:
    """One unit vector for each text. FastAPI runs it in a thread of its own."""
    tokenizer, session = model()
    encoded = tokenizer.encode_batch(request.texts)
    given = {
        "input_ids": [one.ids for one in encoded],
        "attention_mask": [one.attention_mask for one in encoded],
        "token_type_ids": [one.type_ids for one in encoded],
    }
    names = {value.name for value in session.get_inputs()}
    feed = {name: np.array(rows, np.int64) for name, rows in given.items() if name in names}
    (hidden,) = session.run(["last_hidden_state"], feed)
    mask = feed["attention_mask"][:, :, None].astype(np.float32)
    pooled = (hidden * mask).sum(1) / mask.sum(1)
    vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    return Embeddings(embeddings=vectors.tolist())
