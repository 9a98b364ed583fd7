"""Files of ONNX Runtime's quantizers become native over the same integers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime.quantization as ortq
import pytest

from octavo.core.metrics import relative_error
from octavo.errors import (
    AlreadyQuantizedError,
    ModelError,
    NothingQuantizedError,
    VerificationError,
)
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.onnx import convert_target, inspect, quantize_dynamic, session
from octavo.onnx.constants import Constants
from octavo.onnx.from_quantized import linear, restore
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.read.load import load
from octavo.onnx.stored_weight import StoredWeight
from tests.graphs import Case, normal, refused, run, save, text
from tests.onnx.from_quantized import forms
from tests.onnx.from_quantized.forms import converted

QInt8, QUInt8 = ortq.QuantType.QInt8, ortq.QuantType.QUInt8
OPTIONS: dict[str, dict[str, Any]] = {
    "int8": {"weight_type": QInt8},
    "uint8": {"weight_type": QUInt8},
    "int8 per channel": {"weight_type": QInt8, "per_channel": True},
    "int8 per channel, 7 bits": {"weight_type": QInt8, "per_channel": True, "reduce_range": True},
    "uint8 per channel": {"weight_type": QUInt8, "per_channel": True},
}
OPERATORS = {
    "linear": {"Linear": 2},
    "conv": {"Conv": 1},
    "lstm": {"LSTM": 1},
    "table": {"Embedding": 1, "Linear": 1},
    "rows": {"Embedding": 1, "Linear": 1},
    "branch": {"Linear": 2},
}


def weights(path: Path) -> list[np.ndarray]:
    """The float numbers of every weight that a file of stock operators holds in integers."""
    model = load(path).model
    restore(RestoringContext(model, Constants(opset_of(model))))
    stored = [v.const_value for g in graphs_of(model) for v in g.initializers.values()]
    found = [t.floats() for t in stored if isinstance(t, StoredWeight)]
    return sorted((a.reshape(-1, a.shape[-1]) for a in found), key=lambda a: (a.size, a.sum()))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", forms.KINDS)
def test_same_integers_and_no_larger_error(kind: str, options: str, tmp_path: Path) -> None:
    make = forms.KINDS[kind]
    if kind == "conv" and "uint8" not in options:
        pytest.skip("ONNX Runtime has no ConvInteger with int8 weights")
    source, file = forms.dynamic(make, tmp_path, **OPTIONS[options])
    out, done = converted(file)
    assert done.layers == OPERATORS[kind]
    assert done.verification.status == "passed" and done.against_weights
    assert not any(n.op_type.startswith("Dynamic") for n in onnx.load(out).graph.node)
    feed = dict(make()[1])
    truth, was, now = run(source, feed), run(file, feed), session(out).run(None, feed)
    for exact, before, after in zip(truth, was, now, strict=True):
        assert relative_error(exact, after) < max(1.2 * relative_error(exact, before), 1e-4)
        assert relative_error(before, after) < 1e-2
    if not any("new integers" in note for o in done.outcomes for note in o.notes):
        convert_target(out, tmp_path / "portable.onnx", to="portable")
        pairs = zip(weights(file), weights(tmp_path / "portable.onnx"), strict=True)
        for a, b in pairs:
            if kind == "rows":  # the scale of the table is in that of the weight
                a, b = a / np.abs(a).max(), b / np.abs(b).max()  # noqa: PLW2901
            same = a.shape == b.shape and np.allclose(a, b, rtol=2e-6, atol=0)
            assert same or np.allclose(np.sort(a, None), np.sort(b, None), rtol=2e-6, atol=0)


def test_filters_keep_their_integers_where_they_fit(tmp_path: Path) -> None:
    _, file = forms.dynamic(forms.conv, tmp_path, weight_type=QUInt8)
    _, done = converted(file)
    (layer,) = (o for o in done.outcomes if o.quantized)
    assert layer.scheme == "uint8 per tensor, activations per row"
    assert layer.notes == (
        "1 channel with new integers: as they were, less the zero point, they leave int8",
    )


def test_a_convolution_that_integers_slow_down_becomes_float(tmp_path: Path) -> None:
    def make() -> Case:
        body = "[depthwise] h = Conv <group = 64> (x, w) [dense] y = Conv (h, v)"
        given = {"w": normal(64, 1, 3, 3), "v": normal(64, 64, 3, 3, seed=1)}
        model = text(body, "float[1, 64, 8, 8] x", "float[1, 64, 4, 4] y", given)
        return model, {"x": normal(1, 64, 8, 8)}

    _, file = forms.dynamic(make, tmp_path, weight_type=QUInt8)
    out, done = converted(file)
    assert done.layers == {"Conv": 1}
    (left,) = (o for o in done.outcomes if not o.quantized)
    assert left.layer.name == "depthwise" and "one channel each" in left.reason
    assert Counter(n.op_type for n in onnx.load(out).graph.node)["Conv"] == 2


HAND = {
    "DynamicQuantizeMatMul": "y = com.microsoft.DynamicQuantizeMatMul (x, w, w_s, w_z, b)",
    "MatMulIntegerToFloat": """
        y = com.microsoft.MatMulIntegerToFloat (x_q, w, x_s, w_s, x_z, w_z, b)""",
    "scales one by one": """
        [fc_quant] i = MatMulInteger (x_q, w, x_z, w_z)
        f = Cast <to = 1> (i)
        g = Mul (f, w_s)
        h = Mul (x_s, g)
        y = Add (h, b)""",
    "turned integers": """
        t = Transpose <perm = [1, 0, 2]> (x_q)
        [fc_quant] i = MatMulInteger (t, w, x_z, w_z)
        f = Cast <to = 1> (i)
        s = Mul (x_s, w_s)
        h = Mul (f, s)
        z = Add (h, b)
        y = Transpose <perm = [1, 0, 2]> (z)""",
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("unsigned", [False, True], ids=["int8", "uint8"])
@pytest.mark.parametrize("form", HAND)
def test_forms_of_products(form: str, unsigned: bool, tmp_path: Path) -> None:
    given = {**forms.integers(32, 24, unsigned=unsigned), "b": normal(24)}
    file = save(forms.by_hand(HAND[form], given, "2, 5, 24"), tmp_path / "m.onnx")
    out, done = converted(file)
    assert done.layers == {"Linear": 1}
    assert [n.domain for n in onnx.load(out).graph.node].count("ai.octavo") == 1
    x = normal(2, 5, 32, seed=9)
    exact = x @ ((given["w"].astype(np.float32) - given["w_z"]) * given["w_s"]) + given["b"]
    assert relative_error(exact, session(out).run(None, {"x": x})[0]) < 1e-4


ATTENTION = "[att] y = com.microsoft.QAttention <num_heads = 4> (x_q, w, b, x_s, w_s, {}, x_z, w_z)"


def attention(mask: str, folder: Path) -> Path:
    given = {**forms.integers(32, 96), "b": normal(96)}
    body = ATTENTION.format("mask" if mask else "")
    return save(forms.by_hand(body, given, "2, 5, 32", mask), folder / "m.onnx")


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
def test_fused_attention(masked: bool, tmp_path: Path) -> None:
    feed: dict[str, np.ndarray] = {"x": normal(2, 5, 32, seed=4)}
    if masked:
        feed["mask"] = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    file = attention(", int32[2, 5] mask" if masked else "", tmp_path)
    out, done = converted(file)
    assert done.layers == {"Linear": 1}
    before, after = run(file, feed)[0], session(out).run(None, feed)[0]
    assert relative_error(before, after) < 1e-3


def test_an_attention_over_lengths_stays_and_says_why(tmp_path: Path) -> None:
    file = attention(", int32[2] mask", tmp_path)
    with refused(tmp_path, NothingQuantizedError, "QAttention", "[batch, sequence]"):
        converted(file)


def test_a_bias_in_integers_of_early_quantizers(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    given = {
        "w": random.integers(0, 255, (64, 64, 3)).astype(np.uint8),
        "w_s": np.array(0.01, np.float32),
        "w_z": np.array(128, np.uint8),
        "b": normal(64),
        "column": np.array([1, 64, 1]),
    }
    body = """x_q, x_s, x_z = DynamicQuantizeLinear (x)
        s = Mul (x_s, w_s)
        [conv_quant] i = ConvInteger (x_q, w, x_z, w_z)
        steps = Div (b, s)
        whole = Floor (steps)
        b_q = Cast <to = 6> (whole)
        b_column = Reshape (b_q, column)
        sum = Add (i, b_column)
        f = Cast <to = 1> (sum)
        y = Mul (f, s)"""
    model = text(body, "float[2, 64, 9] x", "float[2, 64, 7] y", given)
    file = save(model, tmp_path / "m.onnx")
    out, done = converted(file)
    assert done.layers == {"Conv": 1} and len(onnx.load(out).graph.node) == 1
    x = normal(2, 64, 9, seed=5)
    before, after = run(file, {"x": x})[0], session(out).run(None, {"x": x})[0]
    assert relative_error(before, after) < 1e-3


@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
def test_pairs_of_a_calibration_become_rows(per_channel: bool, tmp_path: Path) -> None:
    options = {"quant_format": ortq.QuantFormat.QDQ, "per_channel": per_channel}
    source, file = forms.static(forms.linear, tmp_path, weight_type=QInt8, **options)
    out, done = converted(file)
    assert done.layers == {"Linear": 2}
    assert not any("Quantize" in n.op_type for n in onnx.load(out).graph.node)
    feed = dict(forms.linear()[1])
    exact, before = run(source, feed)[0], run(file, feed)[0]
    after = session(out).run(None, feed)[0]
    assert relative_error(exact, after) <= relative_error(exact, before)


def test_operators_of_a_calibration_are_refused_by_name(tmp_path: Path) -> None:
    options = {"quant_format": ortq.QuantFormat.QOperator}
    _, file = forms.static(forms.linear, tmp_path, weight_type=QInt8, **options)
    with refused(tmp_path, NothingQuantizedError, "QLinearMatMul", "calibration"):
        converted(file)


def test_a_layer_that_was_read_wrongly_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = forms.dynamic(forms.linear, tmp_path, weight_type=QInt8)
    right = linear._right

    def wrong(found: Any, t: Any) -> Any:
        b, alpha = right(found, t)
        return b, alpha * 3

    monkeypatch.setattr(linear, "_right", wrong)
    with refused(tmp_path, VerificationError, "layer", "of the file is not what", "verify=False"):
        converted(file)


def test_the_report_tells_every_layer(tmp_path: Path) -> None:
    _, file = forms.dynamic(
        forms.linear, tmp_path, weight_type=QUInt8, nodes_to_exclude=["down"], per_channel=True
    )
    _, done = converted(file)
    told = {o.layer.name: o for o in done.outcomes}
    assert told["up"].scheme == "uint8 per channel, activations per row"
    assert told["down"].reason == "float in the file that it came from"
    assert "uint8 per channel" in str(done) and "the file as it was" in str(done)
    assert inspect(tmp_path / "native.onnx").quantized.startswith("1 of 2 layers, by Octavo")
    assert "quantize_dynamic" in inspect(file).quantized
    assert "takes 1 MatMul" in inspect(file).quantized
    with refused(tmp_path, AlreadyQuantizedError, "convert-target --to native"):
        quantize_dynamic(file, tmp_path / "again.onnx")


def test_weights_in_a_data_file_stay_there(tmp_path: Path) -> None:
    _, file = forms.dynamic(forms.linear, tmp_path, weight_type=QUInt8)
    save(onnx.load(file), tmp_path / "m.onnx", external="m.data")
    out, done = converted(tmp_path / "m.onnx")
    assert done.layers == {"Linear": 2} and len(list(tmp_path.glob("native*"))) == 2
    feed = dict(forms.linear()[1])
    assert relative_error(run(file, feed)[0], session(out).run(None, feed)[0]) < 1e-3
    out.unlink()
    (tmp_path / "m.data").unlink()
    with refused(tmp_path, ModelError, "m.data", "missing"):
        converted(tmp_path / "m.onnx")


def test_filters_of_128_steps_become_smaller_ones(tmp_path: Path) -> None:
    """255 less the zero point 127 is no int8; the 127 steps the other way are."""
    q = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    q[3, :, 1] = 255
    given = {"w": q, "w_s": np.array(0.01, np.float32), "w_z": np.array(127, np.uint8)}
    body = """x_q, x_s, x_z = DynamicQuantizeLinear (x)
        [conv_quant] i = ConvInteger (x_q, w, x_z, w_z)
        f = Cast <to = 1> (i)
        s = Mul (x_s, w_s)
        y = Mul (f, s)"""
    model = text(body, "float[2, 64, 9] x", "float[2, 64, 7] y", given)
    out, done = converted(save(model, tmp_path / "m.onnx"))
    (layer,) = (o for o in done.outcomes if o.quantized)
    assert layer.notes[0].startswith("1 channel with new integers")
    x = normal(2, 64, 9, seed=5)
    before, after = run(tmp_path / "m.onnx", {"x": x})[0], session(out).run(None, {"x": x})[0]
    assert relative_error(before[:, 3], after[:, 3]) < 1e-2
