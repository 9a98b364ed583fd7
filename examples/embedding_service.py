"""A service that embeds sentences with an 8-bit model in ONNX Runtime, without PyTorch.

octavo quantize CHECKPOINT --to native -o model     # of sentence-transformers, or an encoder
python embedding_service.py model     # without one, a sample: all-MiniLM-L6, quantized first
OCTAVO_MODEL=model OCTAVO_THREADS=1 uvicorn embedding_service:app --workers 2
curl localhost:8000/embed -H 'content-type: application/json' -d '{"texts": ["a sentence"]}'
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime as ort
import uvicorn
from fastapi import Body, FastAPI
from tokenizers import Tokenizer

import octavo.onnx

INPUTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
Texts = Annotated[list[str], Body(embed=True, min_length=1, max_length=256)]


@lru_cache
def model() -> tuple[Tokenizer, ort.InferenceSession]:
    """Tokenizer and session; any number of threads may use them."""
    folder = Path(os.environ["OCTAVO_MODEL"])
    at = [folder / n for n in ("1_Pooling/config.json", "sentence_bert_config.json", "config.json")]
    pooling, limits, config = (json.loads(n.read_text()) if n.is_file() else {} for n in at)
    if not pooling.get("pooling_mode_mean_tokens", True):
        raise ValueError(f"{folder} does not take the mean of its tokens, as `embed` does")
    tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text())
    tokenizer.enable_padding()
    most = limits.get("max_seq_length") or config.get("max_position_embeddings", 512)
    tokenizer.enable_truncation(most)
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OCTAVO_THREADS", "0"))
    place = folder / "onnx" if (folder / "onnx").is_dir() else folder
    return tokenizer, octavo.onnx.session(place / "model.onnx", sess_options=options)


@asynccontextmanager
async def opened(_: FastAPI):
    """Open the model before the first request: a wrong one is told at once."""
    model()
    yield


app = FastAPI(title="Embeddings", lifespan=opened)


@app.post("/embed")
def embed(texts: Texts) -> dict[str, list[list[float]]]:
    """Return a unit vector for each text, in order. FastAPI runs it in a thread of its own."""
    tokenizer, session = model()
    encoded, names = tokenizer.encode_batch(texts), [value.name for value in session.get_inputs()]
    feed = {name: np.array([getattr(text, INPUTS[name]) for text in encoded]) for name in names}
    (hidden,) = session.run(["last_hidden_state"], feed)
    total = (hidden * feed["attention_mask"][:, :, None]).sum(1)  # the mean's direction is the same
    return {"embeddings": (total / np.linalg.norm(total, axis=1, keepdims=True)).tolist()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serves embeddings on port 8000.")
    parser.add_argument("model", nargs="?", default="embedder", help="the quantized folder")
    path = os.environ["OCTAVO_MODEL"] = parser.parse_args().model
    if path == "embedder" and not Path(path).exists():
        from samples import sample

        quantize = ["octavo", "quantize", sample("embedder"), "--to", "native", "-o", path]
        subprocess.run([sys.executable, "-m", *quantize], check=True)
    uvicorn.run(app)
