"""The inventory as text: what it says of work, of shared weights, of what is quantized already."""

from __future__ import annotations

from dataclasses import replace

import pytest

import octavo.recipe
import octavo.results
from octavo.recipe import FLOAT, Decision, Kind, Layer, Scheme
from octavo.results.inspection import Inspection
from tests.results.reports import linear
from tests.results.terminals import on_terminal

REASON = "a product of two activations: it has no weights to make smaller"
BLOCK = "/encoder/layer.{}/attention/self/query/MatMul"
LONG = "/encoder/" + "a_part_of_a_name/" * 4 + "query/MatMul"


PRODUCT = Layer("/qk", Kind.ACTIVATION_MATMUL, "MatMul", (), 0, None, scope="body")
DECISIONS = (
    *(Decision(linear(BLOCK.format(i)), Scheme()) for i in range(3)),
    Decision(linear(LONG), Scheme()),
    Decision(linear("/b", shares_with=(LONG,), dtype="float16"), Scheme()),
    Decision(PRODUCT, FLOAT, REASON),
    Decision(linear("/half"), FLOAT, "the recipe's rule for name '/half'"),
)
FOUND = Inspection(
    model="model.onnx",
    model_bytes=90_400_000,
    recipe_name="int8",
    decisions=DECISIONS,
    opset=17,
    ir_version=8,
    weight_bytes=(*[2_359_296] * 4, 0, 0, 2_359_296),
    macs=(*[1_000_000] * 5, 4_990_000, 10_000),
    sizes="x=1x128,y=1x2",
)


def test_the_whole_inventory() -> None:
    assert (
        str(FOUND)
        == FOUND.text()
        == (
            f"""\
model.onnx
90.4 MB, opset 17, IR version 8, 7 layers with 11.8 MB of weights
What the recipe int8 would do:

Quantize: int8 per channel, activations per row
  5 MatMul (linear), 9.4 MB, 50.0% of the work
    layers  name                                              weights            bytes   work
         3  /encoder/layer.*/attention/self/query/MatMul      384x1536          7.1 MB  30.0%
         1  */a_part_of_a_name/a_part_of_a_name/query/MatMul  384x1536          2.4 MB  10.0%
         1  /b (shares weights with */query/MatMul)           384x1536 float16  shared  10.0%

Leave float: {REASON}
  1 MatMul (activation_matmul), 49.9% of the work
    layer   work
    /qk    49.9%

Leave float: the recipe's rule for name '/half'
  1 MatMul (linear), 2.4 MB, 0.1% of the work
    layer  weights    bytes  work
    /half  384x1536  2.4 MB  0.1%

work: share of these layers' multiply-accumulates in a run on inputs x=1x128, y=1x2"""
        )
    )


def test_verbose_names_every_layer_in_full() -> None:
    text = FOUND.text(verbose=True)
    for decision in DECISIONS:
        assert f"    {decision.layer.name}" in text
    assert f"/b (shares weights with {LONG})" in text
    assert "/qk (in body)" in text


def test_no_share_is_said_of_work_that_is_not_known() -> None:
    text = replace(FOUND, macs=(1_000_000, 2_000_000, None, None, 5, 0, 0)).text()
    assert "%" not in text
    last = {line.split("  ")[-1].strip() for line in text.splitlines()}
    assert {"MACs", ">3.00 M", "?", "5", "0"} <= last
    assert text.endswith(
        "MACs: multiply-accumulates in a run on inputs x=1x128, y=1x2\n?: not known (2 layers)"
    )


def test_work_of_which_nothing_is_known_is_left_out() -> None:
    text = replace(FOUND, macs=(None,) * 7).text()
    assert "MACs" not in text and "work" not in text and "?" not in text


def test_a_module_has_the_work_of_one_row_and_no_shares() -> None:
    found = Inspection("module:make", 90_400_000, "int8", DECISIONS[:2])
    text = found.text()
    assert text.splitlines()[:2] == ["module:make", "90.4 MB, 2 layers with 4.7 MB of weights"]
    assert "590 k" in text and "%" not in text
    assert text.endswith("MACs: multiply-accumulates for one row of input, such as a token")


def test_what_is_quantized_already_is_said_first() -> None:
    found = replace(FOUND, quantized="38 of 51 layers, by Octavo 0.1.0 (recipe int8)")
    assert found.text().splitlines()[1:4] == [
        "90.4 MB, opset 17, IR version 8, 7 float layers with 11.8 MB of weights",
        "Quantized already: 38 of 51 layers, by Octavo 0.1.0 (recipe int8).",
        "What the recipe int8 would do with the rest (octavo quantize --allow-quantized):",
    ]


@pytest.mark.parametrize("verbose", [False, True])
def test_the_inventory_fits_80_columns_and_loses_nothing(verbose: bool) -> None:
    screen = on_terminal(FOUND, verbose)
    assert max(map(len, screen.splitlines())) <= 80
    assert "30.0%" in screen or verbose


@pytest.mark.parametrize("name", ["Inspection", "LayerOutcome", "Report", "Verification"])
def test_names_that_moved_to_results_are_had_with_a_warning(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"is now octavo.results.{name}"):
        assert getattr(octavo.recipe, name) is getattr(octavo.results, name)
