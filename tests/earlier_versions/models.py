"""The float models whose quantized files are kept, one set for each version that was released."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from tests.graphs import text
from tests.models import transformer

TOKENS, WIDTH, UNITS = 24, 64, 32


def ids() -> np.ndarray:
    return np.arange(10, dtype=np.int64).reshape(2, 5) * 2


def graph() -> onnx.ModelProto:
    """ids [batch, 5] -> embedding -> dense -> LSTM -> classifier -> y [5, batch, WIDTH]."""
    random = np.random.default_rng(0)
    shapes = {
        "table": (TOKENS, WIDTH),
        "w": (WIDTH, WIDTH),
        "b": (WIDTH,),
        "W": (1, 4 * UNITS, WIDTH),
        "R": (1, 4 * UNITS, UNITS),
        "out": (UNITS, WIDTH),
    }
    arrays = {k: (random.normal(size=s) / 8).astype(np.float32) for k, s in shapes.items()}
    body = f"""
        [embedding] rows = Gather (table, ids) [dense] product = MatMul (rows, w)
        sum = Add (product, b) dense = Relu (sum) steps = Transpose <perm = [1, 0, 2]> (dense)
        [lstm] all = LSTM <hidden_size = {UNITS}> (steps, W, R)
        states = Squeeze (all, axis) [classifier] y = MatMul (states, out)"""
    arrays["axis"] = np.array([1], np.int64)
    return text(body, "int64[batch, 5] ids", f"float[5, batch, {WIDTH}] y", arrays)


class Module(nn.Module):
    """The same layers in PyTorch, and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.dense = nn.Linear(WIDTH, WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.lstm = nn.LSTM(WIDTH, UNITS, batch_first=True)
        self.classifier = nn.Linear(UNITS, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.dense(self.embedding(ids)).relu()
        states, _ = self.lstm(self.conv(rows.mT).mT)
        return self.classifier(states)


def module() -> nn.Module:
    torch.manual_seed(0)
    return Module().eval()


def write_checkpoint(folder: Path) -> None:
    """A BERT of one layer, as transformers saves it."""
    sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "max_position_embeddings": 16}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2}
    transformer(vocab_size=TOKENS, **sizes, **layers).save_pretrained(folder)
