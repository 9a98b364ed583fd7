"""Quantized LSTMCell, GRUCell and RNNCell: one step against a float64 statement."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from octavo.torch import quantize_dynamic
from octavo.torch.weight_choice import WeightChoice
from tests.models import assert_bits, outcomes
from tests.torch.recurrent_cases import (
    AFFINE,
    CELLS,
    CHOICES,
    CLOSE,
    DEFAULT,
    FLOAT16,
    every_kind,
    float_cell,
    numbers,
    parts,
    quantized,
    stated,
    states,
)

SIZES = [(1, 1, 1), (3, 5, 7), (2, 64, 16), (1, 33, 31), (17, 130, 48)]


@every_kind
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_a_step_computes_what_is_defined(kind: str, choice: WeightChoice, bias: bool) -> None:
    for batch, inputs, hidden in SIZES:
        layer = quantized(float_cell(kind, inputs, hidden, bias=bias), choice)
        x, hx = numbers(batch, inputs, seed=4), states(kind, batch, hidden)
        h0, c0 = parts(hx)[0].numpy(), parts(hx)[-1].numpy()
        want = stated(layer, kind).step(x.numpy(), h0, c0)
        for found, wanted in zip(parts(layer(x, hx)), want, strict=False):
            assert np.abs(found.numpy() - wanted).max() < CLOSE


def test_another_default_dtype_changes_nothing() -> None:
    layer, x = quantized(float_cell("gru")), numbers(4, 13)
    wanted = layer(x)
    torch.set_default_dtype(torch.float64)
    try:
        again = CELLS["gru"][1](**layer.config())
        again.load_state_dict(layer.state_dict())
        assert_bits(again(x), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


@every_kind
def test_quantize_dynamic_takes_cells(kind: str) -> None:
    model = nn.ModuleDict({"cell": float_cell(kind), "again": float_cell(kind, 30, 20)})
    made = quantize_dynamic(model, {type(model["cell"])})
    assert type(made["cell"]) is CELLS[kind][1]
    found, held = outcomes(made), made["again"]
    assert all(o.quantized and o.sqnr_db and o.sqnr_db > 35 for o in found.values())
    sizes = [held.packed_ih, held.packed_hh, held.scale_ih, held.scale_hh]
    assert found["again"].bytes_after == sum(t.nbytes for t in sizes)


def test_what_cannot_be_held_is_adapted_or_stays_float() -> None:
    choice, note = AFFINE.adapted(symmetric=True)
    assert "symmetric weights, not affine" in note
    x = numbers(4, 13)
    assert_bits(quantized(float_cell("gru"), choice)(x), quantized(float_cell("gru"))(x))
    cell = float_cell("gru")
    with torch.no_grad():
        cell.weight_ih[3, 4] = 70000
    refuses = CELLS["gru"][1].refuses
    assert "65504" in refuses(cell, FLOAT16)
    assert refuses(cell, DEFAULT) == ""
    assert "32640" in refuses(nn.GRUCell(32641, 1), DEFAULT)
    assert refuses(nn.GRUCell(32641, 1), FLOAT16) == ""


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_cell_without_inputs_stays_float() -> None:
    made = quantize_dynamic(nn.Sequential(nn.Linear(4, 4), nn.GRUCell(0, 5)), {"0", nn.GRUCell})
    assert type(made[1]) is nn.GRUCell
    assert "no inputs" in outcomes(made)["1"].reason


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    cell = float_cell("gru")
    with torch.no_grad():
        cell.weight_hh[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"decoder\.cell: weight: channel 3 .*NaN"):
        quantized(cell, name="decoder.cell")


def test_a_half_model_is_quantized_as_its_weights_are() -> None:
    cell = float_cell("lstm").half()
    same = quantized(copy.deepcopy(cell).float())
    for name, tensor in quantized(cell).state_dict().items():
        assert_bits(tensor, same.state_dict()[name])
