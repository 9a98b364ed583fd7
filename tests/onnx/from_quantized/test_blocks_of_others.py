"""Files in blocks of ONNX Runtime's quantizer, and like GenAI's builder's, become native ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from octavo.core.kernels import WeightFormat
from octavo.core.metrics import relative_error
from octavo.errors import ModelError, NothingQuantizedError
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.graph.lower.blocks import BlockIntegers
from octavo.onnx import convert_target, session
from octavo.onnx.constants import Constants
from octavo.onnx.from_quantized import restore
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.read.load import load
from octavo.onnx.stored_blocks import StoredBlocks, group_length
from tests.graphs import normal, refused, run, save, text
from tests.onnx.from_quantized.forms import converted

K, N, ROWS = 96, 48, 400


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The quantizer says on standard error what it does."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)


def decoder_parts() -> onnx.ModelProto:
    body = """[lookup] r = Gather (table, ids)
        [up] h = MatMul (r, w)
        s = Relu (h)
        [down] y = MatMul (s, v)"""
    weights = {"table": normal(ROWS, K, seed=1)}
    weights |= {"w": normal(K, N, seed=2) / 10, "v": normal(N, K, seed=3) / 10}
    return text(body, "int64[m] ids", f"float[m, {K}] y", weights, opset=21)


FEED = {"ids": np.arange(7)}


def written(path: Path, **options: Any) -> Path:
    """`decoder_parts` as ONNX Runtime's quantizer makes it."""
    said = {"block_size": 32, "is_symmetric": True, "bits": 4, **options}
    quantizer = MatMulNBitsQuantizer(decoder_parts(), **said)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))
    return path


def weights(path: Path) -> list[np.ndarray]:
    """The float numbers that a file of stock operators holds in blocks."""
    model = load(path).model
    restore(RestoringContext(model, Constants(opset_of(model))))
    stored = [v.const_value for g in graphs_of(model) for v in g.initializers.values()]
    found = [t.floats() for t in stored if isinstance(t, StoredBlocks)]
    return sorted(found, key=lambda a: a.shape)


BOTH = ("MatMul", "Gather")
WRITTEN: dict[str, dict[str, Any]] = {
    "4 bits": {"op_types_to_quantize": BOTH},
    "4 bits, zero points": {"op_types_to_quantize": BOTH, "is_symmetric": False},
    "4 bits, integer activations": {"accuracy_level": 4},
    "8 bits": {"bits": 8},
    "8 bits, zero points": {"bits": 8, "is_symmetric": False},
    "QDQ": {"quant_format": QuantFormat.QDQ},
    "QDQ, zero points": {"quant_format": QuantFormat.QDQ, "is_symmetric": False},
    "QDQ per channel": {"quant_format": QuantFormat.QDQ, "channel_wised_quantize": True},
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("block", [32, 64, 128, 256])
@pytest.mark.parametrize("options", WRITTEN)
def test_the_quantizers_files_keep_their_integers(options: str, block: int, tmp_path: Path) -> None:
    path = written(tmp_path / "q.onnx", block_size=block, **WRITTEN[options])
    out, done = converted(path)
    assert done.layers["Linear"] == 2
    assert done.verification.status == "passed" and done.against_weights
    (was,), (now,) = run(path, FEED), session(out).run(None, FEED)
    assert relative_error(was, now) < 1e-4  # activations of 8 bits in groups, scales of 11 bits
    back = tmp_path / "portable.onnx"
    convert_target(out, back, to="portable")
    before, after = weights(path), weights(back)
    assert len(before) == len(after) >= 2
    for a, b in zip(before, after, strict=True):
        # The same integers; a table ends with a whole block, and lookups cut it.
        np.testing.assert_allclose(b[:, : a.shape[1]], a, rtol=2**-11, atol=1e-9)


def test_scales_that_float16_holds_are_the_same(tmp_path: Path) -> None:
    """Also those near its ends, which powers of two beside them bring within."""
    for factor in (1.0, 2.0**-20, 2.0**20):
        q, scale = np.arange(256, dtype=np.uint8).reshape(4, 4, 16), normal(16, seed=4)
        scale = (scale.astype(np.float16).astype(np.float32) * factor).astype(np.float32)
        made = nbits({"q": q, "s": scale}, "x, q, s")
        path = save(made, tmp_path / "q.onnx")
        _, done = converted(path)
        (outcome,) = done.outcomes
        assert outcome.notes == () and outcome.scheme.startswith("int4 per block of 32")


def nbits(stored: dict[str, np.ndarray], inputs: str, bits: int = 4, block: int = 32) -> Any:
    """x [m, 128] -> the MatMulNBits `fc` -> y [m, 4]."""
    said = f"K = 128, N = 4, bits = {bits}, block_size = {block}"
    body = f"[fc] y = com.microsoft.MatMulNBits <{said}> ({inputs})"
    return text(
        body, "float[m, 128] x" + ("" if "s" in stored else ", float[16] s"), weights=stored
    )


Q, S = np.full((4, 4, 16), 0x5A, np.uint8), normal(16, seed=4)
LEFT: dict[str, tuple[onnx.ModelProto, str]] = {
    "blocks of 16": (
        nbits({"q": Q.reshape(4, 8, 8), "s": normal(32)}, "x, q, s", block=16),
        "blocks of 16 inputs: kernels have groups of 32, 64, 128",
    ),
    "2 bits": (
        nbits({"q": Q[:, :, :8], "s": S}, "x, q, s", bits=2),
        "2 bits a weight, where kernels have 4 and 8",
    ),
    "float zero points": (
        nbits({"q": Q, "s": S, "z": S.reshape(4, 4)}, "x, q, s, z"),
        "its zero points are no integers",
    ),
    "another order of inputs": (
        nbits({"q": Q, "s": S, "g": np.zeros(128, np.int32)}, "x, q, s, , g"),
        "its inputs are in another order (g_idx)",
    ),
    "another size": (
        nbits({"q": Q, "s": S[:8]}, "x, q, s"),
        "target native has no operator for it in this form",
    ),
    "computed": (nbits({"q": Q}, "x, q, s"), "its weight is computed while the model runs"),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_kernels_cannot_hold_is_left_and_named(case: str, tmp_path: Path) -> None:
    model, reason = LEFT[case]
    path = save(model, tmp_path / "q.onnx")
    with refused(
        tmp_path, NothingQuantizedError, f"(1 com.microsoft.MatMulNBits: stays as it was: {reason})"
    ):
        convert_target(path, tmp_path / "native.onnx", to="native")


def test_a_table_of_another_axis_stays_and_the_rest_is_converted(tmp_path: Path) -> None:
    """Rows of 4 bits in blocks down the columns, beside a layer that kernels can hold."""
    r = np.random.default_rng(1)
    table = helper.make_tensor(
        "t", TensorProto.INT4, [64, K], r.integers(-8, 8, 64 * K).astype(np.int8)
    )
    body = f"""
        [look] r = com.microsoft.GatherBlockQuantized
            <gather_axis = 1, quantize_axis = 0, block_size = 32> (t, ids, ts)
        [fc] y = com.microsoft.MatMulNBits
            <K = {K}, N = 4, bits = 4, block_size = 32> (r, q, s)"""
    stored = {"t": table, "ts": normal(2, K), "q": Q[:, :3], "s": S[:12]}
    model = text(body, f"int64[{K}] ids", weights=stored, opset=21)
    _, done = converted(save(model, tmp_path / "q.onnx"))
    assert done.layers == {"Linear": 1}
    assert any("picked along 1" in note for note in done.notes)


@pytest.mark.parametrize("bits", [4, 8])
def test_as_genais_builder_ties_table_and_output_layer(bits: int, tmp_path: Path) -> None:
    """In float16, the table behind a Reshape of the output layer's integers, a bias inside."""
    r, blocks = np.random.default_rng(2), K // 32
    constants = {
        "lm_head_Q": r.integers(0, 256, (ROWS, blocks, 32 * bits // 8), dtype=np.uint8),
        "lm_head_S": (r.random((ROWS, blocks)) / 2**bits + 0.01).astype(np.float16),
        "shape": np.array([ROWS, K * bits // 8]),
        "bias": normal(ROWS).astype(np.float16),
    }
    said = f"bits = {bits}, block_size = 32"
    body = f"""rows = Reshape (lm_head_Q, shape)
        [embed] e = com.microsoft.GatherBlockQuantized
            <gather_axis = 0, quantize_axis = 1, {said}> (rows, ids, lm_head_S)
        [lm_head] y = com.microsoft.MatMulNBits
            <K = {K}, N = {ROWS}, accuracy_level = 4, {said}>
            (e, lm_head_Q, lm_head_S, , , bias)"""
    model = text(body, "int64[m] ids", f"float16[m, {ROWS}] y", constants)
    path = save(model, tmp_path / "q.onnx")
    out, done = converted(path)
    assert done.layers == {"Embedding": 1, "Linear": 1}
    made = onnx.load(out)
    packed = [
        i for i in made.graph.initializer if i.data_type == TensorProto.INT8 and i.dims[0] > ROWS
    ]
    assert len(packed) == 1, "the table is stored once"
    (was,), (now,) = run(path, FEED), session(out).run(None, FEED)
    assert now.dtype == np.float16
    assert relative_error(was.astype(np.float32), now.astype(np.float32)) < 1e-4


@pytest.mark.parametrize("stated", [", z", ""], ids=["zero points", "none: they are 0"])
def test_blocks_of_a_matrix_that_is_used_the_other_way_round(stated: str, tmp_path: Path) -> None:
    """DequantizeLinear along the last axis, behind which Gemm transposes."""
    r = np.random.default_rng(3)
    q = helper.make_tensor("q", TensorProto.UINT4, [N, K], r.integers(0, 16, N * K))
    z = helper.make_tensor("z", TensorProto.UINT4, [N, 3], r.integers(0, 16, N * 3))
    body = f"""w = DequantizeLinear <axis = 1, block_size = 32> (q, s{stated})
        [fc] y = Gemm <transB = 1> (x, w, b)"""
    stored = {"q": q, "z": z, "s": normal(N, 3, seed=5) / 20, "b": normal(N)}
    model = text(body, f"float[m, {K}] x", weights=stored, opset=21)
    path, feed = save(model, tmp_path / "q.onnx"), {"x": normal(5, K)}
    out, done = converted(path)
    assert done.layers == {"Linear": 1}
    (node,) = [n for n in onnx.load(out).graph.node if n.op_type == "Linear"]
    assert helper.get_node_attr_value(node, "weight_format") == b"int4-32-affine"
    assert relative_error(run(path, feed)[0], session(out).run(None, feed)[0]) < 1e-4


def test_scales_that_are_not_finite_are_named(tmp_path: Path) -> None:
    scale = S.copy()
    scale[9] = np.nan
    model = nbits({"q": Q, "s": scale}, "x, q, s")
    path = save(model, tmp_path / "q.onnx")
    with refused(tmp_path, ModelError, "a scale of its row 2 is NaN or infinite"):
        convert_target(path, tmp_path / "native.onnx", to="native", verify=False)


@pytest.mark.parametrize(
    ("block", "k", "group"),
    [(32, 96, 32), (64, 96, 64), (128, 96, 128), (256, 512, 128), (96, 192, 32), (320, 640, 64),
     (16, 96, None), (16, 16, 32), (40, 40, 64), (500, 500, 128),
     (0, 64, None), (-1, 64, None)],
)  # fmt: skip
def test_groups_that_blocks_are_made_of(block: int, k: int, group: int | None) -> None:
    assert group_length(block, k) == group


@pytest.mark.parametrize("k", [96, 200])
@pytest.mark.parametrize("block", [96, 256])
def test_long_blocks_are_several_groups(block: int, k: int) -> None:

    r, blocks = np.random.default_rng(6), -(-k // block)
    q, zero = r.integers(0, 16, (5, k), np.uint8), r.integers(0, 16, (5, blocks), np.uint8)
    held = BlockIntegers(q, np.float32(2.0) ** r.integers(-9, 1, (5, blocks)), zero, 4, block)
    length = group_length(block, k)
    assert length is not None
    tensor = StoredBlocks(
        lambda: held,
        (5, k),
        WeightFormat.grouped(4, length, True),
        dtype=onnx_ir.DataType.FLOAT,
        name="w",
    )
    assert np.array_equal(tensor.grouped().weight.dequantize(), tensor.floats())
    assert tensor.grouped().rounded == 0
