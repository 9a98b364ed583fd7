"""A model whose opset is raised computes what it did, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from octavo.errors import ModelError
from octavo.onnx import convert_target, quantize_dynamic, session
from octavo.onnx.read.normalize import newest_opset, normalize
from tests.graphs import F32, Array, build, convert, mlp, node, normal, run, text

IMAGE = "float[2, 3, 4, 4] x"
MATRIX = "float[2, 6] x"
SCALES = 's = Constant <value = float[4] {{1., 1., {}, {}}}> () y = {} <mode = "{}"> (x, s)'
# Operators that have changed between the opset behind which they stand and 21.
NODES: list[tuple[int, str, str]] = [
    *(
        (7, IMAGE, f'y = Upsample <mode = "{m}", scales = [1., 1., 2., 2.]> (x)')
        for m in ("nearest", "linear")
    ),
    *(
        (opset, IMAGE, SCALES.format(h, w, op, mode))
        for opset, op, sizes in (
            (9, "Upsample", ((2, 2), (2.5, 2.5), (1.7, 1.3))),
            (10, "Resize", ((2, 2), (2.5, 1.7), (0.5, 0.5), (0.7, 0.4))),
        )
        for h, w in sizes
        for mode in ("nearest", "linear")
    ),
    (7, MATRIX, "y, m = Dropout <ratio = 0.5> (x)"),
    (8, IMAGE, "y = Slice <axes = [2], starts = [1], ends = [3]> (x)"),
    (8, MATRIX, "y, i = TopK <k = 2> (x)"),
    (8, MATRIX, "a = Unsqueeze <axes = [0, 2]> (x) y = Squeeze <axes = [0, 2]> (a)"),
    (8, MATRIX, "y, z = Split <axis = 1, split = [2, 4]> (x)"),
    (8, IMAGE, "y = Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 2.> (x)"),
    (8, MATRIX, "y = Clip <min = -0.5, max = 0.5> (x)"),
    *((8, IMAGE, f"y = {op} <axis = {a}> (x)") for op in ("Softmax", "LogSoftmax") for a in (1, 3)),
    *(
        (8, IMAGE, f"y = Reduce{op} <axes = [1]> (x)")
        for op in "Sum Mean Max L1 L2 Prod LogSumExp".split()
    ),
    (8, IMAGE, "y = MaxPool <kernel_shape = [2, 2]> (x)"),
    (8, IMAGE, "y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)"),
    (
        8,
        IMAGE,
        "s = Constant <value = float[3] {1., 2., 3.}> () y = BatchNormalization (x, s, s, s, s)",
    ),
    (
        9,
        MATRIX,
        "i = Constant <value = int64[1, 2] {0, 1}> () "
        "u = Constant <value = float[1, 2] {5., 6.}> () y = Scatter (x, i, u)",
    ),
    (
        10,
        IMAGE,
        "r = Constant <value = float[1, 4] {0.5, 0.5, 3., 3.}> () "
        "b = Constant <value = int64[1] {0}> () "
        "y = RoiAlign <output_height = 2, output_width = 2> (x, r, b)",
    ),
    (17, "float[1, 8, 1] x", "y = DFT <axis = 1> (x)"),
    (18, "float[1, 6, 4, 4] x", "y, z = Split <axis = 1, num_outputs = 2> (x)"),
]


def result(model: onnx.ModelProto) -> Array:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": normal(*shape)})[0]


@pytest.mark.parametrize(("opset", "inputs", "body"), NODES)
def test_raised_models_compute_the_same(opset: int, inputs: str, body: str) -> None:
    model = text(body, inputs, opset=opset)
    expected = result(model)
    for needed in (10, 11, 13, 21):
        if needed > opset:
            raised = ir.from_proto(model)
            normalize(raised, "m", needed)
            np.testing.assert_allclose(
                result(ir.to_proto(raised)), expected, atol=1e-6, err_msg=str(needed)
            )


def scan(lengths: bool = False) -> onnx.ModelProto:
    states, step = {"s": (F32, [3]), "v": (F32, [3])}, {"s2": (F32, [3]), "o": (F32, [3])}
    body = build([node("Add", ["s", "v"], ["s2"]), node("Relu", ["s2"], ["o"])], states, step).graph
    inputs = ["lengths" if lengths else "", "z", "x"]
    weights = {"z": normal(2, 3), "lengths": np.array([5, 3])} if lengths else {"z": normal(2, 3)}
    loop = node("Scan", inputs, ["f", "y"], body=body, num_scan_inputs=1)
    return build([loop], {"x": (F32, ["b", "t", 3])}, ["y"], weights, opset=8)


CHANGED = {
    "Scan": (scan, 9),
    "Scan with lengths": (lambda: scan(True), 9),
    "Hardmax": (lambda: text("y = Hardmax <axis = 1> (x)", IMAGE, opset=8), 13),
    "GroupNormalization": (
        lambda: text(
            "y = GroupNormalization <num_groups = 3> (x, s, s)",
            "float[1, 6, 4] x",
            weights={"s": normal(3)},
            opset=18,
        ),
        21,
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_means_something_else_is_refused(name: str) -> None:
    make, changed = CHANGED[name]
    model = make()
    normalize(ir.from_proto(model), "m", changed - 1)
    with pytest.raises(
        ModelError, match=rf"{name.split(maxsplit=1)[0]} '.*'.* opset {changed} or newer"
    ):
        normalize(ir.from_proto(model), "m", changed)


NOT_RAISED: dict[str, dict[str, Any]] = {
    "BatchNormalization 'norm': Attribute spatial must have value 1": {"spatial": 0},
    "ScaledTanh 'norm': ONNX has no such operator": {"alpha": 1.0},
    "ThresholdedRelu 'norm': No Adapter": {"alpha": 1.0},
}


@pytest.mark.parametrize("message", NOT_RAISED)
def test_a_node_that_cannot_be_raised_is_named(message: str) -> None:
    kind = message.split(maxsplit=1)[0]
    inputs = ["x", "s", "s", "s", "s"] if kind == "BatchNormalization" else ["x"]
    nodes = [
        node("Relu", ["v"], ["x"]),
        node(kind, inputs, ["y"], name="norm", **NOT_RAISED[message]),
    ]
    model = build(nodes, {"v": (F32, [2, 3, 4])}, ["y"], {"s": normal(3, 4)}, opset=7)
    with pytest.raises(ModelError, match=f"^m has opset 7 and .* cannot raise {message}.*newer"):
        normalize(ir.from_proto(model), "m", 10)


def test_scan_with_a_batch_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Scan 'f_node' has no batch axis"):
        quantize_dynamic(scan(), tmp_path / "out.onnx", verify=False)


@pytest.mark.parametrize("options", [{}, {"target": "native"}, {"recipe": "int4"}], ids=str)
def test_opsets_that_the_runtime_opens(tmp_path: Path, options: dict[str, str]) -> None:
    """What is written is opened, or refused where the runtime has not every operator in it."""
    for opset in range(23, newest_opset() + 1):
        model = mlp()
        model.opset_import[0].version = opset
        if options or opset <= newest_opset("QuantizeLinear"):
            done = convert(model, tmp_path, **options)
            assert done.report.quantized and session(done.path)
            continue
        with pytest.raises(ModelError, match=rf"opset {opset}.* no QuantizeLinear.*target native"):
            quantize_dynamic(model, tmp_path / "refused.onnx", verify=False)
        assert not (tmp_path / "refused.onnx").exists()
        native = convert(model, tmp_path, target="native").path
        with pytest.raises(ModelError, match="no QuantizeLinear"):
            convert_target(native, tmp_path / "refused.onnx", to="portable")


def test_later_opsets_are_refused(tmp_path: Path) -> None:
    model = mlp()
    model.opset_import[0].version = newest_opset() + 1
    words = f"7 to {newest_opset()} are supported.* ONNX Runtime {ort.__version__} opens"
    with pytest.raises(ModelError, match=words):
        quantize_dynamic(model, tmp_path / "out.onnx")


@pytest.mark.parametrize("target", ["portable", "native"])
def test_sizes_below_0_are_unknown(tmp_path: Path, target: str) -> None:
    """Older exporters write -1 for a batch of any size, and ONNX Runtime takes any."""
    body = """h = MatMul (x, w) sizes = Shape (h) rows = Gather (sizes, i0) k = Range (i0, rows, i1)
        column = Unsqueeze (k, last) added = Cast <to = 1> (column) y = Add (h, added)"""
    stored = {"w": normal(64, 64), "i0": np.array(0), "i1": np.array(1), "last": np.array([1])}
    model = text(body, "float[n, 64] x", weights=stored)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    done = convert(model, tmp_path, target=target)
    x = normal(5, 64)
    found, exact = session(done.path).run(None, {"x": x})[0], run(model, {"x": x})[0]
    assert found.shape == exact.shape
    assert np.linalg.norm(found - exact) < 0.03 * np.linalg.norm(exact)
