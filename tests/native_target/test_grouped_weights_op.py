"""Operators over weights in groups: the core's bits in each format, and refusals by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from octavo.core.kernels import GroupedWeight, PackedWeight, WeightFormat, checksum
from octavo.core.linear import Linear
from octavo.errors import ModelError
from octavo.ir import DOMAIN, VERSION
from octavo.onnx import convert_target, quantize_dynamic
from tests.core.layers import random_rows
from tests.core.statement import assert_same_bits
from tests.native_target.support import run
from tests.onnx.helpers import save

GROUPED = [f for f in WeightFormat if f.group]
formats = pytest.mark.parametrize("fmt", GROUPED, ids=lambda f: f.value)
rows_or_groups = pytest.mark.parametrize("by_rows", [False, True], ids=["groups", "rows"])
FLOAT = TensorProto.FLOAT


def weight(fmt: WeightFormat, n: int, k: int, seed: int = 0) -> GroupedWeight:
    """Integers over the whole range, scales of both signs, powers of two beside them."""
    r = np.random.default_rng([seed, n, k])
    size, most = (n, fmt.groups(k)), 1 << fmt.bits
    scale = r.choice([-1, 1], size) * 10 ** r.uniform(-3, -1, size)
    return GroupedWeight(
        r.integers(0, most, (n, k), dtype=np.uint8),
        scale.astype(np.float16),
        r.integers(0, most, size, dtype=np.uint8) if fmt.affine else None,
        (2.0 ** r.integers(-3, 4, n)).astype(np.float32),
        fmt,
        r.uniform(-0.1, 0.1, size).astype(np.float16) if fmt.minimum else None,
    )


def core(w: GroupedWeight, group: int, bias: np.ndarray, activation: str = "none") -> Linear:
    held = PackedWeight(w.pack(), w.n, w.k, w.channel_scale, None, group, w.format)
    return Linear(held, bias, activation)


def model(
    op: str,
    weights: Sequence[GroupedWeight],
    biases: Sequence[np.ndarray],
    *,
    group: int,
    outs: Sequence[str],
    activation: str = "none",
    more: Sequence[str] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """x [..., K] and what `more` names -> the node `dense` of `op` -> `outs`."""
    constants: dict[str, np.ndarray] = {}
    digests = []
    for i, (w, bias) in enumerate(zip(weights, biases, strict=True)):
        packed = w.pack()
        digests.append(checksum(packed))
        zeros = np.zeros(w.n, np.int8)
        parts = (packed.view(np.int8), w.channel_scale, zeros, bias)
        names = (f"W{i}", f"W{i}_scale", f"W{i}_zero_point", f"B{i}")
        constants |= dict(zip(names, parts, strict=True))
    one = op == "Linear"
    said = {
        "N": weights[0].n if one else [w.n for w in weights],
        "K": weights[0].k,
        "group_size": group,
        "activation": activation,
        "checksum": digests[0] if one else digests,
        "weight_format": weights[0].format.value,
    }
    names = ["x", *constants, *more]
    node = helper.make_node(op, names, list(outs), "dense", domain=DOMAIN, **said | attributes)
    return wrapped(node, ["x", *more], outs, constants)


def wrapped(
    node: onnx.NodeProto,
    inputs: Sequence[str],
    outs: Sequence[str],
    constants: dict[str, np.ndarray],
    kind: int = FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kind, None) for n in inputs],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def bias_of(n: int, seed: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.sweep(5)
@rows_or_groups
@formats
@pytest.mark.parametrize("shape", [(1, 64, 33), (5, 200, 40), (40, 31, 16)], ids=str)
def test_linear_has_the_bits_of_the_core(
    shape: tuple[int, int, int], fmt: WeightFormat, by_rows: bool
) -> None:
    m, k, n = shape
    group, w = 0 if by_rows else fmt.group, weight(fmt, n, k)
    bias, x = bias_of(n), random_rows(m, k)
    made = model("Linear", [w], [bias], group=group, outs=["y"], activation="silu")
    (y,) = run(made, {"x": x}, 2)
    assert_same_bits(y, core(w, group, bias, "silu")(x))


@formats
def test_residuals_and_several_layers_over_one_input(fmt: WeightFormat) -> None:
    n, k = 40, 150
    weights, biases = [weight(fmt, n, k, s) for s in (1, 2)], [bias_of(n, s) for s in (1, 2)]
    x, residual = random_rows(7, k), random_rows(7, n)
    first, second = (core(w, fmt.group, b)(x) for w, b in zip(weights, biases, strict=True))
    added = model("Linear", weights[:1], biases[:1], group=fmt.group, outs=["y"], more=["residual"])
    (y,) = run(added, {"x": x, "residual": residual})
    assert_same_bits(y, first + residual)
    both = model("GroupedLinear", weights, biases, group=fmt.group, outs=["a", "b"])
    for found, expected in zip(run(both, {"x": x}), (first, second), strict=True):
        assert_same_bits(found, expected)
    gated = model("GatedLinear", weights, biases, group=fmt.group, outs=["y"])
    (y,) = run(gated, {"x": x})
    assert_same_bits(y, first * second)


@formats
def test_a_table_has_the_numbers_of_its_groups(fmt: WeightFormat) -> None:
    w = weight(fmt, 50, 72)
    packed = w.pack()
    constants = {
        "W": packed.view(np.int8),
        "W_scale": w.channel_scale,
        "W_zero_point": np.zeros(w.n, np.int8),
    }
    said = {"V": w.n, "D": w.k, "shape": [8, 9], "packed": 1, "weight_format": fmt.value}
    said["checksum"] = checksum(packed)
    node = helper.make_node("Embedding", ["i", *constants], ["y"], "look", domain=DOMAIN, **said)
    indices = np.array([[0, 49, -1], [17, -50, 3]])
    (y,) = run(wrapped(node, ["i"], ["y"], constants, TensorProto.INT64), {"i": indices})
    assert y.shape == (2, 3, 8, 9)
    np.testing.assert_allclose(y.reshape(2, 3, 72), w.dequantize()[indices], rtol=1e-6)


W = weight(WeightFormat.INT4_32, 33, 70)
B = bias_of(33)


def dense(**changes: Any) -> onnx.ModelProto:
    return model("Linear", [W], [B], **{"group": 32, "outs": ["y"], **changes})


def refused(made: onnx.ModelProto) -> str:
    with pytest.raises(Exception, match="node 'dense'") as caught:
        run(made, {"x": random_rows(2, 70)})
    return " ".join(str(caught.value).split())


def with_constant(name: str, array: np.ndarray) -> onnx.ModelProto:
    made = dense()
    (tensor,) = [i for i in made.graph.initializer if i.name == name]
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    return made


BYTES = W.pack().size
CASES = {
    "groups of another length": (
        dense(group=128),
        "group_size is 128; it is 0 (one scale a row) or 32",
    ),
    "another format of as many bytes": (
        dense(weight_format="int4-64"),
        f"W0 has shape [{BYTES}]",
    ),
    "a format of a newer release": (
        dense(weight_format="int3-32"),
        "weights are in the format 'int3-32', which this release of Octavo does not know",
    ),
    "zero points beside those of groups": (
        with_constant("W0_zero_point", np.ones(33, np.int8)),
        "W_zero_point holds other numbers than 0",
    ),
    "damaged": (
        with_constant("W0", W.pack().view(np.int8) ^ np.int8(1)),
        "W does not hold what was written",
    ),
    "cut short": (with_constant("W0", W.pack().view(np.int8)[:-64]), "W has shape"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_node_is_refused_by_name(case: str) -> None:
    made, message = CASES[case]
    assert message.replace("W0 ", "W ") in refused(made)


def test_operators_without_groups_refuse_a_format_of_them(tmp_path: Any) -> None:
    w = np.zeros((4, 4, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    source = wrapped(node, ["x"], ["y"], {"w": w + bias_of(4).reshape(4, 1, 1, 1)})
    del source.opset_import[1]
    out = tmp_path / "native.onnx"
    quantize_dynamic(source, out, ["Conv"], target="native", verify=False)
    made = onnx.load(out)
    (conv,) = [n for n in made.graph.node if n.op_type == "Conv"]
    conv.attribute.append(helper.make_attribute("weight_format", "int4-32"))
    with pytest.raises(Exception, match=r"weight_format is int4-32; this operator has int8 alone"):
        run(made, {"x": np.zeros((1, 4, 5, 5), np.float32)})
    save(made, out)
    with pytest.raises(ModelError, match=r"ai.octavo.Conv\): weights are in the format 'int4-32'"):
        convert_target(out, tmp_path / "portable.onnx", to="portable")
