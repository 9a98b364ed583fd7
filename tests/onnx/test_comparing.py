"""`octavo.onnx.compare`: outputs, each layer alone and accumulated, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic as ort_quantize

from octavo.core.kernels import unpack
from octavo.errors import AlreadyQuantizedError, InputDataError, ModelError, OptionError
from octavo.onnx import compare, quantize_dynamic, session
from octavo.results.comparison import Comparison, LayerDifference
from tests import graphs
from tests.graphs import F32, MS, Array, Case, mlp, normal, refused, run, save, snapshot, text
from tests.onnx.references.linear import reference_native as reference

# Rounding to 8 bits leaves 40 dB for normal data, and float16 70. A doubled scale has 0 dB alone,
# and 19.5 behind the sigmoid that a layer of target native took in, which saturates.
SOUND = 33.0
BROKEN = 20.0
TARGETS = pytest.mark.parametrize("target", ["portable", "native"])


def attention() -> Case:
    body = f"[att] a = {MS}.Attention <num_heads = 4> (x, w, b) [out] y = MatMul (a, v)"
    weights = {"w": normal(32, 96, seed=1) / 5, "b": normal(96, seed=2), "v": normal(32, 32)}
    shape = "float[b, s, 32]"
    return text(body, f"{shape} x", f"{shape} y", weights), {"x": normal(2, 6, 32)}


def branches() -> Case:
    """A layer, then an If whose branches hold one each over its output; x is read inside too."""
    body = """[first] h = MatMul (x, w0) [choice] r = If (c) <
        then_branch = one () => (float[] ty) { [then_fc] tp = MatMul (h, w1) ty = Add (tp, x) },
        else_branch = two () => (float[] ey) { [else_fc] ep = MatMul (h, w2) ey = Add (ep, x) }>
        y = Relu (r)"""
    weights = {f"w{i}": normal(32, 32, seed=i) for i in range(3)}
    model = text(body, "float[m, 32] x, bool c", "float[m, 32] y", weights)
    return model, {"x": normal(5, 32), "c": np.array(True)}


CASES: dict[str, Callable[[], Case]] = {
    "linear": graphs.linear,
    "gelu and residual": graphs.wide,
    "gemm": graphs.gemm,
    "grouped": graphs.grouped,
    "tied": graphs.tied,
    "table": graphs.table,
    "lstm": lambda: graphs.recurrent("LSTM"),
    "attention": attention,
    "if": branches,
}


class Files:
    """A float model, and what was made of it."""

    def __init__(self, folder: Path, case: Case, target: str = "portable", **options: Any) -> None:
        model, self.feed = case
        self.floating = save(model, folder / "float.onnx")
        self.quantized = folder / "int8.onnx"
        given = {"target": target, "verify": False, **options}
        self.report = quantize_dynamic(self.floating, self.quantized, **given)

    def compare(self) -> Comparison:
        return compare(self.floating, self.quantized, self.feed)

    def edit(self, **change: Callable[[Array], Array]) -> None:
        """Replaces stored tensors, wherever they lie, by what `change` makes of them."""
        model = onnx.load(self.quantized)
        left = set(change)
        for stored in (i for graph in all_graphs(model.graph) for i in graph.initializer):
            if stored.name in change:
                array = change[stored.name](numpy_helper.to_array(stored))
                stored.CopyFrom(numpy_helper.from_array(array, stored.name))
                left.discard(stored.name)
        assert not left
        onnx.save(model, self.quantized)


def all_graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return [graph, *(g for i in inner for g in all_graphs(i))]


def by_name(found: Comparison) -> dict[str, LayerDifference]:
    return {layer.name: layer for layer in found.layers}


def doubled(array: Array) -> Array:
    return array * np.float32(2)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Three layers in a row, which no test may change."""
    return Files(tmp_path_factory.mktemp("linear"), graphs.linear())


@pytest.mark.sweep(4)
@TARGETS
@pytest.mark.parametrize("case", CASES)
def test_every_quantized_layer_is_compared_and_sound(
    case: str, target: str, tmp_path: Path
) -> None:
    files = Files(tmp_path, CASES[case](), target)
    before = snapshot(tmp_path)
    found = files.compare()
    assert sorted(by_name(found)) == sorted(o.layer.name for o in files.report.quantized)
    assert (found.target, found.inputs, found.runs) == (target, "given", 1)
    assert found.left_float == len(files.report.left_float)
    for layer in found.layers:
        assert layer.alone is not None and layer.accumulated is not None
        assert layer.alone.sqnr_db > SOUND, layer
        assert layer.accumulated.sqnr_db > SOUND - 4, layer
        assert layer.alone.values == layer.accumulated.values > 0
    assert all(o.difference is not None and o.difference.sqnr_db > SOUND - 4 for o in found.outputs)
    assert snapshot(tmp_path) == before


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", ["linear", "gelu and residual", "grouped", "attention"])
@TARGETS
def test_a_broken_layer_comes_first(case: str, target: str, tmp_path: Path) -> None:
    files = Files(tmp_path, CASES[case](), target)
    for outcome in files.report.quantized:
        scales = [f"{weight}_scale" for weight, _ in outcome.layer.weights]
        files.edit(**dict.fromkeys(scales, doubled))
        first, *others = files.compare().layers
        assert first.name == outcome.layer.name
        assert first.alone is not None and first.alone.sqnr_db < BROKEN
        assert all(o.alone is not None and o.alone.sqnr_db > SOUND for o in others)
        files.edit(**dict.fromkeys(scales, lambda array: array / np.float32(2)))


def test_factors_of_one_node_are_measured_together(tmp_path: Path) -> None:
    found = by_name(Files(tmp_path, graphs.grouped("Mul"), "native").compare())
    assert "measured together with k" in found["q"].notes
    assert "measured together with q" in found["k"].notes


@TARGETS
def test_the_first_layers_error_reaches_the_next_only_accumulated(
    target: str, tmp_path: Path
) -> None:
    files = Files(tmp_path, graphs.linear(), target)
    sound = by_name(files.compare())
    files.edit(w0_scale=doubled)
    broken = by_name(files.compare())
    for name in ("layer1", "layer2"):
        assert broken[name].alone == sound[name].alone
        assert broken[name].accumulated.sqnr_db < 1.0


def test_the_numbers_are_those_of_the_definition(tmp_path: Path) -> None:
    """Layer 1 of three in target native, whose activation is inside of it, in NumPy by hand."""
    model, feed = graphs.linear()
    files = Files(tmp_path, (model, feed), "native")
    layer = by_name(files.compare())["layer1"]
    assert layer.at == ("r1",)

    def arrays_of(proto: onnx.ModelProto) -> dict[str, Array]:
        return {i.name: numpy_helper.to_array(i) for i in proto.graph.initializer}

    floats = {n: a.astype(np.float64) for n, a in arrays_of(model).items()}
    stored = arrays_of(onnx.load(files.quantized))

    def held(name: str, x: Array) -> Array:
        packed = np.ascontiguousarray(stored[f"{name}_quantized"]).view(np.uint8).reshape(-1)
        scale = stored[f"{name}_scale"]
        return np.maximum(reference(x, unpack(packed, 64, 64), scale, 0 * scale, 0 * scale), 0)

    x1 = np.maximum(feed["x"].astype(np.float64) @ floats["w0"], 0)
    expected = np.maximum(x1 @ floats["w1"], 0)
    signal = float((expected**2).sum())
    for got, difference in (
        (held("w1", x1), layer.alone),
        (held("w1", held("w0", feed["x"])), layer.accumulated),
    ):
        noise = got - expected
        decibels = 10 * math.log10(signal / (noise**2).sum())
        assert difference.sqnr_db == pytest.approx(decibels, abs=0.01)
        assert difference.error == pytest.approx(0.5 * (noise**2).sum() / signal, rel=2e-3)
        assert difference.max_error == pytest.approx(np.abs(noise).max(), rel=2e-3)
        cosine = (got * expected).sum() / math.sqrt(signal * (got**2).sum())
        assert difference.cosine == pytest.approx(cosine, abs=1e-7)
        assert difference.values == expected.size


def test_outputs_are_those_of_the_files_as_they_run(linear: Files) -> None:
    (output,) = linear.compare().outputs
    a = run(linear.floating, linear.feed)[0]
    b = session(linear.quantized).run(None, dict(linear.feed))[0]
    assert output.difference.max_error == np.abs(a.astype(np.float64) - b).max()
    assert output.top1 == np.mean(a.argmax(-1) == b.argmax(-1))


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"quant_format": "qdq"}, "012"),
        ({"cpu": "any"}, "012"),
        ({"recipe": "float16"}, "012"),
        ({"nodes_to_exclude": ["layer1"]}, "02"),
    ],
)
def test_other_forms_of_portable_layers_are_known(
    options: dict[str, Any], layers: str, tmp_path: Path
) -> None:
    found = Files(tmp_path, graphs.linear(), **options).compare()
    assert sorted(by_name(found)) == [f"layer{i}" for i in layers]
    assert found.left_float == 3 - len(layers)


@pytest.mark.parametrize("case", ["linear", "tied"])
def test_files_of_onnx_runtimes_quantizer_are_compared(case: str, tmp_path: Path) -> None:
    model, feed = CASES[case]()
    floating, quantized = save(model, tmp_path / "float.onnx"), tmp_path / "ort.onnx"
    ort_quantize(floating, quantized)
    found = compare(floating, quantized, feed)
    assert found.target == "portable"
    assert all(layer.alone.sqnr_db > SOUND for layer in found.layers)
    assert len(found.layers) == {"linear": 3, "tied": 2}[case]


@TARGETS
def test_layers_in_a_subgraph_are_measured_at_the_node_around_them(
    target: str, tmp_path: Path
) -> None:
    files = Files(tmp_path, branches(), target)
    files.edit(w1_scale=doubled)
    found = files.compare()
    assert {layer.name for layer in found.layers[:2]} == {"then_fc", "else_fc"}
    for layer in found.layers[:2]:
        assert layer.at == ("r",)
        assert layer.alone.sqnr_db < BROKEN
        assert "If 'choice'" in layer.notes[0] and "together with" in layer.notes[1]
    assert found.layers[2].alone.sqnr_db > SOUND


def test_nodes_that_are_cut_off_may_hold_subgraphs(tmp_path: Path) -> None:
    """The If between the layers goes, with what only its branches read."""
    model, feed = branches()
    model.graph.node.insert(0, helper.make_node("Neg", ["x"], ["n"]))
    for attribute in model.graph.node[2].attribute:
        attribute.g.node[1].input[1] = "n"
    model.graph.node.append(helper.make_node("MatMul", ["y", "w0"], ["z"], name="last"))
    model.graph.output.append(helper.make_tensor_value_info("z", F32, None))
    left = ["then_fc", "else_fc"]
    found = Files(tmp_path, (model, feed), nodes_to_exclude=left).compare()
    assert sorted(by_name(found)) == ["first", "last"]
    assert found.left_float == 2
    assert all(layer.alone.sqnr_db > SOUND for layer in found.layers)


def test_numbers_that_are_not_finite_are_shown(tmp_path: Path) -> None:
    files = Files(tmp_path, graphs.linear())
    third = np.arange(64) == 3
    files.edit(w2_scale=lambda old: np.where(third, np.float32(np.inf), old))
    found = files.compare()
    first = found.layers[0]
    assert (first.name, first.alone.non_finite, first.alone.error) == ("layer2", 5, math.inf)
    assert 0 < found.outputs[0].difference.non_finite <= 5  # Relu makes zeros of -inf
    data = json.loads(found.to_json())
    assert data["layers"][0]["alone"]["error"] is None
    assert Comparison.from_dict(data) == found
    assert "not finite" in str(found)


def test_inputs_are_made_up_where_none_are_given(linear: Files) -> None:
    found = compare(linear.floating, linear.quantized)
    assert (found.inputs, found.runs) == ("made up", 4)
    assert compare(linear.floating, linear.quantized) == found


def test_several_runs_of_different_lengths_count_as_one(linear: Files) -> None:
    feeds = [{"x": normal(m, 64, seed=m)} for m in (2, 5)]
    found = compare(linear.floating, linear.quantized, feeds)
    assert found.runs == 2
    assert found.layers[0].alone.values == 7 * 64
    whole = {"x": np.concatenate([f["x"] for f in feeds])}
    together = compare(linear.floating, linear.quantized, whole)
    # Rows are quantized by themselves, so that the batch they are in makes no difference.
    for a, b in zip(found.layers, together.layers, strict=True):
        assert a.alone.sqnr_db == pytest.approx(b.alone.sqnr_db, abs=1e-6)


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    kept = {v.name for v in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    for node in model.graph.node:
        node.name = f"other_{node.name}"
        node.input[:] = [n if n in kept else f"other_{n}" for n in node.input]
        node.output[:] = [n if n in kept else f"other_{n}" for n in node.output]
    return model


def test_models_that_do_not_belong_together_are_refused(linear: Files, tmp_path: Path) -> None:
    other = save(renamed(mlp(3, 64)), tmp_path / "other.onnx")
    table = save(graphs.table()[0], tmp_path / "table.onnx")
    wider, gone = save(mlp(3, 48), tmp_path / "wider.onnx"), tmp_path / "gone.onnx"
    wrong: list[tuple[Any, Any, type[Exception], list[str]]] = [
        (other, linear.quantized, ModelError, ["3 of the 3", "'other_layer0'", "int8.onnx"]),
        (linear.floating, table, ModelError, ["float.onnx has no input 'i'", "table.onnx"]),
        (wider, linear.quantized, ModelError, ["int8.onnx fails on inputs", "wider.onnx"]),
        (linear.quantized, linear.floating, AlreadyQuantizedError, ["int8.onnx"]),
        (linear.floating, linear.floating, ModelError, ["float.onnx holds no quantized layers"]),
        (linear.floating, gone, ModelError, ["gone.onnx does not exist"]),
        (gone, linear.quantized, ModelError, ["gone.onnx does not exist"]),
        (linear.floating, 3, OptionError, ["quantized_model is a int"]),
    ]
    for floating, quantized, kind, said in wrong:
        with refused(tmp_path, kind, *said):
            compare(floating, quantized)


@pytest.mark.parametrize(
    ("feed", "said"),
    [
        ({"X": normal(5, 64)}, "no input 'X'"),
        ({"x": normal(5, 63)}, "the shape [5, 63]"),
        ({}, "'x' is missing"),
        ([], "holds no runs"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(feed: Any, said: str, linear: Files) -> None:
    with refused(linear.floating.parent, InputDataError, said):
        compare(linear.floating, linear.quantized, feed)


def masked() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """x [b, t, 64] -> y [b, t, 16], and pooled [b, 16]; the second text has 6 tokens of padding.

    All that is quantized of a hidden row is a number that is multiplied by 0.
    """
    w = normal(64, 16)
    w[0] = 0
    body = """[up] y = MatMul (x, w) pooled = Gather <axis = 1> (y, first)
        m = Cast <to = 1> (attention_mask) seen = ReduceMax <keepdims = 0> (m)"""
    inputs: Mapping[str, Any] = {"w": w, "first": np.int64(0)}
    shapes = "float[b, t, 64] x, int64[b, t] attention_mask"
    model = text(body, shapes, "float[b, t, 16] y, float[b, 16] pooled, float seen", inputs)
    x, mask = normal(2, 16, 64), np.ones((2, 16), np.int64)
    mask[1, 10:] = 0
    x[..., 0] = np.where(mask, 0, 1e3)
    return model, {"x": x, "attention_mask": mask}


def test_padding_counts_for_nothing(tmp_path: Path) -> None:
    model, feed = masked()
    everything = {**feed, "attention_mask": np.ones((2, 16), np.int64)}
    files = Files(tmp_path, (model, feed), verify=True, check_inputs=feed)
    check = files.report.verification
    assert (check.padding, check.status) == (6, "passed")
    assert "6 rows of padding" in str(files.report)
    whole = quantize_dynamic(model, tmp_path / "w.onnx", check_inputs=everything).verification
    assert whole.error > 0.01 > 1e-4 > check.error
    found, all_rows = (compare(files.floating, files.quantized, x) for x in (feed, everything))
    assert (found.padding, all_rows.padding) == (6, 0)
    for one, other in (
        (found.outputs[0].difference, all_rows.outputs[0].difference),
        (found.layers[0].alone, all_rows.layers[0].alone),
        (found.layers[0].accumulated, all_rows.layers[0].accumulated),
    ):
        assert other.error > 0.01 > 1e-4 > one.error
        assert other.values - one.values == 6 * 16
    assert found.outputs[1] == all_rows.outputs[1]  # 16 wide, as there are 16 tokens
    assert found.layers[0].inputs is not None and found.layers[0].inputs.largest < 10
