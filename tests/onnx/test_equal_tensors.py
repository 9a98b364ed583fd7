"""Tensors that are equal, which PyTorch's exporter without dynamo writes once and as Identity."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from octavo.core.metrics import relative_error
from octavo.onnx import session
from tests import graphs
from tests.graphs import INT8, assert_close, convert, node, run, text, values, weight

TARGETS = pytest.mark.parametrize("target", ["native", "portable"])


@TARGETS
def test_layers_with_copies_of_one_bias_are_grouped_as_others(tmp_path: Path, target: str) -> None:
    """As of a BERT that begins its training: all biases are 0, and stored once."""
    model, feed = graphs.attention()
    plain = convert(model, tmp_path, target=target)
    for name in ("k_bias", "v_bias"):
        (stored,) = (i for i in model.graph.initializer if i.name == name)
        model.graph.initializer.remove(stored)
        model.graph.node.insert(0, node("Identity", ["q_bias"], [name]))
    done = convert(model, tmp_path, target=target)
    assert Counter(done.ops) == Counter(plain.ops)
    found = session(done.path).run(None, feed)[0]
    assert relative_error(found, run(model, feed)[0]) < INT8


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
