"""Which outputs have a class with the largest score, and which are vectors that have none."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from octavo.core.masked_rows import Padding
from octavo.onnx.comparing.compare import holds_scores
from octavo.report.html.verdict import least_agreement
from octavo.results.accumulate import Output
from octavo.results.comparison import Comparison, LayerDifference
from tests.graphs import Array

LOGITS = np.array([[0.5, -2.0, 3.0], [1.0, 4.0, -1.0]], np.float32)
LAYER = LayerDifference("/fc", "linear", "MatMul", (), None, None)


def found(name: str, reference: Array, scores: bool = True) -> Comparison:
    output = Output(name, scores)
    output.add(reference, reference + np.float32(0.01), Padding({}))
    return Comparison("m", "q", "portable", "made up", 1, (output.found(),), (LAYER,), 0)


@pytest.mark.parametrize(
    ("name", "array", "scores"),
    [
        ("logits", LOGITS, True),
        ("output", LOGITS, True),
        ("probabilities", np.abs(LOGITS) / np.abs(LOGITS).sum(1, keepdims=True), True),
        ("last_hidden_state", LOGITS, False),
        ("sentence_embedding", LOGITS, False),
        ("output", LOGITS / np.linalg.norm(LOGITS, axis=1, keepdims=True), False),
    ],
)
def test_a_vector_has_no_headline_of_top_1(name: str, array: Array, scores: bool) -> None:
    assert least_agreement(found(name, array)) == (1.0 if scores else None)
    assert least_agreement(found(name, array, scores=False)) is None
    assert ("top-1" in found(name, array).text()) is scores


def test_unit_vectors_are_such_in_every_run() -> None:
    output = Output("output")
    for array in (LOGITS, LOGITS / np.linalg.norm(LOGITS, axis=1, keepdims=True)):
        output.add(array, array + np.float32(0.01), Padding({}))
    assert output.found().scores


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("y = Gemm(x, x)", True),
        ("h = Gemm(x, x) y = Softmax(h)", True),
        ("h = GlobalAveragePool(x) y = Flatten(h)", True),
        ("y = LayerNormalization(x, s)", False),
        ("h = LayerNormalization(x, s) y = Cast<to = 10>(h)", False),
        ("h = Sqrt(s) d = Div(x, h) m = Mul(d, s) y = Add(m, b)", False),
        ("m = Mul(x, s) y = Add(m, b)", True),
        ("h = Gemm(x, x) y = Add(h, b)", True),
    ],
)
def test_the_graph_tells_what_an_output_is(text: str, scores: bool) -> None:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 8] x, float[8] s, float[8] b) => (float[a, c] y) {{ {text} }}"""
    )
    assert holds_scores(model.graph.outputs[0]) is scores
