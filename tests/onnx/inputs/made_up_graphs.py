"""Small models of each kind of input, and what is made up for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.inputs import Feed, made_up
from octavo.onnx.inputs.classify import kinds_of
from octavo.onnx.inputs.roles import InputKind
from tests.graphs import normal, opened, text

WIDE, HEADS, ROWS = 16, 2, 50


def kinds(model: onnx.ModelProto) -> dict[str, InputKind]:
    parsed = ir.from_proto(model)
    return kinds_of(parsed, Constants(model.opset_import[0].version))


def guesses(model: onnx.ModelProto, **options: Any) -> list[Feed]:
    parsed = ir.from_proto(model)
    return list(made_up(parsed, Constants(model.opset_import[0].version), **options))


def accepted(
    model: onnx.ModelProto, most: int = 3, **options: Any
) -> list[tuple[int, Feed, list[np.ndarray]]]:
    """The first guesses that ONNX Runtime takes: which, what, and what comes out."""
    session = opened(model)
    found: list[tuple[int, Feed, list[np.ndarray]]] = []
    for number, feed in enumerate(guesses(model, **options)):
        try:
            found.append((number, feed, session.run(None, feed)))
        except Exception:  # noqa: BLE001 - a wrong guess fails in many ways
            continue
        if len(found) == most:
            break
    return found


def embedded(
    body: str, inputs: str = "", weights: Mapping[str, Any] | None = None, opset: int = 17
) -> onnx.ModelProto:
    """ids -> e [batch, seq, WIDE], and what `body` makes of it and of more `inputs`: y."""
    given = {"table": normal(ROWS, WIDE), **(weights or {})}
    ids = f"int64[batch, seq] ids{', ' if inputs else ''}{inputs}"
    return text("e = Gather (table, ids) " + body, ids, weights=given, opset=opset)


def scored(masking: str, mask: str, weights: Mapping[str, Any]) -> onnx.ModelProto:
    """Self-attention whose `scores` [batch, seq, seq] become `masked` by `masking`."""
    body = f"""et = Transpose <perm = [0, 2, 1]> (e)
        scores = MatMul (e, et)
        {masking}
        a = Softmax <axis = -1> (masked)
        y = MatMul (a, e)"""
    return embedded(body, mask, weights)
