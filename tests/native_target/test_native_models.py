"""`quantize_dynamic(target="native")` over models of many kinds: operators, numbers, reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from octavo.core.kernels import checksum, unpack
from octavo.files.metadata import metadata
from tests import graphs
from tests.graphs import (
    BOOL,
    FLOAT,
    FLOAT16,
    INT64,
    Array,
    Converted,
    build,
    error,
    integer_tensors,
    mlp,
    node,
    values,
    weight,
)
from tests.graphs import run as run_float
from tests.native_target.forms import (
    agrees,
    attributes,
    branch,
    constant,
    convert,
    nodes_of,
    run,
    spelt,
)

K, N = 48, 40


def every_graph(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    inner = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return [graph, *(g for i in inner for g in every_graph(i))]


def linears(converted: Converted) -> list[onnx.NodeProto]:
    graphs = every_graph(converted.proto.graph)
    return [n for g in graphs for n in g.node if n.op_type == "Linear" and n.domain == "ai.octavo"]


def integers(converted: Converted) -> Array:
    """The int8 [N, K] of the Linear node, unpacked, whose checksum is right."""
    (linear,) = linears(converted)
    said, stored = attributes(linear), constant(converted, linear.input[1])
    floats = [i for i in converted.proto.graph.initializer if i.data_type == FLOAT]
    assert sum(int(np.prod(i.dims)) for i in floats) == 2 * said["N"]  # scales and bias: no copy
    packed = np.ascontiguousarray(stored).view(np.uint8).reshape(-1)
    assert checksum(packed) == said["checksum"]
    q = unpack(packed, said["N"], said["K"])
    assert np.count_nonzero(q) == np.count_nonzero(stored)  # all else is padding
    return q


GEMMS: list[tuple[dict[str, Any], tuple[int, ...] | None]] = [
    ({"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, (7, 1)),
    ({"alpha": -0.5}, ()),
    ({"alpha": -2.0, "beta": -1.0}, (1, N)),
    ({"beta": 0.0}, (7, 1)),
    ({"alpha": 0.0}, (N,)),
    ({"alpha": 0.0}, None),
]


@pytest.mark.parametrize(("form", "c"), GEMMS, ids=str)
def test_gemm(form: dict[str, Any], c: tuple[int, ...] | None, tmp_path: Path) -> None:
    w = weight(N, K, axis=0, spread=False) if form.get("transB") else weight(K, N, spread=False)
    stored = {"w": w} | ({} if c is None else {"c": values(*c, seed=7)})
    x, turned = values(7, K), form.get("transA")
    shape = {"x": (FLOAT, [K, "m"] if turned else ["m", K])}
    given = build([node("Gemm", ["x", *stored], ["y"], **form)], shape, ["y"], stored)
    converted, feed = convert(given, tmp_path), {"x": x.T.copy() if turned else x}
    if form.get("alpha") == 0.0:
        found, expected = run(converted, feed)[0], run_float(given, feed)[0]
        assert np.allclose(found, expected, atol=1e-6)
    else:
        assert len(linears(converted)) == 1
        agrees(given, converted, feed)


@pytest.mark.parametrize(
    ("x", "w", "op"),
    [
        ([K], [K, N], "MatMul(x,w)"),
        (["b", "s", K], [K], "MatMul(x,w)"),
        ([K], [K], "MatMul(x,w)"),
        (["a", "b", "s", K], [K, N], "MatMul(x,w)"),
        (["m", K], [1, K], "ms:FusedMatMul(x,w,transB:1)"),
        (["b", "s", K], [N, K], "ms:FusedMatMul(x,w,transB:1,alpha:0.25)"),
        (["b", "s", K], [N, K], "ms:FusedMatMul(x,w,transB:1,alpha:-3.0)"),
    ],
    ids=str,
)
def test_vectors_ranks_and_fused_matmul(
    x: list[Any], w: list[int], op: str, tmp_path: Path
) -> None:
    given = spelt(f"y={op}", {"x": x}, {"w": weight(*w, spread=False)})
    # One output stays float unless somebody asks.
    converted = convert(given, tmp_path, op_types_to_quantize=["FusedMatMul", "MatMul"])
    assert len(linears(converted)) == 1
    agrees(given, converted, {"x": values(*(3 if isinstance(d, str) else d for d in x))})


def test_weights_of_branches_and_loops_are_constants_of_their_own_graph(tmp_path: Path) -> None:
    """The outer graph's weight `w` is read by a layer of each."""

    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes_of("h_m=MatMul(h,w); h_out=Tanh(h_m); go_out=Identity(go)"),
        "body",
        [info("i", INT64, []), info("go", BOOL, []), info("h", FLOAT, ["m", K])],
        [info("go_out", BOOL, []), info("h_out", FLOAT, ["m", K])],
    )
    then, other = (branch(name, f"{name}_m=MatMul(x,w); {name}=Relu({name}_m)") for name in "te")
    nodes = [
        node("MatMul", ["x", "w"], ["z"]),
        node("If", ["c"], ["a"], then_branch=then, else_branch=other),
        node("Loop", ["n", "", "x"], ["y"], body=body),
    ]
    stored = {"w": weight(K, K, spread=False), "n": np.array(3, np.int64)}
    given = spelt(nodes, {"x": ["m", K], "c": (BOOL, [])}, stored, ["z", "a", "y"])
    converted = convert(given, tmp_path)
    assert len(linears(converted)) == 4
    for graph in every_graph(converted.proto.graph):
        own = {i.name for i in graph.initializer}
        for n in graph.node:
            assert n.op_type != "Linear" or set(n.input[1:5]) <= own
    for c in (True, False):
        agrees(given, converted, {"x": values(5, K), "c": np.array(c)})


def test_float16_models(tmp_path: Path) -> None:
    stored = {"w": weight(K, N, spread=False), "b": values(N)}
    half = {name: array.astype(np.float16) for name, array in stored.items()}
    inputs, outputs = {"x": (FLOAT16, ["m", K])}, {"y": (FLOAT16, ["m", N])}
    given = spelt("h=MatMul(x,w); y=Add(h,b)", inputs, half, outputs)
    converted = convert(given, tmp_path)
    assert len(linears(converted)) == 1
    agrees(given, converted, {"x": values(5, K).astype(np.float16)})


def plain(width: int = 256, w: Array | None = None) -> onnx.ModelProto:
    stored = {"w": weight(width, N, spread=False) if w is None else w}
    return spelt("y=MatMul(x,w,name:layer)", {"x": ["m", width]}, stored)


@pytest.mark.parametrize("cpu", ["vnni", "any"])
def test_the_integers_are_those_of_the_portable_target(cpu: str, tmp_path: Path) -> None:
    given = plain(K, weight(K, N))
    (stored,) = integer_tensors(graphs.convert(given, tmp_path, cpu=cpu)).values()
    held = stored.astype(np.int16) - (128 if stored.dtype == np.uint8 else 0)
    assert np.array_equal(integers(convert(given, tmp_path, cpu=cpu)), held.T)


def test_int8_accurate_has_groups_and_affine_weights(tmp_path: Path) -> None:
    given = plain()
    accurate, rows = convert(given, tmp_path, recipe="int8-accurate"), convert(given, tmp_path)
    assert [attributes(linears(c)[0])["group_size"] for c in (accurate, rows)] == [128, 0]
    x = values(50, 256) * np.geomspace(0.01, 10, 256).astype(np.float32)
    (expected,) = run_float(given, {"x": x})
    errors = [error(run(c, {"x": x})[0], expected) for c in (accurate, rows)]
    assert errors[0] < 0.9 * errors[1]


def test_int8_per_tensor_is_held_per_row_and_says_so(tmp_path: Path) -> None:
    converted = convert(plain(), tmp_path, recipe="int8-per-tensor")
    (outcome,) = converted.report.layers
    assert outcome.quantized and len(linears(converted)) == 1
    assert any(note.startswith("activations per row") for note in outcome.notes)


@pytest.mark.parametrize("recipe", ["int8-block", "float16"])
def test_recipes_without_an_operator_of_ours_keep_the_stock_form(
    recipe: str, tmp_path: Path
) -> None:
    converted = convert(plain(), tmp_path, recipe=recipe)
    assert not linears(converted) and converted.report.layers[0].quantized
    assert "ai.octavo" not in {o.domain for o in converted.proto.opset_import}
    said = metadata(converted.path)
    assert said["octavo.target"] == "native" and "octavo.operators" not in said
    agrees(plain(), converted, {"x": values(5, 256)})


def test_reports_and_metadata(tmp_path: Path) -> None:
    converted = convert(mlp(2, 64), tmp_path, verify=True)
    report = converted.report
    assert report.target == "native" and report.verification.status == "passed"
    assert report.min_onnxruntime == "1.17"
    assert report.model_bytes_after == converted.path.stat().st_size < report.model_bytes_before / 3
    for outcome in report.layers:
        assert outcome.quantized and outcome.sqnr_db is not None and outcome.sqnr_db > 35
        assert outcome.bytes_before == 64 * 64 * 4 and outcome.bytes_after < 64 * 64 * 4 / 3
    said = metadata(converted.path)
    assert said["octavo.target"] == "native" and said["octavo.min_onnxruntime"] == "1.17"
    assert "ai.octavo" in said["octavo.operators"]
    assert {o.domain: o.version for o in converted.proto.opset_import}["ai.octavo"] == 1
