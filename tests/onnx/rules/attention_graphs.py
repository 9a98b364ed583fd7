"""Attention over inputs, spelled in text: no layer before it, so that what it gives is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper, parser

from octavo.onnx import convert_target, session
from octavo.results.report import Report
from tests.graphs import Array, convert, rng, run, weight

B, S, T, H, D = 3, 6, 9, 4, 8
WIDTH = H * D
LOWEST = float(np.finfo(np.float32).min)

HEADS_APART = """
    q5 = Reshape (q, apart)
    k5 = Reshape (k, apart)
    v5 = Reshape (v, apart)
    q4 = Transpose <perm = [0, 2, 1, 3]> (q5)
    k4 = Transpose <perm = [0, 2, 1, 3]> (k5)
    v4 = Transpose <perm = [0, 2, 1, 3]> (v5)
    kt = Transpose <perm = [0, 1, 3, 2]> (k4)
"""
TOGETHER = """
    o5 = Transpose <perm = [0, 2, 1, 3]> (o4)
    o = Reshape (o5, joined)
    y = MatMul (o, w)
"""
PRODUCTS = """
    p = Softmax <axis = -1> (scores)
    o4 = MatMul (p, v4)
"""
CONSTANTS: Mapping[str, Array] = {
    "apart": np.array([0, 0, H, D]),
    "joined": np.array([0, 0, WIDTH]),
    "w": weight(WIDTH, 16, seed=3),
    "scale": np.float32(0.4),
    "root": np.float32(np.sqrt(0.4)),
    "divisor": np.float32(2.5),
    "cap": np.float32(1.5),
    "nought": np.float32(0),
    "endless": np.float32(-np.inf),
    "lowest": np.float32(LOWEST),
    "far": np.float32(-1e9),
    "near": np.float32(-1e4),
    "thousandth": np.float32(1e-3),
    "minus": np.float32(-1.5),
    "two": np.array([2]),
    "three": np.array([3]),
    "last": np.array([-1]),
    "end": np.array([2**63 - 1]),
    "one": np.array([1]),
    "first": np.array([0]),
    "true": np.array(True),
}
INPUTS = {"q": f"float[B, S, {WIDTH}]", "k": f"float[B, T, {WIDTH}]", "v": f"float[B, T, {WIDTH}]"}


class Done(NamedTuple):
    """A converted model and what it gives."""

    report: Report
    path: Path
    ours: Counter[str]
    node: dict[str, Any]
    """Attributes of the last Attention."""
    outputs: list[Array]
    exact: list[Array]
    """What the float model gives."""


def spelled(
    body: str,
    inputs: Mapping[str, str],
    outputs: tuple[str, ...] = ("o", "y"),
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of the nodes in `body`; constants are those that it reads."""
    declared = ", ".join(f"{kind} {name}" for name, kind in inputs.items())
    results = ", ".join(f"float {name}" for name in outputs)
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
        f"g ({declared}) => ({results}) {{ {body} }}"
    )
    read = {name for node in model.graph.node for name in node.input}
    for name, array in {**CONSTANTS, **(constants or {})}.items():
        if name in read:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def queries_keys_values(seed: int = 7, keys: int = T) -> dict[str, Array]:
    r = rng(seed)
    sizes = {"q": S, "k": keys, "v": keys}
    return {n: r.standard_normal((B, size, WIDTH)).astype(np.float32) for n, size in sizes.items()}


def converted(model: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path) -> Done:
    done = convert(model, folder, target="native")
    found = [n for n in done.proto.graph.node if n.domain == "ai.octavo"]
    attentions = [n for n in found if n.op_type == "Attention"]
    node = attentions[-1] if attentions else onnx.NodeProto()
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    outputs = session(done.path).run(None, dict(feeds))
    ours = Counter(n.op_type for n in found)
    return Done(done.report, done.path, ours, attributes, outputs, run(model, feeds))


def assert_same(found: Array, exact: Array) -> None:
    """In float32, computed in another order."""
    np.testing.assert_allclose(found, exact, rtol=3e-5, atol=3e-6)


def one_node(
    model: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path, *, back: bool = True
) -> Done:
    """`converted`, with one Attention that gives the same, in target portable too (`back`)."""
    done = converted(model, feeds, folder)
    assert done.ours["Attention"] == 1
    assert_same(done.outputs[0], done.exact[0])
    if back:
        convert_target(done.path, folder / "portable.onnx", to="portable", verify=False)
        assert_same(run(folder / "portable.onnx", feeds)[0], done.exact[0])
    return done
