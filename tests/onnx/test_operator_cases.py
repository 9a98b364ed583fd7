"""ONNX's own operator cases: converted where we have a rule, let be where they are quantized.

A case holds a model of one operator, inputs and the outputs that it must give. Weights are graph
inputs there; they are made initializers here. The names are written out, so that naming the tests
does not generate all of ONNX's cases.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case import node as cases_of_nodes

from octavo.errors import AlreadyQuantizedError
from octavo.onnx import quantize_dynamic, session
from tests.graphs import INT8, PER_TENSOR, Array, assert_close, convert, run

# Importing a module makes its cases; making those of every operator, as ONNX's collect_testcases
# does, takes ten seconds.
MODULES = (
    "convinteger dequantizelinear dynamicquantizelinear gather gru lstm matmulinteger qlinearconv "
    "qlinearmatmul quantizelinear rnn"
).split()
LSTM = (
    "lstm_batchwise lstm_bidirectional lstm_defaults lstm_reverse lstm_with_initial_bias "
    "lstm_with_peepholes"
).split()
NO_INTEGER_FORM = (
    "gru_batchwise gru_bidirectional gru_defaults gru_reverse gru_seq_length "
    "gru_with_initial_bias rnn_seq_length simple_rnn_batchwise simple_rnn_bidirectional "
    "simple_rnn_defaults simple_rnn_reverse simple_rnn_with_initial_bias"
).split()
QUANTIZED = (
    "convinteger_with_padding convinteger_without_padding dequantizelinear dequantizelinear_axis "
    "dequantizelinear_blocked dequantizelinear_e4m3fn dequantizelinear_e4m3fn_float16 "
    "dequantizelinear_e4m3fn_zero_point dequantizelinear_e5m2 dequantizelinear_float4e2m1 "
    "dequantizelinear_int16 dequantizelinear_int2 dequantizelinear_int4 dequantizelinear_uint16 "
    "dequantizelinear_uint2 dequantizelinear_uint4 dynamicquantizelinear "
    "dynamicquantizelinear_max_adjusted dynamicquantizelinear_min_adjusted matmulinteger "
    "qlinearconv qlinearmatmul_2D_int8_float16 qlinearmatmul_2D_int8_float32 "
    "qlinearmatmul_2D_uint8_float16 qlinearmatmul_2D_uint8_float32 qlinearmatmul_3D_int8_float16 "
    "qlinearmatmul_3D_int8_float32 qlinearmatmul_3D_uint8_float16 qlinearmatmul_3D_uint8_float32 "
    "quantizelinear quantizelinear_axis quantizelinear_blocked_asymmetric "
    "quantizelinear_blocked_symmetric quantizelinear_e4m3fn quantizelinear_e5m2 "
    "quantizelinear_float4e2m1 quantizelinear_int16 quantizelinear_int2 quantizelinear_int4 "
    "quantizelinear_uint16 quantizelinear_uint2 quantizelinear_uint4"
).split()
# ONNX Runtime's CPU has no kernel for these, or its binding takes no such arrays.
NOT_RUNNING = (
    "convinteger_with_padding dequantizelinear_e4m3fn dequantizelinear_e4m3fn_float16 "
    "dequantizelinear_e4m3fn_zero_point dequantizelinear_e5m2 dequantizelinear_float4e2m1 "
    "dequantizelinear_int2 dequantizelinear_int4 dequantizelinear_uint2 dequantizelinear_uint4 "
    "quantizelinear_e4m3fn quantizelinear_e5m2 quantizelinear_float4e2m1 quantizelinear_int2 "
    "quantizelinear_int4 quantizelinear_uint2 quantizelinear_uint4"
).split()
WEIGHTS = {"Gather": (0,)}  # of others W, R, B and the peepholes
WEIGHTS |= dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 7))
OPSET, IR = 25, 11  # what both we and the installed ONNX Runtime take; some cases are newer


@cache
def operator_cases() -> dict[str, Any]:
    """All of `MODULES` by name, without `test_`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in MODULES:
            importlib.import_module(f"{cases_of_nodes.__name__}.{name}")
    return {case.name.removeprefix("test_"): case for case in cases_of_nodes._NodeTestCases}


@dataclass(frozen=True)
class Case:
    """One operator case, its weights stored in the model."""

    model: onnx.ModelProto
    feeds: dict[str, Array]
    expected: Sequence[Any]

    @property
    def node(self) -> onnx.NodeProto:
        return self.model.graph.node[0]

    def attribute(self, name: str, default: float) -> float:
        found = [onnx.helper.get_attribute_value(a) for a in self.node.attribute if a.name == name]
        return float(found[0]) if found else default


def load(name: str) -> Case:
    if name not in operator_cases():
        pytest.skip(f"ONNX {onnx.__version__} has no case {name}")
    found = operator_cases()[name]
    model = onnx.ModelProto()
    model.CopyFrom(found.model)
    graph = model.graph
    for opset in model.opset_import:
        opset.version = min(opset.version, OPSET)
    model.ir_version = min(model.ir_version, IR)
    inputs, expected = found.data_sets[0]
    feeds = {i.name: np.asarray(a) for i, a in zip(graph.input, inputs, strict=True)}
    node = graph.node[0]
    frozen = [node.input[i] for i in WEIGHTS.get(node.op_type, ()) if i < len(node.input)]
    weights = {n: feeds.pop(n) for n in frozen if n}
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    kept = [i for i in graph.input if i.name not in weights]
    del graph.input[:]
    graph.input.extend(kept)
    return Case(model, feeds, expected)


def quantized(case: Case, folder: Path, **options: Any) -> Any:
    """The converted model, in which nothing of the float operator is left."""
    done = convert(case.model, folder, **options)
    (outcome,) = done.report.layers
    assert outcome.quantized
    assert case.node.op_type not in done.ops
    return done


def all_close(found: Sequence[Array], case: Case, bound: float) -> None:
    for y, expected in zip(found, case.expected, strict=True):
        assert_close(y, np.asarray(expected), bound)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", [*LSTM, *NO_INTEGER_FORM])
def test_recurrent(tmp_path: Path, name: str) -> None:
    """LSTM in ONNX Runtime's operator, also `batchwise`, which it cannot run in float.

    As Octavo's own operators all, layout 1 and lengths too, but for peepholes.
    """
    case = load(name)
    if name in LSTM:
        portable = quantized(case, tmp_path)
        assert "DynamicQuantizeLSTM" in portable.ops
        all_close(run(portable.path, case.feeds), case, PER_TENSOR)
    else:
        portable = convert(case.model, tmp_path, allow_nothing=True)
        (outcome,) = portable.report.layers
        assert f"no int8 {case.node.op_type}" in outcome.reason
        assert portable.ops == [case.node.op_type]
        if not case.attribute("layout", 0):  # which is not for ONNX Runtime's CPU
            all_close(run(portable.path, case.feeds), case, 1e-5)
    native = convert(case.model, tmp_path, target="native", allow_nothing=True)
    (outcome,) = native.report.layers
    if name == "lstm_with_peepholes":
        assert "peepholes" in outcome.reason
        assert native.ops == ["LSTM"]
        return
    assert outcome.quantized
    assert [n.domain for n in native.proto.graph.node] == ["ai.octavo"]
    all_close(session(native.path).run(None, case.feeds), case, INT8)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gather_0", "nothing to win"),
        ("gather_1", "axis 1"),
        ("gather_negative_indices", "not a table of rows"),
    ],
)
def test_small_gather_stays_float(tmp_path: Path, name: str, reason: str) -> None:
    case = load(name)
    done = convert(case.model, tmp_path, allow_nothing=True)
    (outcome,) = done.report.layers
    assert not outcome.quantized and reason in outcome.reason
    np.testing.assert_array_equal(run(done.path, case.feeds)[0], case.expected[0])


def test_negative_indices_into_a_table_that_is_worth_it(tmp_path: Path) -> None:
    case = load("gather_negative_indices")
    table = np.random.default_rng(3).standard_normal((300, 32)).astype(np.float32)
    case.model.graph.initializer[0].CopyFrom(numpy_helper.from_array(table, "data"))
    case.model.graph.output[0].type.tensor_type.ClearField("shape")
    done = convert(case.model, tmp_path)
    assert done.report.layers[0].quantized
    expected = table[case.feeds["indices"]]
    half_step = np.abs(expected).max(axis=-1, keepdims=True) / 254
    assert (np.abs(run(done.path, case.feeds)[0] - expected) <= half_step * 1.001).all()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_operators(tmp_path: Path, name: str) -> None:
    """Refused, unless the rest is asked for: then they come through with the same bits."""
    case = load(name)
    with pytest.raises(AlreadyQuantizedError, match=case.node.op_type):
        quantize_dynamic(case.model, tmp_path / "refused.onnx")
    assert list(tmp_path.iterdir()) == []
    options: dict[str, Any] = {"allow_quantized": True, "allow_nothing": True}
    done = convert(case.model, tmp_path, **options)
    assert not any(o.quantized for o in done.report.layers)
    assert done.ops == [n.op_type for n in case.model.graph.node]
    if name in NOT_RUNNING:
        assert done.proto.graph.node == case.model.graph.node
        return
    expected = run(case.model, case.feeds)
    for x, y in zip(run(done.path, case.feeds), expected, strict=True):
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
