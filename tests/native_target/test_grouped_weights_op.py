"""Operators over weights in groups: the core's bits in each format, and refusals by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from octavo.core.kernels import GroupedWeight, PackedWeight, WeightFormat, checksum
from octavo.core.linear import Linear
from octavo.errors import ModelError
from octavo.onnx import convert_target
from tests.core.layers import random_rows
from tests.core.statement import assert_same_bits
from tests.graphs import conv, convert, normal, save
from tests.native_target.nodes import REFUSALS, Change, dense_model, opened, puts, sets
from tests.native_target.nodes import run as run_one

formats = pytest.mark.parametrize("fmt", [f for f in WeightFormat if f.group], ids=str)


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
    op: str, weights: Sequence[GroupedWeight], biases: Sequence[np.ndarray], **more: Any
) -> onnx.ModelProto:
    """x [..., K] and what `more` names -> the node `dense` of `op` -> `outs`."""
    layers = [
        (w.pack().view(np.int8), w.channel_scale, np.zeros(w.n, np.int8), bias)
        for w, bias in zip(weights, biases, strict=True)
    ]
    fmt = weights[0].format
    said: dict[str, Any] = {"K": weights[0].k, "group_size": fmt.group, "weight_format": fmt.value}
    inputs, outs = dict.fromkeys(["x", *more.pop("also", [])]), more.pop("outs", ["y"])
    return dense_model(op, layers, inputs, outs, **said | more)


def run(made: onnx.ModelProto, **feeds: np.ndarray) -> Any:
    return opened(made, 2).run(None, feeds)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("by_rows", [False, True], ids=["groups", "rows"])
@formats
def test_layers_have_the_bits_of_the_core(fmt: WeightFormat, by_rows: bool) -> None:
    """One with a residual, two over one input, and two whose outputs are multiplied."""
    n, k, group = 40, 150, 0 if by_rows else fmt.group
    weights, biases = [weight(fmt, n, k, s) for s in (1, 2)], [normal(n, seed=s) for s in (1, 2)]
    x, residual = random_rows(7, k), random_rows(7, n)
    first, second = (core(w, group, b)(x) for w, b in zip(weights, biases, strict=True))
    gelu, said = core(weights[0], group, biases[0], "gelu")(x), {"group_size": group}
    one = model("Linear", weights[:1], biases[:1], also=["residual"], activation="gelu", **said)
    two = model("GroupedLinear", weights, biases, outs=["a", "b"], **said)
    (y,), (a, b) = run(one, x=x, residual=residual), run(two, x=x)
    (product,) = run(model("GatedLinear", weights, biases, **said), x=x)
    for found, wanted in ((y, gelu + residual), (a, first), (b, second), (product, first * second)):
        assert_same_bits(found, wanted)


@formats
def test_a_table_has_the_numbers_of_its_groups(fmt: WeightFormat) -> None:
    w, indices = weight(fmt, 50, 72), np.array([[0, 49, -1], [17, -50, 3]])
    packed, zeros = w.pack().view(np.int8), np.zeros(50, np.int8)
    constants = {"W": packed, "W_scale": w.channel_scale, "W_zero_point": zeros}
    said = {"V": 50, "D": 72, "shape": [8, 9], "packed": 1, "weight_format": fmt.value}
    said["checksum"] = checksum(w.pack())
    y = run_one("Embedding", {"i": indices}, constants, **said)
    assert y.shape == (2, 3, 8, 9)
    np.testing.assert_allclose(y.reshape(2, 3, 72), w.dequantize()[indices], rtol=1e-6)


W = weight(WeightFormat.INT4_32, 33, 70)
BYTES = W.pack().view(np.int8)
CASES: dict[str, tuple[Change, str]] = {
    "groups of another length": (sets("group_size", 128), "group_size is 128; .* or 32"),
    "another format of as many bytes": (sets("weight_format", "int4-64"), "W has shape"),
    "a format of a newer release": (sets("weight_format", "int3-32"), "the format 'int3-32'"),
    "zero points beside those of groups": (puts("W_zero_point", np.ones(33, np.int8)), "W_zero"),
    "damaged": (puts("W", BYTES ^ np.int8(1)), "W does not hold what was written"),
    "cut short": (puts("W", BYTES[:-64]), "W has shape"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_node_is_refused_by_name(case: str) -> None:
    change, message = CASES[case]
    made = model("Linear", [W], [normal(33)])
    change(made)
    with pytest.raises(REFUSALS, match=f"node 'dense'.*{message}"):
        opened(made)


def test_operators_without_groups_refuse_a_format_of_them(tmp_path: Path) -> None:
    done = convert(conv()[0], tmp_path, target="native", op_types_to_quantize=["Conv"])
    (node,) = [n for n in done.proto.graph.node if n.op_type == "Conv"]
    node.attribute.append(helper.make_attribute("weight_format", "int4-32"))
    with pytest.raises(REFUSALS, match="weight_format is int4-32; this operator has int8"):
        opened(done.proto)
    out = save(done.proto, tmp_path / "native.onnx")
    with pytest.raises(ModelError, match=r"ai.octavo.Conv\).*format 'int4-32'"):
        convert_target(out, tmp_path / "portable.onnx", to="portable")
