"""Which nodes a name in nodes_to_quantize and nodes_to_exclude stands for."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.graphs import convert, text, weight

IN_A_ROW = "[same] a = MatMul (x, w) [same] h = MatMul (a, w)"
IN_BRANCHES = """h = If (c) <
    then_branch = t () => (float[] o) { [same] o = MatMul (x, w) },
    else_branch = e () => (float[] p) { [same] p = MatMul (x, w) }>"""


def model_of(body: str) -> onnx.ModelProto:
    inputs = "float[2, 64] x" + (", bool c" if body is IN_BRANCHES else "")
    return text(f"{body} [other] y = MatMul (h, w)", inputs, weights={"w": weight(64, 64)})


models = pytest.mark.parametrize("model", [IN_A_ROW, IN_BRANCHES], ids=["a row", "branches"])


@models
@pytest.mark.parametrize("pattern", ["same", "sam*"])
def test_a_name_stands_for_every_node_that_has_it(tmp_path: Path, model: str, pattern: str) -> None:
    excluded = convert(model_of(model), tmp_path, nodes_to_exclude=[pattern])
    assert [o.quantized for o in excluded.report.layers] == [False, False, True]
    assert [o.reason for o in excluded.report.left_float] == ["excluded by name"] * 2
    only = convert(model_of(model), tmp_path, nodes_to_quantize=[pattern])
    assert [o.quantized for o in only.report.layers] == [True, True, False]


@models
def test_a_layer_has_a_name_of_its_own_too(tmp_path: Path, model: str) -> None:
    names = [o.layer.name for o in convert(model_of(model), tmp_path).report.layers]
    assert len(set(names)) == 3
    done = convert(model_of(model), tmp_path, nodes_to_exclude=[names[1]])
    assert [o.quantized for o in done.report.layers] == [True, False, True]
