"""Rows of what a report says of a model's weights."""

from __future__ import annotations

from benchmarks.results import Row
from octavo.recipe import Kind, Report

_COUNTED = (Kind.LINEAR, Kind.LSTM, Kind.GRU, Kind.RNN, Kind.CONV)


def share_row(report: Report, least: float | None, section: str) -> Row:
    """How many of the bytes of MatMul, Gemm, RNN and Conv weights are held as int8.

    Grouped convolutions count too: the models that are asked for a share have none.
    """
    layers = [o for o in report.layers if o.layer.kind in _COUNTED and o.layer.weights]
    left = [o for o in layers if not o.quantized]
    note = f"{len(layers) - len(left)} of {len(layers)} layers"
    note += f"; float: {', '.join(o.layer.name for o in left)}" if left else ""
    return Row(
        "share of the MatMul, Gemm, RNN and Conv weights' bytes held as int8",
        1 - sum(o.bytes_before for o in left) / sum(o.bytes_before for o in layers),
        at_least=least,
        section=section,
        note=note,
    )


def table_row(report: Report, what: str, asked: bool, section: str) -> Row:
    """How the largest layer, an embedding table, is held; `asked` is int8."""
    table = max(report.layers, key=lambda o: o.layer.bytes)
    (_, (rows, width)), *_ = table.layer.weights
    return Row(
        f"{what}: bytes an element, the rows' scales included",
        table.bytes_after / (rows * width),
        at_most=1 + 8 / width if asked else None,  # int8, and a scale and a zero point a row
        section=section,
        note=f"{table.layer.op}, {rows:,} x {width}: {table.scheme}",
    )
