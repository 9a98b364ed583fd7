"""What layers declare of themselves, and that everything which lists layers goes by that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from octavo.recipe import Kind
from octavo.torch import default_mapping, quantize_dynamic, save
from octavo.torch.exports.operators import READERS
from octavo.torch.files.manifest import make_layer
from octavo.torch.layers.registry import Declaration, covering, declarations, layer_classes
from octavo.torch.replace.inventory import inventory
from tests import fresh

FLOAT: dict[type, Any] = {
    nn.Linear: lambda: nn.Linear(6, 4),
    nn.Bilinear: lambda: nn.Bilinear(6, 6, 4),
    nn.LSTM: lambda: nn.LSTM(6, 4),
    nn.GRU: lambda: nn.GRU(6, 4, batch_first=True),
    nn.RNN: lambda: nn.RNN(6, 4),
    nn.LSTMCell: lambda: nn.LSTMCell(6, 4),
    nn.GRUCell: lambda: nn.GRUCell(6, 4),
    nn.RNNCell: lambda: nn.RNNCell(6, 4),
    nn.MultiheadAttention: lambda: nn.MultiheadAttention(6, 2),
    nn.Embedding: lambda: nn.Embedding(6, 4),
    nn.EmbeddingBag: lambda: nn.EmbeddingBag(6, 4),
    nn.Conv1d: lambda: nn.Conv1d(2, 4, 3),
    nn.Conv2d: lambda: nn.Conv2d(2, 4, 3),
}
OF_TORCH = [d for d in declarations() if any(t in FLOAT for t in d.types())]
of_torch = pytest.mark.parametrize("declared", OF_TORCH, ids=lambda d: d.layer.__name__)

_TABLE = {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": 1, "storage": "uint8"} | {
    "zero_points": "float32",
    "dtype": "float16",
}
_STACK = {"input_size": 4, "hidden_size": 3, "num_layers": 2, "bias": True, "batch_first": True} | {
    "dropout": 0.1,
    "bidirectional": True,
    "storage": ["int8", "float16"],
}
_LINEAR = {"in_features": 4, "out_features": 3, "has_bias": True}
_INT8 = {**_LINEAR, "affine": True, "group": 128}
_CELL = {"input_size": 4, "hidden_size": 3, "bias": False, "storage": "bfloat16"}
_CONV = {"in_channels": 4, "out_channels": 6, "groups": 2, "has_bias": False} | {
    "padding_mode": "reflect"
}
WRITTEN: dict[str, dict[str, Any]] = {
    "QuantizedLinear": _INT8,
    "QuantizedTransformersConv1D": _INT8,
    "QuantizedHalfLinear": {**_LINEAR, "dtype": "bfloat16"},
    "QuantizedHalfTransformersConv1D": {**_LINEAR, "dtype": "float16"},
    "QuantizedLSTM": {**_STACK, "proj_size": 2},
    "QuantizedGRU": _STACK,
    "QuantizedRNN": {**_STACK, "nonlinearity": "relu"},
    "QuantizedLSTMCell": _CELL,
    "QuantizedGRUCell": _CELL,
    "QuantizedRNNCell": {**_CELL, "nonlinearity": "relu"},
    "QuantizedEmbedding": _TABLE,
    "QuantizedEmbeddingBag": {**_TABLE, "mode": "sum", "include_last_offset": True},
    "QuantizedConv1d": {
        **_CONV,
        **{"kernel_size": [3], "stride": [2], "padding": [1], "dilation": [1]},
    },
    "QuantizedConv2d": {
        **_CONV,
        **{"kernel_size": [3, 2], "stride": [1, 1], "padding": "same", "dilation": [1, 2]},
    },
    "QuantizedMultiheadAttention": {
        **{"embed_dim": 6, "num_heads": 2, "dropout": 0.1, "has_bias": True, "add_bias_kv": True},
        **{"add_zero_attn": True, "kdim": 5, "vdim": 4, "batch_first": True},
        "projections": [
            {"affine": False, "group": 0},
            {"affine": True, "group": 0},
            {"dtype": "float16"},
        ],
    },
    "QuantizedExperts": {
        **{"num_experts": 3, "in_features": 6, "inner_features": 4, "out_features": 6},
        **{"has_gate": True, "has_bias": True, "form": "clamped", "activation": "silu"},
        **{"limit": 7.0, "alpha": 1.5},
    },
}
"""What files name: classes and arguments of before each layer declared itself."""


@pytest.mark.parametrize("name", WRITTEN)
def test_files_of_before_can_be_read(name: str, tmp_path: Path) -> None:
    config = json.loads(json.dumps(WRITTEN[name]))
    made = make_layer(tmp_path, "x", {"class": name, "config": config}, layer_classes())
    assert type(made).__name__ == name
    assert json.loads(json.dumps(made.config())) == config


def test_every_layer_of_torch_is_tried_here() -> None:
    mapped = {kind for kind in default_mapping() if kind.__module__.startswith("torch.nn")}
    assert {kind for d in OF_TORCH for kind in d.types()} == mapped
    assert {d.types()[0] for d in OF_TORCH} == set(FLOAT)


@of_torch
def test_a_float_layer_is_found_and_quantized(declared: Declaration) -> None:
    kind = declared.types()[0]
    layer = FLOAT[kind]()
    assert covering(layer) is declared
    (part, *_) = inventory(layer)
    assert part.layer.kind is declared.kind
    assert type(quantize_dynamic(nn.Sequential(layer), {kind})[0]) is declared.layer


@of_torch
def test_inputs_are_those_that_the_float_layer_takes(declared: Declaration) -> None:
    layer = FLOAT[declared.types()[0]]()
    count = {nn.Bilinear: 2, nn.MultiheadAttention: 3}.get(type(layer), 1)
    dtype = torch.long if declared.kind is Kind.EMBEDDING else torch.float32
    for is_deep in (False, True):
        for shape in declared.inputs(layer, is_deep):
            x = torch.zeros(shape, dtype=dtype)
            one_bag = isinstance(layer, nn.EmbeddingBag) and x.dim() == 1
            layer(*[x] * count, *[torch.tensor([0])] * one_bag)


@pytest.mark.parametrize("declared", declarations(), ids=lambda d: d.layer.__name__)
def test_operators_that_it_names_are_exported(declared: Declaration) -> None:
    for name in declared.onnx:
        assert hasattr(torch.ops.octavo, name)
        assert name in READERS


def test_serving_loads_nothing_of_conversion(tmp_path: Path) -> None:
    save(quantize_dynamic(nn.Sequential(nn.Linear(8, 8))), tmp_path / "m")
    code = """
    import sys
    for name in [name for name in sys.modules if name.startswith(("onnx", "safetensors"))]:
        del sys.modules[name]
    from torch import nn
    from octavo.torch import load
    load(sys.argv[1], lambda: nn.Sequential(nn.Linear(8, 8)))
    print(*sys.modules)
    """
    found = set(fresh.python(code, tmp_path / "m").stdout.split())
    home = "octavo.torch."
    assert {f"{home}files.load", f"{home}layers.bilinear"} <= found
    unwanted = ("convert", "quantize", "plan", "inventory", "qconfig", "export", "tuning")
    assert not {f"{home}{name}" for name in unwanted} & found
    assert not {m for m in found if m.startswith(("onnx", "octavo.graph", "octavo.onnx"))}
    assert not {"ruamel", "rich", "typer", "pydantic"} & found
