"""`quantize_dynamic(target="native")` over models of many kinds: operators, numbers, reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from octavo.cli import app
from octavo.core.kernels import checksum, unpack
from octavo.errors import OptionError
from octavo.files.metadata import metadata
from octavo.onnx import inspect, session
from tests.graphs import (
    BOOL,
    FLOAT,
    FLOAT16,
    INT8,
    INT64,
    MS,
    Array,
    Converted,
    build,
    convert,
    error,
    integer_tensors,
    mlp,
    node,
    run,
    save,
    values,
    weight,
)

K, N = 48, 40


def native(given: onnx.ModelProto, folder: Path, **options: Any) -> Converted:
    return convert(given, folder, target="native", **options)


def agrees(given: onnx.ModelProto, converted: Converted, feeds: dict[str, Array]) -> None:
    found = session(converted.path).run(None, feeds)
    for a, b in zip(found, run(given, feeds), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert error(a, b) < INT8


def every_graph(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    inner = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return [graph, *(g for i in inner for g in every_graph(i))]


def linears(converted: Converted) -> list[onnx.NodeProto]:
    graphs = every_graph(converted.proto.graph)
    return [n for g in graphs for n in g.node if n.op_type == "Linear" and n.domain == "ai.octavo"]


def attribute(n: onnx.NodeProto, name: str) -> Any:
    return next(helper.get_attribute_value(a) for a in n.attribute if a.name == name)


def integers(converted: Converted, index: int = 0) -> Array:
    """The int8 [N, K] of a Linear node, unpacked, whose checksum is right."""
    linear = linears(converted)[index]
    (stored,) = [
        numpy_helper.to_array(i)
        for g in every_graph(converted.proto.graph)
        for i in g.initializer
        if i.name == linear.input[1]
    ]
    packed = np.ascontiguousarray(stored).view(np.uint8).reshape(-1)
    assert checksum(packed) == attribute(linear, "checksum")
    q = unpack(packed, attribute(linear, "N"), attribute(linear, "K"))
    assert np.count_nonzero(q) == np.count_nonzero(stored)  # all else is padding
    return q


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [None, (N,), (1, N), (7, N), (7, 1), (1,), ()], ids=str)
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"transB": 1},
        {"transA": 1},
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
        {"alpha": -0.5},
        {"alpha": -2.0, "beta": -1.0},
        {"beta": 0.0},
        {"alpha": 0.0},
    ],
    ids=str,
)
def test_gemm(form: dict[str, Any], c: tuple[int, ...] | None, tmp_path: Path) -> None:
    w = weight(N, K, axis=0, spread=False) if form.get("transB") else weight(K, N, spread=False)
    stored = {"w": w} | ({} if c is None else {"c": values(*c, seed=7)})
    given = build(
        [node("Gemm", ["x", *stored], ["y"], **form)],
        {"x": (FLOAT, [K, "m"] if form.get("transA") else ["m", K])},
        ["y"],
        stored,
    )
    x = values(7, K)
    converted = native(given, tmp_path)
    (expected,) = run(given, {"x": x.T.copy() if form.get("transA") else x})
    (found,) = session(converted.path).run(None, {"x": x.T.copy() if form.get("transA") else x})
    if form.get("alpha") == 0.0:
        assert np.allclose(found, expected, atol=1e-6)
    else:
        assert len(linears(converted)) == 1
        assert found.shape == expected.shape and error(found, expected) < INT8


@pytest.mark.parametrize(
    ("x", "w", "form"),
    [
        ([K], [K, N], {}),
        (["b", "s", K], [K], {}),
        ([K], [K], {}),
        (["a", "b", "s", K], [K, N], {}),
        (["m", K], [1, K], {"transB": 1}),
    ],
    ids=str,
)
def test_vectors_and_ranks(
    x: list[Any], w: list[int], form: dict[str, Any], tmp_path: Path
) -> None:
    domain = {"domain": MS} if form else {}
    given = build(
        [node("FusedMatMul" if form else "MatMul", ["x", "w"], ["y"], **form, **domain)],
        {"x": (FLOAT, x)},
        ["y"],
        {"w": weight(*w, spread=False)},
    )
    # One output stays float unless somebody asks.
    converted = native(given, tmp_path, op_types_to_quantize=["FusedMatMul", "MatMul"])
    assert len(linears(converted)) == 1
    agrees(given, converted, {"x": values(*(3 if isinstance(d, str) else d for d in x))})


@pytest.mark.parametrize("alpha", [0.25, -3.0])
def test_fused_matmul(alpha: float, tmp_path: Path) -> None:
    form = {"transB": 1, "alpha": alpha, "domain": MS}
    given = build(
        [node("FusedMatMul", ["x", "w"], ["y"], **form)],
        {"x": (FLOAT, ["b", "s", K])},
        ["y"],
        {"w": weight(N, K, axis=0, spread=False)},
    )
    agrees(given, native(given, tmp_path), {"x": values(2, 5, K)})


def test_a_shared_weight_is_stored_once(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Tanh", ["a"], ["t"]),
        node("MatMul", ["t", "w"], ["y"]),
    ]
    given = build(nodes, {"x": (FLOAT, ["m", K])}, ["y"], {"w": weight(K, K, spread=False)})
    converted = native(given, tmp_path)
    assert len({n.input[1] for n in linears(converted)}) == 1
    assert sum(np.prod(i.dims) == K * K for i in converted.proto.graph.initializer) == 1
    agrees(given, converted, {"x": values(5, K)})


def test_a_weight_behind_a_chain_of_constants(tmp_path: Path) -> None:
    w = weight(N, K, axis=0, spread=False)
    nodes = [
        node("Constant", [], ["c"], value=numpy_helper.from_array(w, "w")),
        node("Transpose", ["c"], ["t"], perm=[1, 0]),
        node("Identity", ["t"], ["i"]),
        node("MatMul", ["x", "i"], ["y"]),
    ]
    given = build(nodes, {"x": (FLOAT, ["m", K])}, ["y"])
    converted = native(given, tmp_path)
    assert converted.ops == ["Linear"]
    agrees(given, converted, {"x": values(5, K)})


def test_weights_of_branches_and_loops_are_constants_of_their_own_graph(tmp_path: Path) -> None:
    """The outer graph's weight `w` is read by a layer of each."""

    def info(name: str, kind: int = FLOAT, shape: Any = None) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    def branch(name: str) -> Any:
        nodes = [node("MatMul", ["x", "w"], [f"{name}_m"]), node("Relu", [f"{name}_m"], [name])]
        return helper.make_graph(nodes, name, [], [info(name)])

    body = helper.make_graph(
        [node("MatMul", ["h", "w"], ["h_m"]), node("Tanh", ["h_m"], ["h_out"]),
         node("Identity", ["go"], ["go_out"])],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), info("h", FLOAT, ["m", K])],
        [info("go_out", BOOL, []), info("h_out", FLOAT, ["m", K])],
    )  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w"], ["z"]),
        node("If", ["c"], ["a"], then_branch=branch("t"), else_branch=branch("e")),
        node("Loop", ["n", "", "x"], ["y"], body=body),
    ]
    stored = {"w": weight(K, K, spread=False), "n": np.array(3, np.int64)}
    inputs = {"x": (FLOAT, ["m", K]), "c": (BOOL, [])}
    given = build(nodes, inputs, ["z", "a", "y"], stored)
    converted = native(given, tmp_path)
    assert len(linears(converted)) == 4
    for graph in every_graph(converted.proto.graph):
        own = {i.name for i in graph.initializer}
        for n in graph.node:
            assert n.op_type != "Linear" or set(n.input[1:5]) <= own
    for c in (True, False):
        agrees(given, converted, {"x": values(5, K), "c": np.array(c)})


def test_float16_models(tmp_path: Path) -> None:
    stored = {
        "w": weight(K, N, spread=False).astype(np.float16),
        "b": values(N).astype(np.float16),
    }
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"])]
    given = build(nodes, {"x": (FLOAT16, ["m", K])}, {"y": (FLOAT16, ["m", N])}, stored)
    converted = native(given, tmp_path)
    assert len(linears(converted)) == 1
    agrees(given, converted, {"x": values(5, K).astype(np.float16)})


def test_external_data(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = save(mlp(3, 64), folder / "m.onnx", external="m.data")
    given = onnx.load(path)
    converted = native(given, tmp_path, use_external_data_format=True)
    agrees(given, converted, {"x": values(5, 64)})
    assert len(linears(converted)) == 3


# --- the same integers everywhere -----------------------------------------------------------------


@pytest.mark.parametrize("cpu", ["vnni", "any"])
def test_the_integers_are_those_of_the_portable_target(cpu: str, tmp_path: Path) -> None:
    given = build(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": (FLOAT, ["m", K])},
        ["y"],
        {"w": weight(K, N)},
    )
    (stored,) = integer_tensors(convert(given, tmp_path, cpu=cpu)).values()
    held = stored.astype(np.int16) - (128 if stored.dtype == np.uint8 else 0)
    assert np.array_equal(integers(native(given, tmp_path, cpu=cpu)), held.T)


def test_the_integers_are_those_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from octavo.torch import quantize_dynamic

    layer = torch.nn.Linear(K, N)
    w = layer.weight.detach().numpy()
    quantized = quantize_dynamic(torch.nn.Sequential(layer))[0]
    given = build(
        [node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        {"x": (FLOAT, ["m", K])},
        ["y"],
        {"w": w, "b": layer.bias.detach().numpy()},
    )
    converted = native(given, tmp_path)
    packed = quantized.packed.numpy() if hasattr(quantized, "packed") else None
    x = values(5, K)
    (found,) = session(converted.path).run(None, {"x": x})
    assert np.array_equal(found, quantized(torch.from_numpy(x)).numpy())
    if packed is not None:
        q = unpack(np.ascontiguousarray(packed).view(np.uint8).reshape(-1), N, K)
        assert np.array_equal(integers(converted), q)


# --- recipes, reports, metadata -------------------------------------------------------------------


def plain(width: int = 256) -> onnx.ModelProto:
    return build(
        [node("MatMul", ["x", "w"], ["y"], name="layer")],
        {"x": (FLOAT, ["m", width])},
        ["y"],
        {"w": weight(width, N, spread=False)},
    )


def test_int8_accurate_has_groups_and_affine_weights(tmp_path: Path) -> None:
    given = plain()
    accurate, rows = native(given, tmp_path, recipe="int8-accurate"), native(given, tmp_path)
    (linear,) = linears(accurate)
    assert attribute(linear, "group_size") == 128
    assert attribute(linears(rows)[0], "group_size") == 0
    x = values(50, 256) * np.geomspace(0.01, 10, 256).astype(np.float32)
    (expected,) = run(given, {"x": x})
    errors = [error(session(c.path).run(None, {"x": x})[0], expected) for c in (accurate, rows)]
    assert errors[0] < 0.9 * errors[1]


def test_int8_per_tensor_is_held_per_row_and_says_so(tmp_path: Path) -> None:
    converted = native(plain(), tmp_path, recipe="int8-per-tensor")
    (outcome,) = converted.report.layers
    assert outcome.quantized and len(linears(converted)) == 1
    assert "activations per row: target native has no scale for a whole tensor" in outcome.notes


@pytest.mark.parametrize("recipe", ["int8-block", "float16"])
def test_recipes_without_an_operator_of_ours_keep_the_stock_form(
    recipe: str, tmp_path: Path
) -> None:
    converted = native(plain(), tmp_path, recipe=recipe)
    assert not linears(converted) and converted.report.layers[0].quantized
    assert "ai.octavo" not in {o.domain for o in converted.proto.opset_import}
    said = metadata(converted.path)
    assert said["octavo.target"] == "native" and "octavo.operators" not in said
    agrees(plain(), converted, {"x": values(5, 256)})


def test_recipe_files(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "version: 1\nbase: int8\nrules:\n  - name: layer0\n    scheme: float\n    reason: ours\n"
    )
    (tmp_path / "out").mkdir()
    converted = convert(mlp(2), tmp_path / "out", target="native", recipe=recipe)
    assert [o.quantized for o in converted.report.layers] == [False, True]
    assert [n.name for n in linears(converted)] == ["layer1"]


def test_reports_and_metadata(tmp_path: Path) -> None:
    converted = native(mlp(2, 64), tmp_path, verify=True)
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


def test_layers_keep_their_names(tmp_path: Path) -> None:
    converted = native(mlp(3), tmp_path)
    assert [n.name for n in linears(converted)] == ["layer0", "layer1", "layer2"]
    assert [attribute(n, "activation") for n in linears(converted)] == [b"relu"] * 3


def test_inspect() -> None:
    found = inspect(mlp(2), target="native")
    assert [d.layer.name for d in found.decisions] == ["layer0", "layer1"]
    assert all(not d.scheme.is_float for d in found.decisions)


def test_qdq_is_for_other_runtimes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="qdq"):
        native(mlp(2), tmp_path, quant_format="qdq")


def test_the_command_line(tmp_path: Path) -> None:
    source, out = save(mlp(2), tmp_path / "m.onnx"), tmp_path / "q.onnx"
    done = CliRunner().invoke(app, ["quantize", str(source), "-o", str(out), "--target", "native"])
    assert done.exit_code == 0, done.output
    assert metadata(out)["octavo.target"] == "native"
    assert session(out).run(None, {"x": values(3, 32)})[0].shape == (3, 32)


def test_an_empty_batch_and_a_row_that_is_not_finite(tmp_path: Path) -> None:
    converted = native(mlp(2), tmp_path)
    opened = session(converted.path)
    assert opened.run(None, {"x": np.empty((0, 32), np.float32)})[0].shape == (0, 32)
    x = values(5, 32)
    before = opened.run(None, {"x": x})[0]
    x[2, 0] = np.inf
    after = opened.run(None, {"x": x})[0]
    rest = [0, 1, 3, 4]
    assert np.isnan(after[2]).all() and np.array_equal(after[rest], before[rest])


def test_weights_have_one_checksum_and_no_float_copy(tmp_path: Path) -> None:
    converted = native(plain(), tmp_path)
    types = {i.data_type: int(np.prod(i.dims)) for i in converted.proto.graph.initializer}
    assert types[TensorProto.FLOAT] == N
    assert integers(converted).shape == (N, 256)
