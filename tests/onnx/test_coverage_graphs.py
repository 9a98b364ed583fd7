"""Graphs of every shape: bodies, functions, opsets, odd names, what must stay untouched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.errors import AlreadyQuantizedError, NothingQuantizedError
from octavo.onnx import quantize_dynamic
from tests.graphs import (
    FLOAT,
    INT8,
    MS,
    PER_TENSOR,
    Array,
    Converted,
    assert_close,
    build,
    checked,
    convert,
    integer_tensors,
    node,
    run,
    text,
    values,
    weight,
)

K = 32
X = f"float[m, {K}] x"
W, V = weight(K, K), weight(K, K, seed=4)
EVEN_W, EVEN_V = weight(K, K, seed=3, spread=False), weight(K, K, seed=4, spread=False)
FEED = {"x": values(9, K)}


def close(
    converted: Converted, model: onnx.ModelProto, feeds: Mapping[str, Array], bound: float = INT8
) -> None:
    """Every float output is within `bound` of the float model's, every other one equal."""
    for expected, actual in zip(run(model, feeds), run(converted.path, feeds), strict=True):
        if expected.dtype.kind == "f":
            assert_close(actual, expected, bound)
        else:
            assert np.array_equal(actual, expected)


def in_all_branches(converted: Converted, model: onnx.ModelProto, bound: float = INT8) -> None:
    flags = [i.name for i in model.graph.input if i.name != "x"]
    for chosen in np.ndindex(*[2] * len(flags)):
        choice = {name: np.array(bool(c)) for name, c in zip(flags, chosen, strict=True)}
        close(converted, model, FEED | choice, bound)


def walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for n in graph.node:
        yield n
        for a in n.attribute:
            for body in [a.g, *a.graphs]:
                yield from walk(body)


def all_ops(converted: Converted) -> list[str]:
    return [n.op_type for n in walk(converted.proto.graph)]


def branches(then: str, other: str, also: str = "", **weights: Array) -> onnx.ModelProto:
    """An If on `c` whose branches are nodes that end in the values t and e."""
    body = f"""[if] y = If (c) <then_branch = then () => (float[] t) {{ {then} }},
        else_branch = other () => (float[] e) {{ {other} }}> {also}"""
    inputs = X + "".join(f", bool {flag}" for flag in "cd" if f"({flag})" in body)
    outputs = "float[] y, float[] z" if also else "float[] y"
    return text(body, inputs, outputs, weights)


def move_inside(model: onnx.ModelProto, place: str, **weights: Array) -> None:
    bodies = [a.g for n in walk(model.graph) for a in n.attribute if a.HasField("g")]
    (body,) = (body for body in bodies if body.name == place)
    body.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())


@pytest.mark.parametrize(
    ("where", "also", "recipe"),
    [
        ("outside", "", "int8"),
        ("inside", "z = MatMul (x, u)", "int8"),  # another layer of the same activation
        ("inside", "", "int8-per-tensor"),
        ("outside", "z = MatMul (x, u)", "int8-block"),
        ("inside", "", "float16"),
    ],
)
def test_if(tmp_path: Path, where: str, also: str, recipe: str) -> None:
    more = {"u": weight(K, K, seed=5)} if also else {}
    outside = {"w": W, "v": V} if where == "outside" else {}
    other = "e0 = Gemm (x, v) e1 = Relu (e0) e = MatMul (e1, v)"
    model = branches("t = MatMul (x, w)", other, also, **more, **outside)
    if where == "inside":
        move_inside(model, "then", w=W)
        move_inside(model, "other", v=V)
    converted = convert(model, tmp_path, recipe=recipe)
    assert "MatMul" not in all_ops(converted) or recipe == "float16"
    assert all(o.quantized for o in converted.report.layers)
    # The spread of the channels makes one scale for a tensor coarse.
    in_all_branches(converted, model, (6 if recipe == "int8-per-tensor" else 2) * INT8)
    scopes = {o.layer.scope for o in converted.report.layers}
    assert {"if/then_branch", "if/else_branch"} <= scopes


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_loop(tmp_path: Path, where: str) -> None:
    """A state that a layer changes, and a captured activation that another layer reads."""
    stored, inside = {"n": np.array(3, np.int64)}, {"w": EVEN_W, "v": EVEN_V}
    body = f"""y, ys = Loop (n, , x) <body = loop (int64 i, bool go, float[m, {K}] s)
        => (bool go_out, float[] s_out, float[] scan) {{ a = MatMul (s, w) b = Gemm (x, v)
        ab = Add (a, b) s_out = Tanh (ab) go_out = Identity (go) scan = Identity (s_out) }}>"""
    outside = inside if where == "outside" else {}
    model = text(body, X, "float[] y, float[] ys", stored | outside)
    if where == "inside":
        move_inside(model, "loop", **inside)
    converted = convert(model, tmp_path)
    assert all_ops(converted).count("MatMulIntegerToFloat") == 2
    close(converted, model, FEED, PER_TENSOR)


def test_scan(tmp_path: Path) -> None:
    shape = f"float[m, {K}]"
    body = f"""y, ys = Scan (s0, xs) <num_scan_inputs = 1, body = step ({shape} s, {shape} e)
        => (float[] s_out, float[] out) {{ a = MatMul (s, w) b = MatMul (e, v) ab = Add (a, b)
        s_out = Tanh (ab) out = Identity (s_out) }}>"""
    inputs, outputs = f"{shape} s0, float[t, m, {K}] xs", "float[] y, float[] ys"
    model = text(body, inputs, outputs, {"v": EVEN_V})
    move_inside(model, "step", w=EVEN_W)
    converted = convert(model, tmp_path)
    assert all_ops(converted).count("MatMulIntegerToFloat") == 2
    close(converted, model, {"s0": values(4, K), "xs": values(5, 4, K, seed=9)}, PER_TENSOR)


def test_other_layers_inside_a_body(tmp_path: Path) -> None:
    """Gather, LSTM and Conv (asked for) in a branch, their weights inside it."""
    body = """y = If (c) <
        then_branch = then () => (float[] t) { g = Gather (table, i)
            , h = LSTM <hidden_size = 16> (g, w, r) t = Squeeze (h, zero) },
        else_branch = other () => (float[] e) { f = Conv <kernel_shape = [3], pads = [1, 1]> (x, k)
            e = ReduceMean <axes = [2], keepdims = 0> (f) }>"""
    model = text(body, "int64[5, 3] i, float[3, 8, 10] x, bool c")
    lstm = {"w": weight(1, 64, 20, spread=False), "r": weight(1, 64, 16, spread=False)}
    table = weight(512, 20, axis=0, spread=False)
    move_inside(model, "then", table=table, zero=np.array([0]), **lstm)
    move_inside(model, "other", k=weight(16, 8, 3, seed=7, spread=False))
    converted = convert(model, tmp_path, op_types_to_quantize=["Gather", "LSTM", "Conv"])
    assert {"DynamicQuantizeLSTM", "ConvInteger", "Gather"} <= set(all_ops(converted))
    assert not {"LSTM", "Conv"} & set(all_ops(converted))
    feeds = {"i": np.arange(15, dtype=np.int64).reshape(5, 3), "x": values(3, 8, 10)}
    for c in (True, False):
        close(converted, model, feeds | {"c": np.array(c)}, PER_TENSOR)


def test_a_body_that_shadows_an_outer_name(tmp_path: Path) -> None:
    """Two branches call different weights `w`; each layer gets its own, and keeps its name."""
    model = branches("[same] t = MatMul (x, w)", "[same] e = MatMul (x, w)")
    move_inside(model, "then", w=W)
    move_inside(model, "other", w=V)
    converted = convert(model, tmp_path)
    assert sum(a.size >= K * K for a in integer_tensors(converted).values()) == 2
    products = [n for n in walk(converted.proto.graph) if n.op_type == "MatMulIntegerToFloat"]
    assert [n.name for n in products] == ["same", "same"]
    assert len({o.layer.name for o in converted.report.layers}) == 2
    in_all_branches(converted, model)


def test_names_taken_only_inside_a_body(tmp_path: Path) -> None:
    """A constant of ours in the main graph must not be hidden by a body's value of that name."""
    then = "w_quantized = Neg (x) t = MatMul (w_quantized, w)"
    model = branches(then, "w_scale = MatMul (x, w) e = Identity (w_scale)", w=W)
    in_all_branches(convert(model, tmp_path), model)


IDS = {"i": np.arange(40, dtype=np.int64).reshape(2, 20)}


def network(opset: int) -> onnx.ModelProto:
    """Gather, MatMul, Relu, Gemm and a batched MatMul, in operators that no opset changed."""
    body = """e = Gather (table, i) h = MatMul (e, w) a = Relu (h) g = MatMul (a, v)
        s = Add (g, b) p = Sigmoid (s) y = MatMul (p, u)"""
    stored = {
        "table": weight(512, 40, axis=0, spread=False),
        "w": weight(40, 48, seed=3, spread=False),
        "v": weight(48, K, seed=4, spread=False),
        "b": values(K, seed=9),
        "u": weight(2, K, 8, seed=5, spread=False),
    }
    return text(body, "int64[2, n] i", "float[2, n, 8] y", stored, opset)


def opset_in(proto: onnx.ModelProto) -> int:
    return next(i.version for i in proto.opset_import if i.domain in ("", "ai.onnx"))


RECIPES = ["int8-per-tensor", "int8-block", "int8-accurate", "float16"]
STEPS = [10, 11, 12, 13, 17, 18, 21, 26]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("opset", "options"),
    [
        *((opset, {}) for opset in range(10, 27)),
        *((opset, {"recipe": recipe}) for recipe in RECIPES for opset in STEPS),
        *((opset, {"quant_format": "qdq"}) for opset in STEPS),
    ],
    ids=str,
)
def test_an_opset_stays_as_it_is(tmp_path: Path, opset: int, options: dict[str, str]) -> None:
    model = network(opset)
    converted = convert(model, tmp_path, verify=True, **options)
    assert converted.report.verification.status == "passed"
    assert converted.proto.ir_version == model.ir_version
    found = opset_in(converted.proto)
    assert found == converted.report.opset
    if "quant_format" in options:
        assert found >= opset and "DequantizeLinear" in converted.ops
    else:
        raised = opset == 10 and options.get("recipe") == "int8-per-tensor"
        assert found == (11 if raised else opset)  # DynamicQuantizeLinear came in 11
    if not options:
        assert [o.quantized for o in converted.report.layers] == [True] * 4
        onnx.checker.check_model(converted.proto)
    close(converted, model, IDS, 2 * (PER_TENSOR if options else INT8))


@pytest.mark.parametrize("opset", [7, 8, 9])
def test_an_old_opset_is_raised(tmp_path: Path, opset: int) -> None:
    model = network(opset)
    converted = convert(model, tmp_path, verify=True)
    assert opset_in(converted.proto) == converted.report.opset == 10
    assert any(f"opset raised from {opset} to 10" in n for n in converted.report.notes)
    assert [o.quantized for o in converted.report.layers] == [True] * 4
    close(converted, model, IDS, 2 * INT8)
    assert opset_in(model) == opset  # the caller's model is as it was


def test_a_model_that_calls_the_domain_ai_onnx(tmp_path: Path) -> None:
    """`ai.onnx` is the long name of the standard domain."""
    model = text("y = MatMul (x, w)", X, weights={"w": W})
    model.opset_import[0].domain = "ai.onnx"
    converted = convert(model, tmp_path)
    assert converted.report.layers[0].quantized
    close(converted, model, FEED)


def test_empty_and_duplicate_node_names(tmp_path: Path) -> None:
    body = "a = MatMul (x, w) [same] b = MatMul (a, w) [same] c = MatMul (b, w) y = Relu (c)"
    model = text(body, X, weights={"w": EVEN_W})
    converted = convert(model, tmp_path)
    names = [o.layer.name for o in converted.report.layers]
    assert len(set(names)) == 3 and all(names)
    made = [n.name for n in converted.proto.graph.node if n.op_type == "MatMulIntegerToFloat"]
    assert len(set(made)) == 3
    second = convert(model, tmp_path, nodes_to_exclude=[names[2]])
    assert [o.quantized for o in second.report.layers] == [True, True, False]
    for target in ("portable", "native"):  # none of the four is refused, on either
        model.graph.node[3].name = "same"
        verification = checked(model, tmp_path, target=target)
        assert (verification.status, verification.runs) == ("unchecked", 0)
        assert "two nodes with same node name (same)" in verification.detail
    model.graph.node[1].name, model.graph.node[3].name = "second", "last"
    model.graph.node[2].name = "other"  # ONNX Runtime refuses the float model as it is
    close(converted, model, FEED, PER_TENSOR)


@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor", "int8-block"])
def test_tensors_already_called_as_ours_would_be(tmp_path: Path, recipe: str) -> None:
    taken = "x_quantized x_abs x_range x_ratio x_scale w_quantized w_scale w_zero_point y_per_row"
    names = taken.split()
    body = "y = MatMul (x, w) " + " ".join(
        f"{name} = Mul (x, octavo_float32_0) out{i} = Add ({name}, y)"
        for i, name in enumerate(names)
    )
    outputs = "float[] y" + "".join(f", float[] out{i}" for i in range(len(names)))
    model = text(body, X, outputs, {"w": W, "octavo_float32_0": np.array(2, np.float32)})
    converted = convert(model, tmp_path, recipe=recipe)
    close(converted, model, FEED, PER_TENSOR * 3)
    made = [o for n in converted.proto.graph.node for o in n.output]
    made += [i.name for i in converted.proto.graph.initializer]
    assert len(made) == len(set(made))
    assert set(names) <= set(made)


def test_node_names_survive(tmp_path: Path) -> None:
    """Each product keeps the name of the layer it stands for, everything else keeps its own."""
    body = """[first] a = MatMul (x, w) [between] b = Tanh (a)
        [second] c = Gemm <transB = 1> (b, w, bias) [last] y = Relu (c)"""
    model = text(body, X, weights={"w": W, "bias": values(K)})
    converted = convert(model, tmp_path)
    assert {"first", "between", "second", "last"} <= {n.name for n in converted.proto.graph.node}
    excluded = convert(model, tmp_path, nodes_to_exclude=["sec*"])
    assert next(n for n in excluded.proto.graph.node if n.name == "second").op_type == "Gemm"


def test_an_output_that_is_also_read_and_an_input_as_output(tmp_path: Path) -> None:
    body = "y = MatMul (x, w) r = Relu (y) z = MatMul (y, w) copy = Identity (x)"
    outputs = ", ".join(f"float[m, {K}] {name}" for name in ("y", "r", "z", "copy"))
    model = text(body, X, outputs, {"w": EVEN_W})
    converted = convert(model, tmp_path)
    assert list(converted.proto.graph.output) == list(model.graph.output)
    close(converted, model, FEED)
    assert np.array_equal(run(converted.path, FEED)[3], FEED["x"])


def test_quantized_models_are_refused_but_their_rest(tmp_path: Path) -> None:
    stored = {"w": W, "v": weight(K, K, seed=8)}
    model = text("[first] a = MatMul (x, w) [last] y = MatMul (a, v)", X, weights=stored)
    once = convert(model, tmp_path, nodes_to_exclude=["last"])
    with pytest.raises(AlreadyQuantizedError, match="allow_quantized"):
        convert(once.proto, tmp_path)
    twice = convert(once.proto, tmp_path, allow_quantized=True)
    assert twice.ops.count("MatMulIntegerToFloat") == 2 and "MatMul" not in twice.ops
    close(twice, model, FEED, 2 * INT8)
    (first,) = (n for n in once.proto.graph.node if n.op_type == "MatMulIntegerToFloat")
    assert first in twice.proto.graph.node  # what was quantized is as it was


@pytest.mark.parametrize("place", ["body", "qdq"])
def test_quantized_in_another_form(tmp_path: Path, place: str) -> None:
    if place == "body":
        once = convert(branches("t = MatMul (x, w)", "e = Neg (x)", w=W), tmp_path).proto
    else:
        model = text("y = MatMul (x, w)", X, weights={"w": W})
        once = convert(model, tmp_path, quant_format="qdq").proto
    with pytest.raises(AlreadyQuantizedError):
        convert(once, tmp_path)
    with pytest.raises(NothingQuantizedError):
        convert(once, tmp_path, allow_quantized=True)


SCALED = "float s, uint8 z"
QUANTIZED = [
    ("ConvInteger", "y = ConvInteger (k, k)", "uint8[1, 1, 2, 2] k", "int32[] y"),
    ("DequantizeLinear", "y = DequantizeLinear (a, s)", "uint8[n] a, float s", "float[] y"),
    ("DynamicQuantizeLinear", "y, s, z = DynamicQuantizeLinear (x)", "float[n] x", "uint8[] y"),
    ("MatMulInteger", "y = MatMulInteger (a, a)", "uint8[2, 2] a", "int32[] y"),
    (
        "QLinearConv",
        "y = QLinearConv (k, s, z, k, s, z, s, z)",
        f"uint8[1, 1, 2, 2] k, {SCALED}",
        "uint8[] y",
    ),
    (
        "QLinearMatMul",
        "y = QLinearMatMul (a, s, z, a, s, z, s, z)",
        f"uint8[2, 2] a, {SCALED}",
        "uint8[] y",
    ),
    ("QuantizeLinear", "y = QuantizeLinear (x, s)", "float[n] x, float s", "uint8[] y"),
]


@pytest.mark.parametrize(("op", "body", "inputs", "output"), QUANTIZED)
def test_each_operator_of_integers_is_refused_by_name_or_left(
    tmp_path: Path, op: str, body: str, inputs: str, output: str
) -> None:
    model = text(body, inputs, output)
    with pytest.raises(AlreadyQuantizedError, match=op):
        convert(model, tmp_path)
    assert convert(model, tmp_path, allow_quantized=True, allow_nothing=True).ops == [op]


def test_a_matmul_of_another_domain_is_not_ours(tmp_path: Path) -> None:
    added = [node("Add", ["a", "b"], ["c"])]
    imports = [helper.make_opsetid("", 17)]
    fake = helper.make_function("mine", "MatMul", ["a", "b"], ["c"], added, imports)
    nodes = [node("MatMul", ["x", "w"], ["h"], domain="mine"), node("MatMul", ["h", "w"], ["y"])]
    inputs = {"x": (FLOAT, [K, K])}
    model = build(nodes, inputs, ["y"], {"w": W}, functions=[fake], domains=["mine"])
    converted = convert(model, tmp_path)
    assert [o.layer.op for o in converted.report.layers if o.quantized] == ["MatMul"]
    assert "Add" in converted.ops
    close(converted, model, {"x": values(K, K)}, PER_TENSOR)


def test_the_standard_attention_is_not_the_fused_one(tmp_path: Path) -> None:
    body = "q = MatMul (x, w) [kept] y = Attention <q_num_heads = 4, kv_num_heads = 4> (q, keys, x)"
    stored = {"w": EVEN_W, "keys": values(2, 6, K, seed=8)}
    shape = f"float[2, 6, {K}]"
    model = text(body, f"{shape} x", f"{shape} y", stored, opset=23)
    model.ir_version = 10
    converted = convert(model, tmp_path)
    kept, given = converted.proto.graph.node[-1], model.graph.node[-1]
    assert (kept.op_type, kept.domain, kept.input) == (given.op_type, "", given.input)
    assert sorted((a.name, a.i) for a in kept.attribute) == sorted(
        (a.name, a.i) for a in given.attribute
    )
    assert [o.layer.op for o in converted.report.layers] == ["MatMul"]
    close(converted, model, {"x": values(2, 6, K)}, PER_TENSOR)


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"wt": [K, 48], "h": ["m", 48], "a": ["m", 48]},
        {"h": ["m", 1, 48], "a": ["m", 1, 48]},
        {"h": [1, 48], "a": [3, 48]},
        {"wt": ["p", "q"], "h": ["r", "s"], "a": [None, None]},
    ],
    ids=["missing", "right", "stale rank", "stale size", "symbols"],
)
def test_value_info_of_any_kind(tmp_path: Path, shapes: dict[str, Any]) -> None:
    """Shapes that a model states of inner values may be wrong, as far as ONNX Runtime minds."""
    body = """wt = Transpose <perm = [1, 0]> (w) h = MatMul (x, wt) a = Relu (h)
        y = Gemm <transB = 1> (a, v, b)"""
    stored = {"w": weight(48, K, axis=0), "v": weight(24, 48, axis=0), "b": values(24)}
    model, float_model = text(body, X, weights=stored), text(body, X, weights=stored)
    for name, shape in shapes.items():
        model.graph.value_info.append(helper.make_tensor_value_info(name, FLOAT, shape))
    converted = convert(model, tmp_path)
    assert [o.quantized for o in converted.report.layers] == [True, True]
    assert sum(a.size for a in integer_tensors(converted).values()) == 48 * K + 24 * 48
    close(converted, float_model, FEED, PER_TENSOR)


@pytest.mark.parametrize("kind", ["flipped", "another rank"])
def test_value_info_of_a_weight_is_not_trusted(tmp_path: Path, kind: str) -> None:
    """What a model states of a weight behind a chain may be wrong too."""
    body = """w = Reshape (w0, ws) table = Reshape (table0, tables) l = Reshape (l0, ls)
        y = MatMul (x, w) z = Gather (table, i) h = LSTM <hidden_size = 16> (s, l, r)"""
    shapes = {"w": [K, 48], "table": [512, 48], "l": [1, 64, K]}
    stored: dict[str, Any] = {"r": weight(1, 64, 16, spread=False)}
    for name, shape in shapes.items():
        stored[f"{name}0"] = weight(*shape, spread=False).ravel()
        stored[f"{name}s"] = np.array(shape, np.int64)
    inputs, outputs = f"{X}, int64[n] i, float[t, b, {K}] s", "float[] y, float[] z, float[] h"
    model = text(body, inputs, outputs, stored)
    for name, shape in shapes.items():
        wrong = shape[::-1] if kind == "flipped" else [2, 2, *shape]
        model.graph.value_info.append(helper.make_tensor_value_info(name, FLOAT, wrong))
    converted = convert(model, tmp_path)
    assert all(o.quantized for o in converted.report.layers)
    found = {o.layer.op: o.layer.weights[0][1] for o in converted.report.layers}
    wanted = dict(zip(("MatMul", "Gather", "LSTM"), map(tuple, shapes.values()), strict=True))
    assert found == wanted
    feeds = {"i": np.arange(512, dtype=np.int64), "s": values(5, 3, K)}
    close(converted, model, FEED | feeds, PER_TENSOR)


@pytest.mark.parametrize(
    ("body", "inputs", "options"),
    [
        ("y = Relu (x)", X, {}),
        ("y = MatMul (x, z)", f"{X}, float[{K}, 4] z", {}),
        ("y = Conv (x, k)", "float[1, 8, 8, 8] x", {}),
        ("y = MatMul (x, w)", X, {"nodes_to_exclude": ["*"]}),
    ],
    ids=["no weights", "two activations", "only Conv", "excluded"],
)
def test_nothing_to_quantize_is_an_error(
    tmp_path: Path, body: str, inputs: str, options: dict[str, Any]
) -> None:
    stored = {"w": W, "k": weight(16, 8, 3, 3)}
    model = text(body, inputs, weights={n: a for n, a in stored.items() if f" {n})" in body})
    why = "it has no layer that holds" if "Relu" in body else "no layer would be quantized"
    with pytest.raises(NothingQuantizedError, match=why):
        quantize_dynamic(model, tmp_path / "out.onnx", **options)
    assert not list(tmp_path.iterdir())
    converted = convert(model, tmp_path, allow_nothing=True, **options)
    assert converted.ops == [n.op_type for n in model.graph.node]
    assert MS not in {n.domain for n in converted.proto.graph.node}
