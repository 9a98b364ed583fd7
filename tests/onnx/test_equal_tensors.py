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
from onnx import helper
from transformers import BertConfig, BertModel

from octavo.core.metrics import relative_error
from octavo.onnx import session
from tests.graphs import (
    BOOL,
    FLOAT,
    INT8,
    assert_close,
    build,
    convert,
    node,
    run,
    values,
    weight,
)

LAYERS = 2


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
    config = BertConfig(
        vocab_size=100,
        hidden_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        attn_implementation="eager",
    )
    model = BertModel(config).eval()
    if not equal:
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, float("Norm.weight" in name), 0.2)
    ids = torch.randint(0, 100, (2, 7))
    axes = {0: "batch", 1: "sequence"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Hidden(model),
            (ids, torch.ones_like(ids)),
            path,
            dynamo=False,
            input_names=["ids", "mask"],
            output_names=["y"],
            dynamic_axes=dict.fromkeys(("ids", "mask", "y"), axes),
            opset_version=17,
        )
    return onnx.load(path)


@pytest.mark.parametrize("target", ["native", "portable"])
def test_groups_and_attentions_of_a_real_export(tmp_path: Path, target: str) -> None:
    given = {flag: bert(tmp_path / f"{flag}.onnx", equal=flag) for flag in (True, False)}
    assert sum(n.op_type == "Identity" for n in given[True].graph.node) > 10
    (tmp_path / "out").mkdir()
    done = {flag: convert(m, tmp_path / "out", target=target) for flag, m in given.items()}
    assert Counter(done[True].ops) == Counter(done[False].ops)
    names = [n.name for n in done[True].proto.graph.node]
    assert sum("query" in n and "key" in n and "value" in n for n in names) >= LAYERS
    if target == "native":
        assert Counter(done[True].ops)["Attention"] == LAYERS
    ids = np.random.default_rng(0).integers(0, 100, (3, 9))
    x = {"ids": ids, "mask": np.ones_like(ids)}
    found = session(done[True].path).run(None, x)[0]
    assert relative_error(found, run(given[True], x)[0]) < INT8


def test_readers_read_the_tensor_itself(tmp_path: Path) -> None:
    """Through several copies, in branches too; a copy that is an output stays."""
    then = helper.make_graph(
        [node("Identity", ["c2"], ["c4"]), node("Add", ["h", "c4"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", FLOAT, None)],
    )
    other = helper.make_graph(
        [node("Identity", ["c"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", FLOAT, None)],
    )
    nodes = [
        node("Identity", ["c"], ["c1"]),
        node("Identity", ["c1"], ["c2"]),
        node("Identity", ["w"], ["w1"]),
        node("MatMul", ["x", "w1"], ["m"]),
        node("Add", ["m", "c2"], ["h"]),
        node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    stored = {"w": weight(16, 16, spread=False), "c": values(16)}
    inputs: dict[str, Any] = {"x": (FLOAT, ["n", 16]), "flag": (BOOL, [])}
    given = build(nodes, inputs, ["h", "y", "c1"], stored)
    for target, ops in (
        ("native", ["Identity", "Linear", "If"]),
        ("portable", ["Identity", "MatMulIntegerToFloat", "If"]),
    ):
        done = convert(given, tmp_path, target=target)
        assert [op for op in done.ops if op in ops] == ops
        assert [o.name for o in done.proto.graph.output] == ["h", "y", "c1"]
        for flag in (True, False):
            x = {"x": values(3, 16, seed=4), "flag": np.array(flag)}
            for y, exact in zip(session(done.path).run(None, x), run(given, x), strict=True):
                assert_close(y, exact, INT8)


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    w = weight(16, 16, spread=False)
    nodes = [
        node("Identity", ["w"], ["w1"]),
        node("MatMul", ["x", "w"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "w1"], ["y"]),
    ]
    given = build(nodes, {"x": (FLOAT, ["n", 16])}, ["y"], {"w": w})
    for target in ("native", "portable"):
        done = convert(given, tmp_path, target=target)
        held = [i for i in done.proto.graph.initializer if np.prod(i.dims) >= w.size]
        assert len(held) == 1
        x = {"x": values(3, 16, seed=4)}
        assert_close(session(done.path).run(None, x)[0], run(given, x)[0], INT8)
