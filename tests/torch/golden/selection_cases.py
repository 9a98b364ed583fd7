"""Models and forms of qconfig_spec, for recording torch.ao and for testing Octavo.

A case gets the qconfigs of whoever runs it, as `q.default`, `q.per_channel`, `q.float16` and
`q.float_qparams`, with `q.mapping()`, a copy of the default mapping, and returns (model, arguments
of quantize_dynamic).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

Case = Callable[[SimpleNamespace], tuple[nn.Module, dict[str, Any]]]


class Model(nn.Module):
    """Layers of each kind that torch.ao converts, nested and by themselves."""

    def __init__(self, embeddings: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.block = nn.ModuleDict(
            {"inner": nn.Sequential(nn.Linear(8, 6)), "head": nn.Linear(6, 4)}
        )
        self.lstm = nn.LSTM(8, 8, num_layers=2, bidirectional=True)
        self.gru = nn.GRU(8, 8)
        self.cells = nn.ModuleList([nn.LSTMCell(8, 8), nn.GRUCell(8, 8), nn.RNNCell(8, 8)])
        self.conv = nn.Conv1d(4, 4, 3)
        self.norm = nn.LayerNorm(8)
        if embeddings:
            self.table = nn.Embedding(10, 8)
            self.bag = nn.EmbeddingBag(10, 8)


def _all(spec: Any = None, **arguments: Any) -> tuple[nn.Module, dict[str, Any]]:
    return Model(), {"qconfig_spec": spec, **arguments}


def _some(spec: Any) -> tuple[nn.Module, dict[str, Any]]:
    """Without embeddings, which not every qconfig is for."""
    return Model(False), {"qconfig_spec": spec}


def _attributes(values: dict[str, Any], spec: Any) -> tuple[nn.Module, dict[str, Any]]:
    model = Model(False)
    for name, value in values.items():
        model.get_submodule(name).qconfig = value
    return model, {"qconfig_spec": spec}


def _of_class(value: Any, spec: Any) -> tuple[nn.Module, dict[str, Any]]:
    model = Model(False)
    kind = type("Chosen", (nn.Sequential,), {"qconfig": value})
    model.encoder = kind(*model.encoder)
    return model, {"qconfig_spec": spec}


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), self.first)


def _without(q: SimpleNamespace, kind: type) -> dict[type, type]:
    return {key: value for key, value in q.mapping().items() if key is not kind}


CASES: dict[str, Case] = {
    "nothing": lambda q: _all(),
    "dtype-float16": lambda q: _all(dtype=torch.float16),
    "dtype-quint8": lambda q: _all(dtype=torch.quint8),
    "set-type": lambda q: _all({nn.Linear}),
    "set-types": lambda q: _all({nn.LSTM, nn.GRU}),
    "set-type-float16": lambda q: _all({nn.Linear}, dtype=torch.float16),
    "set-cells": lambda q: _all({nn.LSTMCell, nn.RNNCell}),
    "set-embedding": lambda q: _all({nn.Embedding}, dtype=torch.quint8),
    "set-bag": lambda q: _all({nn.EmbeddingBag}, dtype=torch.quint8),
    "set-leaf-name": lambda q: _all({"encoder.2"}),
    "set-parent-name": lambda q: _all({"encoder"}),
    "set-deep-parent": lambda q: _all({"block"}),
    "set-type-and-name": lambda q: _all({nn.GRU, "block.head"}),
    "set-root": lambda q: _some({""}),
    "dict-type": lambda q: _all({nn.Linear: q.per_channel}),
    "dict-name": lambda q: _all({"encoder.0": q.default}),
    "dict-parent": lambda q: _all({"block": q.per_channel}),
    "dict-root": lambda q: _some({"": q.default}),
    "dict-root-but": lambda q: _some({"": q.default, "encoder.0": None}),
    "dict-root-but-parent": lambda q: _some({"": q.default, "block": None}),
    "dict-root-but-type": lambda q: _some({"": q.default, nn.Linear: None}),
    "name-over-type": lambda q: _all(
        {nn.Linear: q.per_channel, "encoder.0": q.default, "block.head": None}
    ),
    "type-over-parent": lambda q: _all({"encoder": q.default, nn.Linear: q.per_channel}),
    "name-over-switched-off-type": lambda q: _all({nn.Linear: None, "encoder.2": q.default}),
    "two-types": lambda q: _all({nn.LSTM: q.default, nn.Linear: q.float16}),
    "dict-embedding": lambda q: _all({nn.Embedding: q.float_qparams}),
    "dict-embedding-name": lambda q: _all({"bag": q.float_qparams}),
    "dict-ignores-dtype": lambda q: _all({nn.Linear: q.default}, dtype=torch.float16),
    "attribute-over-type": lambda q: _attributes(
        {"encoder.0": q.per_channel}, {nn.Linear: q.default}
    ),
    "attribute-switches-off": lambda q: _attributes({"block.head": None}, {nn.Linear}),
    "attribute-over-name": lambda q: _attributes(
        {"encoder.0": None}, {"encoder.0": q.default, "encoder.2": q.default}
    ),
    "attribute-of-parent": lambda q: _attributes({"encoder": q.default}, {nn.GRU}),
    "type-over-attribute-of-parent": lambda q: _attributes(
        {"encoder": None}, {nn.Linear: q.default}
    ),
    "attribute-of-class": lambda q: _of_class(q.per_channel, {nn.GRU}),
    "empty-dict-with-attribute": lambda q: _attributes({"encoder": q.default}, {}),
    "empty-set-with-attribute": lambda q: _attributes({"encoder.2": q.per_channel}, set()),
    "dict-container-type": lambda q: _some({nn.Sequential: q.per_channel}),
    "container-type-but-inner-name": lambda q: _some(
        {nn.ModuleDict: q.default, "block.inner": None}
    ),
    "shared-type": lambda q: (Shared(), {"qconfig_spec": {nn.Linear: q.default}}),
    "shared-first-name": lambda q: (Shared(), {"qconfig_spec": {"first": q.default}}),
    "mapping-without-a-type": lambda q: _all(
        {nn.Linear: q.default, nn.GRU: q.default}, mapping=_without(q, nn.GRU)
    ),
    "mapping-of-one-type": lambda q: _all(
        {"": q.default}, mapping={nn.Linear: q.mapping()[nn.Linear]}
    ),
    "attribute-of-class-over-name": lambda q: _of_class(
        None, {"encoder": q.default, "block": q.default}
    ),
}
