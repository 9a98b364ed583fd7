"""`Erfc`, which ONNX has not, in files that were converted elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.onnx import quantize_dynamic, session
from tests.graphs import normal, text

WIDTH = 64
HALF = 1 / math.sqrt(2)


# `h/2 erfc(-h sqrt(1/2))` with the sign before the product, behind it, or in the factor.
GELU = "e = Erfc (a) g = Mul (h, half) act = Mul (g, e)"
FORMS = {
    "before": f"n = Neg (h) a = Mul (n, root) {GELU}",
    "before-right": f"n = Neg (h) a = Mul (root, n) {GELU}",
    "behind": f"n = Mul (h, root) a = Neg (n) {GELU}",
    "factor": f"a = Mul (h, negative_root) {GELU}",
    "plain": "[complement] act = Erfc (h)",
}


def model(form: str) -> onnx.ModelProto:
    body = f"[first] h = MatMul (x, w0) {FORMS[form]} [second] y = MatMul (act, w1)"
    scalars = {"root": HALF, "negative_root": -HALF, "half": 0.5}
    weights = {name: np.array(value, np.float32) for name, value in scalars.items()}
    weights |= {"w0": normal(WIDTH, WIDTH) / 8, "w1": normal(WIDTH, WIDTH, seed=1) / 8}
    return text(body, f"float[n, {WIDTH}] x", f"float[n, {WIDTH}] y", weights)


def expected(x: np.ndarray, *, gelu: bool) -> Any:
    h = (x @ (normal(WIDTH, WIDTH) / 8)).astype(np.float64)
    erfc = np.vectorize(math.erfc)
    return (h / 2 * erfc(-h * HALF) if gelu else erfc(h)) @ (normal(WIDTH, WIDTH, seed=1) / 8)


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_written_with_erf(form: str, target: str, tmp_path: Path) -> None:
    gelu = form != "plain"
    report = quantize_dynamic(model(form), tmp_path / "out.onnx", target=target)
    assert any("node Erfc was written as 1 - Erf" in note for note in report.notes)
    assert report.verification.status == "unchecked"  # nothing can run the float model
    x = normal(9, WIDTH, seed=2)
    (y,) = session(tmp_path / "out.onnx").run(None, {"x": x})
    wanted = expected(x, gelu=gelu)
    assert np.abs(y - wanted).max() < 0.03 * np.abs(wanted).max()
    ops = [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]
    assert "Erfc" not in ops
    if gelu and target == "native":  # it is recognized as an activation of the layer
        assert ops == ["Linear", "Linear"]


def test_one_in_a_subgraph_and_in_other_types(tmp_path: Path) -> None:
    """The constant has the type of what it is subtracted from, said by an input or a Cast's."""
    body = """o = If (yes) <then_branch = t () => (float16[] e) { e = Erfc (d) },
                    else_branch = f () => (float16[] g) { g = Erfc (d) }>
        c = Cast <to = 1> (o)
        [layer] y = MatMul (c, w)"""
    inputs = f"float16[n, {WIDTH}] d, bool yes"
    proto = text(body, inputs, f"float[n, {WIDTH}] y", {"w": normal(WIDTH, WIDTH)})
    report = quantize_dynamic(proto, tmp_path / "out.onnx")
    assert any("2 nodes Erfc were written" in note for note in report.notes)
    x = normal(3, WIDTH).astype(np.float16)
    feed = {"d": x, "yes": np.array(True)}
    (y,) = session(tmp_path / "out.onnx").run(None, feed)
    wanted = np.vectorize(math.erfc)(x.astype(np.float64)) @ normal(WIDTH, WIDTH)
    assert np.abs(y - wanted).max() < 0.03 * np.abs(wanted).max()
