"""The float models whose quantized files are kept, one set for each version that was released."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper
from torch import nn

TOKENS, WIDTH, UNITS = 24, 64, 32


def ids() -> np.ndarray:
    return np.arange(10, dtype=np.int64).reshape(2, 5) * 2


def _nodes() -> list[onnx.NodeProto]:
    return [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="embedding"),
        helper.make_node("MatMul", ["rows", "w"], ["product"], name="dense"),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["dense"]),
        helper.make_node("Transpose", ["dense"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "W", "R"], ["all"], name="lstm", hidden_size=UNITS),
        helper.make_node("Squeeze", ["all", "axis"], ["states"]),
        helper.make_node("MatMul", ["states", "out"], ["y"], name="classifier"),
    ]


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
    arrays["axis"] = np.array([1], np.int64)
    made = helper.make_graph(
        _nodes(),
        "small",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, "batch", WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


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
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=WIDTH,
        max_position_embeddings=16,
    )
    transformers.BertModel(config).save_pretrained(folder)
