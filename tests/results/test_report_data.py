"""Layers and reports as plain data."""

import json
import math
from dataclasses import replace

from octavo.recipe import PRESETS, Kind, Layer
from octavo.results.report import LayerOutcome, Report
from tests.results.reports import report

LAYER = Layer(
    name="/encoder/query",
    kind=Kind.LINEAR,
    op="com.microsoft.FusedMatMul",
    weights=(("query.weight", (384, 1536)), ("query.bias", (1536,))),
    bytes=2365440,
    macs_per_row=589824,
    scope="/if/then",
    shares_with=("/decoder/query", "/head"),
)
REPORT = report(
    LayerOutcome(LAYER, True, "int8 per channel", "", 2365440, 602112, 41.5, ("shared",)),
    LayerOutcome(replace(LAYER, kind=Kind.CONV, macs_per_row=None), False, "float", "slow", 64, 64),
    recipe=PRESETS["int8"].to_dict(),
    notes=("opset raised from 11 to 17",),
)


def test_layers_and_reports_round_trip_through_json() -> None:
    for layer in (LAYER, Layer("x", Kind.OTHER, "Foo", (), 0, None)):
        assert Layer.from_dict(json.loads(json.dumps(layer.to_dict()))) == layer
    data = json.loads(REPORT.to_json())
    assert Report.from_dict(data) == REPORT
    assert Report.from_dict(data).to_dict() == data == REPORT.to_dict()
    assert data["version"] == 1
    assert data["layers"][0]["layer"]["kind"] == "linear"


def test_an_exact_weight_has_no_sqnr_in_json() -> None:
    exact = replace(REPORT, layers=(replace(REPORT.layers[0], sqnr_db=math.inf),))
    assert json.loads(exact.to_json())["layers"][0]["sqnr_db"] is None
    assert exact.to_dict()["layers"][0]["sqnr_db"] == math.inf


def test_layers_are_either_quantized_or_left_float() -> None:
    assert [o.layer.kind for o in REPORT.quantized] == [Kind.LINEAR]
    assert [(o.layer.kind, o.reason) for o in REPORT.left_float] == [(Kind.CONV, "slow")]


def test_data_is_a_copy() -> None:
    REPORT.to_dict()["layers"].clear()
    REPORT.to_dict()["recipe"].clear()
    assert len(REPORT.layers) == 2
    assert REPORT.recipe
