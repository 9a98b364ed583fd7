"""Gather and EmbedLayerNormalization: embedding tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden.corpus import Case
from tests.golden.graphs import I32, I64, MS, Graph, Model, normal
from tests.golden.onnx_runs import FORMS, case, spread


def lookup(
    rows: int = 96,
    width: int = 64,
    *,
    ids: tuple[int, ...] = (2, 5),
    axis: int = 0,
    kind: int = I64,
    behind: str = "",
    opset: int = 17,
    negative: bool = False,
) -> Model:
    g = Graph(opset)
    found = np.arange(int(np.prod(ids))).reshape(ids) * 7 % (rows if axis == 0 else width)
    if negative:
        found = found - rows
    dtype = np.int32 if kind == I32 else np.int64
    g.input("i", [f"d{i}" for i in range(len(ids))], found.astype(dtype), kind)
    table = "table"
    if behind == "transpose":
        g.weight("stored", width, rows)
        g("Transpose", "stored", "table", perm=[1, 0])
    elif behind == "rank 3":
        g.weight("table", rows, 8, width // 8)
    else:
        g.weight("table", rows, width)
    out = "y" if behind in ("", "transpose", "rank 3") else "e"
    g("Gather", [table, "i"], out, axis=axis, name="lookup")
    if behind == "tied":
        g("Tanh", "e", "t")
        g("Transpose", "table", "wt", perm=[1, 0])
        g("MatMul", "t wt", "y", name="head")
    elif behind == "tied gemm":
        g.const("flat", np.array([-1, width]))
        g("Reshape", "e flat", "t")
        g("Gemm", "t table", "y", transB=1, name="head")
    elif behind == "twice":
        g("Gather", "table i", "f", name="again")
        g("Add", "e f", "y")
    elif behind == "linear":
        g.weight("w", width, 32)
        g("MatMul", "e w", "y", name="head")
    g.output("y")
    return g.model()


def embed(
    *,
    segments: bool = True,
    mask: bool = False,
    position: bool = False,
    total: bool = False,
    rows: int = 90,
    width: int = 64,
    mask_index_type: int = 0,
) -> Model:
    """com.microsoft.EmbedLayerNormalization."""
    g = Graph()
    ids = np.arange(10).reshape(2, 5).astype(np.int32)
    g.input("ids", ["b", "s"], ids * 3, I32)
    tables = [g.weight("word", rows, width), g.weight("position", 70, width)]
    norm = [g.const("gamma", normal(width, seed=5)), g.const("beta", normal(width, seed=6))]
    ins = ["ids", "_", *tables, "_", *norm]
    if segments:
        ins[1] = g.input("segments", ["b", "s"], ids % 2, I32)
        ins[4] = g.weight("segment", 2, width)
    if mask:
        tokens = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
        ins.append(g.input("mask", ["b", "s"], tokens, I32))
    if position:
        ins += ["_"] * (8 - len(ins)) + [g.input("places", ["b", "s"], ids % 5 + 2, I32)]
    outs = "y m" + (" total" if total else "")
    attributes: dict[str, Any] = {"mask_index_type": mask_index_type} if mask else {}
    g("EmbedLayerNormalization", ins, outs, domain=MS, name="embed", epsilon=1e-6, **attributes)
    g.output("y")
    if mask:
        g.output("m", None, I32)
    if total:
        g.output("total")
    g.weight("w", width, 32)
    g("MatMul", "y w", "z", name="head")
    g.output("z")
    return g.model()


MODELS: dict[str, Callable[[], Model]] = {
    "int32 indices": lambda: lookup(kind=I32),
    "one index": lambda: lookup(ids=()),
    "rank 3 indices": lambda: lookup(ids=(2, 3, 2)),
    "negative indices": lambda: lookup(negative=True),
    "small table": lambda: lookup(16, 8),
    "large table": lambda: lookup(800, 32),
    "last axis": lambda: lookup(axis=1),
    "table behind a transpose": lambda: lookup(behind="transpose"),
    "rows of rank 2": lambda: lookup(behind="rank 3"),
    "tied": lambda: lookup(behind="tied"),
    "tied large": lambda: lookup(700, 48, behind="tied"),
    "tied to gemm": lambda: lookup(behind="tied gemm"),
    "read twice": lambda: lookup(behind="twice"),
    "then linear": lambda: lookup(600, 40, behind="linear"),
    "opset 11": lambda: lookup(opset=11),
    "opset 10": lambda: lookup(opset=10),
    "embed without segments": lambda: embed(segments=False),
    "embed with mask": lambda: embed(mask=True),
    "embed with mask of another kind": lambda: embed(mask=True, mask_index_type=1),
    "embed with places": lambda: embed(position=True, mask=True),
    "embed with the sum": lambda: embed(total=True),
}
CASES: dict[str, Case] = {
    "gather": case(lookup, tuple(FORMS)),
    "embed": case(embed, tuple(FORMS)),
    **spread(MODELS, 4),
}
