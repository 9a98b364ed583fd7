"""Small models of each kind of input, and what is made up for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper

from octavo.onnx.constants import Constants
from octavo.onnx.inputs import Feed, made_up
from octavo.onnx.inputs.classify import kinds_of
from octavo.onnx.inputs.roles import InputKind
from tests.graphs import F32, build, normal

I64, BOOL, I32 = TensorProto.INT64, TensorProto.BOOL, TensorProto.INT32
WIDE, HEADS, ROWS = 16, 2, 50


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Names with spaces between them; `_` stands for one that is left out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def kinds(model: onnx.ModelProto) -> dict[str, InputKind]:
    parsed = ir.from_proto(model)
    return kinds_of(parsed, Constants(model.opset_import[0].version))


def guesses(model: onnx.ModelProto, **options: Any) -> list[Feed]:
    parsed = ir.from_proto(model)
    return list(made_up(parsed, Constants(model.opset_import[0].version), **options))


def accepted(model: onnx.ModelProto, most: int = 3) -> list[tuple[int, Feed, list[np.ndarray]]]:
    """The first guesses that ONNX Runtime takes: which, what, and what comes out."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    found: list[tuple[int, Feed, list[np.ndarray]]] = []
    for number, feed in enumerate(guesses(model)):
        try:
            found.append((number, feed, session.run(None, feed)))
        except Exception:  # noqa: BLE001 - a wrong guess fails in many ways
            continue
        if len(found) == most:
            break
    return found


def embedded(
    nodes: list[onnx.NodeProto], inputs: list[Any], weights: dict[str, Any], opset: int = 17
) -> onnx.ModelProto:
    """ids -> e [batch, seq, WIDE], and what `nodes` make of it and of more `inputs`: y."""
    first = [node("Gather", "table ids", "e")]
    given = {"table": normal(ROWS, WIDE), **weights}
    ids = ("ids", I64, ["batch", "seq"])
    return build([*first, *nodes], [ids, *inputs], [("y", F32, None)], given, opset)


def scored(masking: list[onnx.NodeProto], mask: Any, weights: dict[str, Any]) -> onnx.ModelProto:
    """Self-attention whose `scores` [batch, seq, seq] become `masked` by `masking`."""
    nodes = [
        node("Transpose", "e", "et", perm=[0, 2, 1]),
        node("MatMul", "e et", "scores"),
        *masking,
        node("Softmax", "masked", "a", axis=-1),
        node("MatMul", "a e", "y"),
    ]
    return embedded(nodes, [mask], weights)
