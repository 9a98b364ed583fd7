"""Attention as PyTorch exports it: every one is one node, whatever exporter and implementation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.onnx import quantize_dynamic, session
from tests.graphs import opened
from tests.onnx.rules import attention_exports as exports

CLOSE = 0.03
"""Of two layers in 8 bits, by the norm of the outputs."""
CASES = [
    (exports.gpt2, "sdpa", 2),
    (exports.gpt2, "eager", 2),
    (exports.llama, "sdpa", 2),
    (exports.llama, "eager", 2),
    (exports.gemma2, "eager", 2),
    (exports.t5, "sdpa", 2),
    (exports.mpnet, "eager", 2),
    (exports.deberta, "eager", 2),
    (exports.vit, "sdpa", 2),
    (exports.swin, "sdpa", 2),
    (exports.whisper_encoder, "sdpa", 2),
    (exports.whisper_decoder, "sdpa", 4),
    (exports.bart, "sdpa", 6),
    (exports.bart, "eager", 6),
]


def check(
    make: exports.Make, attention: str, count: int, dynamo: bool, opset: int, folder: Path
) -> onnx.ModelProto:
    target = folder / "native.onnx"
    source, feeds = exports.export(make, attention, dynamo, opset)
    report = quantize_dynamic(source, target, target="native", verify=False)
    done = onnx.load(target)
    ours = Counter(n.op_type for n in done.graph.node if n.domain == "ai.octavo")
    assert ours["Attention"] == count, report.notes
    assert "Softmax" not in [n.op_type for n in done.graph.node]
    runner = opened(source)
    feeds = {i.name: feeds[i.name] for i in runner.get_inputs()}
    exact = runner.run(None, feeds)[0]
    found = session(target).run(None, feeds)[0]
    assert found.shape == exact.shape
    assert np.linalg.norm(found - exact) < CLOSE * np.linalg.norm(exact)
    return done


@pytest.mark.sweep(6)  # torchscript alone: exports of dynamo take long
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize(
    "make,attention,count", CASES, ids=[f"{make.__name__}-{a}" for make, a, _ in CASES]
)
def test_every_attention_is_one_node(
    tmp_path: Path, make: exports.Make, attention: str, count: int, dynamo: bool
) -> None:
    if make is exports.whisper_decoder and not dynamo:
        pytest.skip("PyTorch's exporter without dynamo has no aten::diff")
    check(make, attention, count, dynamo, 18 if dynamo else 17, tmp_path)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("opset,dynamo", [(14, False), (20, False), (20, True), (23, True)])
def test_opsets(tmp_path: Path, opset: int, dynamo: bool) -> None:
    check(exports.bert, "sdpa", 2, dynamo, opset, tmp_path)


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
def test_both_implementations_lie_as_rows(tmp_path: Path, dynamo: bool) -> None:
    """Nothing is turned or computed of sizes in a layer of an encoder."""
    for attention in ("sdpa", "eager"):
        folder = tmp_path / attention
        folder.mkdir()
        done = check(exports.bert, attention, 2, dynamo, 18 if dynamo else 17, folder)
        nodes = [n for n in done.graph.node if n.op_type == "Attention"]
        assert not [a.name for n in nodes for a in n.attribute if a.name == "layouts"]
        behind = done.graph.node[list(done.graph.node).index(nodes[0]) :]
        assert not {"Transpose", "Reshape", "Shape"} & {n.op_type for n in behind}
