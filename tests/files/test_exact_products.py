"""int8 weights that become uint8: the same products, on every processor, without onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from octavo.files.exact_products import with_exact_products
from octavo.files.protobuf import WireError
from tests.graphs import text

K = 64
# Of full range: saturates where a processor can.
W = np.where(np.arange(K * K).reshape(K, K) % 3, 127, -126).astype(np.int8)
X = np.full((3, K), 255, np.uint8)
EXACT = X.astype(np.int32) @ W.astype(np.int32)
ZERO = np.zeros((), np.int8)
TWO = "uint8[n, 64] x", "int32[n, 64] y, int32[n, 64] z"
READS = "y = MatMulInteger (x, w, , {0}) z = MatMulInteger (x, w, , {0})"


def outputs(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    found = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(found.run(None, feeds))


def turned(model: onnx.ModelProto, folder: Path | None = None) -> bytes:
    found = with_exact_products(model.SerializeToString(), folder)
    assert found is not None
    made = onnx.load_model_from_string(found)
    assert len({i.name for i in made.graph.initializer}) == len(made.graph.initializer)
    return found


@pytest.mark.parametrize("form", ["raw", "int32_data", "external"])
@pytest.mark.parametrize("zero", ["zero", ""])
def test_two_products_of_one_weight(tmp_path: Path, form: str, zero: str) -> None:
    model = text(READS.format(zero), *TWO, {"w": W, "zero": ZERO})
    (held,) = (i for i in model.graph.initializer if i.name == "w")
    if form == "int32_data":
        held.CopyFrom(helper.make_tensor("w", TensorProto.INT8, W.shape, W.ravel().tolist()))
        assert not held.raw_data
    if form == "external":
        onnx.external_data_helper.set_external_data(held, "data", offset=16, length=W.nbytes)
        held.ClearField("raw_data")
        (tmp_path / "data").write_bytes(bytes(16) + W.tobytes())
        assert with_exact_products(model.SerializeToString(), None) is None
    found = turned(model, tmp_path)
    kept = {i.name: i.data_type for i in onnx.load_model_from_string(found).graph.initializer}
    assert set(kept.values()) == {TensorProto.UINT8} and len(kept) <= 3
    for y in outputs(found, {"x": X}):
        np.testing.assert_array_equal(y, EXACT)


SHARED = {
    "a zero point": ("y = MatMulInteger (x, w, , zero) z = MatMulInteger (x, v, , zero)", ""),
    "a turned weight": (
        "t = Transpose (wt) y = MatMulInteger (x, t, , zero) z = MatMulInteger (x, w, , zero)", "",
    ),
    "a table": (
        """y = MatMulInteger (x, w, , zero) s = MatMulInteger (x, w, , zero) g = Gather (w, i)
        c = Cast <to = 6> (g) z = Add (s, c)""", ", int64[n] i",
    ),
    "a body": (
        """y = MatMulInteger (x, w, , zero) z = If (c) <
        then_branch = t () => (int32[n, 64] o) { o = MatMulInteger (x, w, , zero) },
        else_branch = e () => (int32[n, 64] p) { p = MatMulInteger (x, v, , zero) }>""", ", bool c",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
def test_what_products_share(case: str) -> None:
    body, more = SHARED[case]
    stored = {"w": W, "v": W.copy(), "wt": np.ascontiguousarray(W.T), "zero": ZERO}
    feeds = {"x": X} | ({"i": np.array([0, 5, 9])} if "i" in more[-1:] else {})
    feeds |= {"c": np.array(False)} if more.endswith("c") else {}
    y, z = outputs(turned(text(body, TWO[0] + more, TWO[1], stored)), feeds)
    np.testing.assert_array_equal(y, EXACT)
    np.testing.assert_array_equal(z, EXACT + (W[[0, 5, 9]] if case == "a table" else 0))


@pytest.mark.parametrize("shape", [(), (K,), (2, K)], ids=str)
@pytest.mark.parametrize("has_zero", [True, False])
def test_dequantized_weights(shape: tuple[int, ...], has_zero: bool) -> None:
    """A scale for all, for each output, or for each block of 32 inputs."""
    scale = np.linspace(0.5, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    how = {0: "", 1: "<axis = 1>", 2: "<axis = 0, block_size = 32>"}[len(shape)]
    zero = ", zero" if has_zero else ""
    body = f"d = DequantizeLinear {how} (w, scale{zero}) y = MatMul (x, d) z = MatMul (x, d)"
    stored = {"w": W, "scale": scale, "zero": np.full(shape, 3, np.int8)}
    model = text(body, "float[n, 64] x", "float[n, 64] y, float[n, 64] z", stored, opset=21)
    model.ir_version = 10
    x = {"x": X.astype(np.float32)}
    each = np.repeat(scale, 32, axis=0) if len(shape) == 2 else scale
    exact = x["x"] @ ((W.astype(np.float32) - 3 * has_zero) * each)
    for found in outputs(turned(model), x):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=0.5)


NOT_NEEDED = {
    "one product": "y = MatMulInteger (x, w, , zero) z = Identity (y)",
    "uint8": "y = MatMulInteger (x, u, , mid) z = MatMulInteger (x, u, , mid)",
    "computed": "v = Neg (w) y = MatMulInteger (x, v) z = MatMulInteger (x, v)",
}


@pytest.mark.parametrize("case", NOT_NEEDED)
def test_what_is_left_to_onnx_runtime(case: str) -> None:
    stored = {"w": W, "zero": ZERO, "u": W.view(np.uint8), "mid": np.uint8(128)}
    model = text(NOT_NEEDED[case], *TWO, stored)
    assert with_exact_products(model.SerializeToString(), None) is None


def test_what_is_no_model() -> None:
    assert with_exact_products(b"", None) is None
    with pytest.raises(WireError):
        with_exact_products(b"\xff\xff", None)
