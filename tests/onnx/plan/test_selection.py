"""Which nodes a name in nodes_to_quantize and nodes_to_exclude stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from tests.graphs import BOOL, FLOAT, build, convert, node, weight


def two_of_one_name() -> Any:
    return build(
        [
            node("MatMul", ["x", "w"], ["a"], name="same"),
            node("MatMul", ["a", "w"], ["b"], name="same"),
            node("MatMul", ["b", "w"], ["y"], name="other"),
        ],
        {"x": (FLOAT, (2, 64))},
        ["y"],
        {"w": weight(64, 64)},
    )


def branches_of_one_name() -> Any:
    def body(out: str) -> Any:
        return helper.make_graph(
            [node("MatMul", ["x", "w"], [out], name="same")],
            out,
            [],
            [helper.make_tensor_value_info(out, FLOAT, None)],
        )

    choose = node("If", ["c"], ["h"], then_branch=body("then"), else_branch=body("else"))
    return build(
        [choose, node("MatMul", ["h", "w"], ["y"], name="other")],
        {"x": (FLOAT, (2, 64)), "c": (BOOL, ())},
        ["y"],
        {"w": weight(64, 64)},
    )


models = pytest.mark.parametrize("model", [two_of_one_name, branches_of_one_name])


@models
@pytest.mark.parametrize("pattern", ["same", "sam*"])
def test_a_name_stands_for_every_node_that_has_it(tmp_path: Path, model: Any, pattern: str) -> None:
    excluded = convert(model(), tmp_path, nodes_to_exclude=[pattern])
    assert [o.quantized for o in excluded.report.layers] == [False, False, True]
    assert [o.reason for o in excluded.report.left_float] == ["excluded by name"] * 2
    only = convert(model(), tmp_path, nodes_to_quantize=[pattern])
    assert [o.quantized for o in only.report.layers] == [True, True, False]


@models
def test_a_layer_has_a_name_of_its_own_too(tmp_path: Path, model: Any) -> None:
    names = [o.layer.name for o in convert(model(), tmp_path).report.layers]
    assert len(set(names)) == 3
    done = convert(model(), tmp_path, nodes_to_exclude=[names[1]])
    assert [o.quantized for o in done.report.layers] == [True, False, True]
