"""What became of every layer, as a quantized file holds it: at most 1% of the file in most.

{"version": 2, "deflate": "..."}, where the text is base 85 of a compressed object:

    {"texts": ["int8 per channel, ...", ...],       schemes, reasons and the like, each once
     "layers": [["/up/MatMul", 3, ...], ...]}       a row a layer, numbers where a text stands

A layer takes about 60 bytes so. Version 1 was a list of `LayerOutcome.to_dict`, 400 bytes a layer.
SQNR keeps two digits behind the point; an infinite one, which JSON has not, is a word.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.core import versions
from octavo.core.layer import Kind, Layer
from octavo.results.report import LayerOutcome

MOST_BYTES = 1 << 28  # of what is read: a damaged or hostile file may promise anything


# docs/notes/reports.md: "A quantized file says what became of its layers"
def outcomes_to_json(outcomes: Sequence[LayerOutcome]) -> str:
    """Write the outcomes as one line of JSON."""
    texts: dict[str, int] = {}

    def known(text: str) -> int:
        return texts.setdefault(text, len(texts))

    rows = [_row(outcome, known) for outcome in outcomes]
    whole = _dumps({"texts": list(texts), "layers": rows})
    packed = base64.b85encode(zlib.compress(whole.encode(), 9)).decode()
    return _dumps({"version": versions.LAYERS, "deflate": packed})


def outcomes_from_json(text: str) -> tuple[LayerOutcome, ...]:
    """Read the outcomes of layers from JSON, of version 1 too. Raises ValueError for other text."""
    try:
        data = json.loads(text)
        if isinstance(data, list):
            return tuple(LayerOutcome.from_dict(item) for item in data)
        if data["version"] != versions.LAYERS:
            raise ValueError(f"version {data['version']} of outcomes is not {versions.LAYERS}")
        whole = json.loads(_inflated(base64.b85decode(data["deflate"])))
        texts = [str(item) for item in whole["texts"]]
        return tuple(_outcome(row, texts) for row in whole["layers"])
    except _BROKEN as error:
        raise ValueError(f"no outcomes of layers: {error}") from error


_BROKEN = (
    *(KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError),
    zlib.error,
)


def _row(o: LayerOutcome, known: Callable[[str], int]) -> list[Any]:
    layer, sqnr = o.layer, o.sqnr_db
    return [
        layer.name,
        known(layer.kind.value),
        known(layer.op),
        [[name, *shape] for name, shape in layer.weights],
        layer.bytes,
        layer.macs_per_row,
        known(layer.dtype),
        known(layer.scope),
        list(layer.shares_with),
        int(o.quantized),
        known(o.scheme),
        known(o.reason),
        o.bytes_before,
        o.bytes_after,
        round(sqnr, 2) if sqnr is not None and math.isfinite(sqnr) else sqnr and str(sqnr),
        [known(note) for note in o.notes],
    ]


def _outcome(row: Sequence[Any], texts: Sequence[str]) -> LayerOutcome:
    (name, kind, op, weights, size, macs, dtype, scope, shares, *rest) = row
    quantized, scheme, reason, before, after, sqnr, notes = rest
    for number in (size, before, after):
        if not isinstance(number, int):
            raise ValueError(f"{number!r} is no number of bytes")
    layer = Layer(
        str(name),
        Kind(texts[kind]),
        texts[op],
        tuple((str(w), tuple(map(int, shape))) for w, *shape in weights),
        size,
        None if macs is None else int(macs),
        texts[dtype],
        texts[scope],
        tuple(map(str, shares)),
    )
    return LayerOutcome(
        layer,
        bool(quantized),
        texts[scheme],
        texts[reason],
        before,
        after,
        None if sqnr is None else float(sqnr),
        tuple(texts[note] for note in notes),
    )


def _inflated(packed: bytes) -> str:
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(packed, MOST_BYTES)
    if not unpacker.eof:
        raise ValueError("the outcomes of layers are cut short, or too many")
    return found.decode()


def _dumps(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
