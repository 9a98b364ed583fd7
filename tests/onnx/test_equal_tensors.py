"""Tensors that are equal, which PyTorch's exporter without dynamo writes once and as Identity."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from transformers import BertConfig, BertModel

from octavo.core.metrics import relative_error
from octavo.onnx import session
from tests.graphs import INT8, assert_close, convert, run, text, values, weight

LAYERS = 2
TARGETS = pytest.mark.parametrize("target", ["native", "portable"])


class Hidden(torch.nn.Module):
    """A BERT that gives its last hidden states."""

    def __init__(self, model: BertModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden


def bert(path: Path, *, equal: bool) -> onnx.ModelProto:
    """Two layers as transformers begins them: biases are 0, norms 1. Or all of them differ."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": LAYERS}
    sizes |= {"num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 32}
    model = BertModel(BertConfig(**sizes, attn_implementation="eager")).eval()
    if not equal:
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, float("Norm.weight" in name), 0.2)
    ids = torch.randint(0, 100, (2, 7))
    axes = {name: {0: "batch", 1: "sequence"} for name in ("ids", "mask", "y")}
    names: dict[str, Any] = {"input_names": ["ids", "mask"], "output_names": ["y"]}
    names |= {"dynamic_axes": axes, "opset_version": 17, "dynamo": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Hidden(model), (ids, torch.ones_like(ids)), path, **names)
    return onnx.load(path)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, onnx.ModelProto]:
    """By whether their tensors are equal."""
    folder = tmp_path_factory.mktemp("exports")
    return {equal: bert(folder / f"{equal}.onnx", equal=equal) for equal in (True, False)}


@pytest.mark.vnni("portable")
@TARGETS
def test_groups_and_attentions_of_a_real_export(
    exports: dict[bool, onnx.ModelProto], tmp_path: Path, target: str
) -> None:
    assert sum(n.op_type == "Identity" for n in exports[True].graph.node) > 10
    done = {flag: convert(m, tmp_path, target=target) for flag, m in exports.items()}
    assert Counter(done[True].ops) == Counter(done[False].ops)
    names = [n.name for n in done[True].proto.graph.node]
    assert sum("query" in n and "key" in n and "value" in n for n in names) >= LAYERS
    if target == "native":
        assert Counter(done[True].ops)["Attention"] == LAYERS
    ids = np.random.default_rng(0).integers(0, 100, (3, 9))
    x = {"ids": ids, "mask": np.ones_like(ids)}
    found = session(done[True].path).run(None, x)[0]
    assert relative_error(found, run(exports[True], x)[0]) < INT8


@TARGETS
def test_readers_read_the_tensor_itself(tmp_path: Path, target: str) -> None:
    """Through several copies, in branches too; a copy that is an output stays."""
    body = """c1 = Identity (c) c2 = Identity (c1) w1 = Identity (w) m = MatMul (x, w1)
        h = Add (m, c2) y = If (flag) <
        then_branch = then () => (float[] t) { c4 = Identity (c2) t = Add (h, c4) },
        else_branch = other () => (float[] e) { e = Identity (c) }>"""
    stored = {"w": weight(16, 16, spread=False), "c": values(16)}
    outputs = "float[] h, float[] y, float[] c1"
    given = text(body, "float[n, 16] x, bool flag", outputs, stored)
    product = "Linear" if target == "native" else "MatMulIntegerToFloat"
    done = convert(given, tmp_path, target=target)
    kept = [op for op in done.ops if op in ("Identity", product, "If")]
    assert kept == ["Identity", product, "If"]
    assert [o.name for o in done.proto.graph.output] == ["h", "y", "c1"]
    for flag in (True, False):
        x = {"x": values(3, 16, seed=4), "flag": np.array(flag)}
        for y, exact in zip(session(done.path).run(None, x), run(given, x), strict=True):
            assert_close(y, exact, INT8)


@pytest.mark.vnni("portable")
@TARGETS
def test_tied_weights_are_stored_once(tmp_path: Path, target: str) -> None:
    w = weight(16, 16, spread=False)
    body = "w1 = Identity (w) h = MatMul (x, w) r = Relu (h) y = MatMul (r, w1)"
    given = text(body, "float[n, 16] x", weights={"w": w})
    done = convert(given, tmp_path, target=target)
    held = [i for i in done.proto.graph.initializer if np.prod(i.dims) >= w.size]
    assert len(held) == 1
    x = {"x": values(3, 16, seed=4)}
    assert_close(session(done.path).run(None, x)[0], run(given, x)[0], INT8)
