"""Quantized LSTMCell, GRUCell and RNNCell against a float64 statement, and in all surroundings."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from octavo.errors import ModelError, NotTrainableError
from octavo.torch import quantize_dynamic, report
from octavo.torch.weight_choice import WeightChoice
from tests.core import statement
from tests.torch.behaviour import (
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    every_float,
    in_another_process,
    quiet,
)
from tests.torch.recurrent_cases import (
    AFFINE,
    CELLS,
    CHOICES,
    CLOSE,
    DEFAULT,
    FLOAT16,
    every_kind,
    float_cell,
    mapped,
    numbers,
    parts,
    quantized,
    stated,
    states,
)

SIZES = [(1, 1, 1), (3, 5, 7), (2, 64, 16), (1, 33, 31), (17, 130, 48)]


class Flat(nn.Module):
    """A cell between plain tensors: (x, h[, c]) -> h'[, c']."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, h: Any = None, c: Any = None) -> Any:
        return self.cell(x, h if c is None else (h, c))


# --- the numbers ---


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


@every_kind
def test_it_is_as_near_to_the_float_cell_as_its_roundings_allow(kind: str) -> None:
    """No number of x, h and the weights is off by more than half of its step."""
    cell = float_cell(kind, 50, 40)
    layer, x, hx = quantized(cell), numbers(6, 50), states(kind, 6, 40)
    h = parts(hx)[0]
    off = sum(
        _rounding(values, layer.integers()[name], getattr(cell, name).detach())
        for values, name in ((x, "weight_ih"), (h, "weight_hh"))
    )
    gates, size = off.chunk(off.shape[1] // 40, dim=1), torch.ones(6, 40)
    if kind == "lstm":
        i, f, g, o = gates
        c = f / 4 * hx[1].abs() + i / 4 + g
        bounds = [o / 4 + c, c]
    elif kind == "gru":
        r, z, n = gates
        through = (h @ cell.weight_hh[80:].T + cell.bias_hh[80:]).detach().abs()
        bounds = [z / 4 * (size + h.abs()) + n + r / 4 * (through + n)]
    else:
        bounds = [gates[0]]
    with torch.no_grad():
        exact = parts(cell(x, hx))
    for found, wanted, bound in zip(parts(layer(x, hx)), exact, bounds, strict=True):
        error = (found - wanted).abs()
        assert (error <= bound + 1e-6).all()
        assert error.max() > 0.001 * bound.max()  # it is quantized at all
        assert bound.max() < 0.5


def _rounding(values: Tensor, weight: tuple[Tensor, Tensor], exact: Tensor) -> Tensor:
    """What half a step of each number can add up to, [B, N]."""
    q, scale = weight
    step = torch.from_numpy(statement.quantize_rows(values.numpy())[1])
    held = (q * scale[:, None]).abs().sum(1)
    assert ((q * scale[:, None] - exact).abs() <= 0.501 * scale[:, None]).all()
    return 0.501 * (step * held + values.abs().sum(1, keepdim=True) * scale)


@every_kind
@pytest.mark.parametrize("choice", [FLOAT16, None], ids=["float16", "float32"])
def test_float_weights_compute_in_float32(kind: str, choice: Any) -> None:
    cell = float_cell(kind, 50, 40)
    layer, x, hx = quantized(cell, choice), numbers(6, 50), states(kind, 6, 40)
    held = layer.dequantized()
    for name, weight in cell.state_dict().items():
        kept = weight.half().float() if choice and weight.dim() == 2 else weight
        assert_bits(held[name], kept)
    assert layer.blocks_ih.dtype == (torch.float16 if choice else torch.float32)
    assert layer.integers() == {}
    with torch.no_grad():
        cell.load_state_dict(held)
        exact = parts(cell(x, hx))
    for found, wanted in zip(parts(layer(x, hx)), exact, strict=True):
        assert (found - wanted).abs().max() < CLOSE


@every_kind
def test_weights_are_in_pytorchs_order(kind: str) -> None:
    cell = float_cell(kind, 50, 21)
    layer = quantized(cell)
    for name in ("weight_ih", "weight_hh"):
        w = getattr(cell, name).detach()
        q, scale = layer.integers()[name]
        assert_bits(scale, w.abs().amax(1) / 127)
        assert torch.equal(q, (w / scale[:, None]).round().to(torch.int8))
        assert_bits(layer.dequantized()[name], q * scale[:, None])
        there = getattr(layer, name)
        assert (there.shape, there.dtype) == (w.shape, w.dtype)
        assert_bits(there + 0, q * scale[:, None])
    assert_bits(layer.bias_hh, cell.bias_hh.detach())
    with pytest.raises(AttributeError, match="weight_hr"):
        _ = layer.weight_hr


# --- what comes in ---


@every_kind
@every_float
def test_every_dtype_is_computed_in_float32_and_returned_in_kind(
    kind: str, dtype: torch.dtype
) -> None:
    layer = quantized(float_cell(kind))
    x, hx = numbers(4, 13).to(dtype), mapped(lambda t: t.to(dtype), states(kind, 4, 21))
    wanted = layer(x.float(), mapped(Tensor.float, hx))
    assert_bits(layer(x, hx), mapped(lambda t: t.to(dtype), wanted))


@every_kind
def test_one_item_is_a_batch_of_one(kind: str) -> None:
    layer, x, hx = quantized(float_cell(kind)), numbers(13), states(kind, 21)
    batch = layer(x[None], mapped(lambda t: t[None], hx))
    assert_bits(layer(x, hx), mapped(lambda t: t[0], batch))
    assert_bits(layer(x), mapped(lambda t: t[0], layer(x[None])))


@every_kind
def test_states_are_zeros_where_there_are_none(kind: str) -> None:
    layer, x = quantized(float_cell(kind)), numbers(4, 13)
    zeros = mapped(torch.zeros_like, states(kind, 4, 21))
    assert_bits(layer(x), layer(x, zeros))
    assert_bits(layer(input=x, hx=zeros), layer(x))


@every_kind
def test_strided_inputs(kind: str) -> None:
    layer, x, hx = quantized(float_cell(kind)), numbers(4, 13), states(kind, 4, 21)
    wanted = layer(x, hx)
    wide = torch.zeros(4, 40)
    wide[:, 3:16] = x
    apart = mapped(lambda t: t.t().contiguous().t(), hx)
    for other in (wide[:, 3:16], x.t().contiguous().t(), torch.stack([x, x], 2)[..., 0]):
        assert_bits(layer(other, hx), wanted)
        assert_bits(layer(other, apart), wanted)
    assert_bits(layer(x[:1].expand(3, 13)), layer(x[:1].repeat(3, 1)))
    single = quantized(float_cell(kind, 1, 4))
    assert_bits(single(torch.ones(6, 2)[::2, :1]), single(torch.ones(3, 1)))
    assert parts(layer(x[:0]))[0].shape == (0, 21)


@every_kind
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_item(kind: str, bad: float) -> None:
    layer, x, hx = quantized(float_cell(kind)), numbers(5, 13), states(kind, 5, 21)
    clean = parts(layer(x, hx))
    keep = [0, 1, 3, 4]
    for spoilt in (x, parts(hx)[0]):
        saved = spoilt[2, 4].clone()
        spoilt[2, 4] = bad
        for found, before in zip(parts(layer(x, hx)), clean, strict=True):
            assert found[2].isnan().all()
            assert_bits(found[keep], before[keep])
        spoilt[2, 4] = saved


@every_kind
def test_an_item_100_times_as_large_changes_no_bit_of_the_others(kind: str) -> None:
    layer, x, hx = quantized(float_cell(kind, 200, 64)), numbers(9, 200), states(kind, 9, 64)
    clean = parts(layer(x, hx))
    x[4] *= 100
    keep = [0, 1, 2, 3, 5, 6, 7, 8]
    for found, before in zip(parts(layer(x, hx)), clean, strict=True):
        assert_bits(found[keep], before[keep])
        assert not torch.equal(found[4], before[4])


REFUSED = [
    ((4, 12), None, ValueError, r"input: needs shape \[B, 13\] or \[13\], not \[4, 12\]"),
    ((12,), None, ValueError, r"input: needs shape \[B, 13\] or \[13\], not \[12\]"),
    ((2, 4, 13), None, ValueError, "input: needs 2 axes, or 1 for an item without a batch"),
    ((4, 13), (3, 21), ValueError, r"hx.*: needs shape \[4, 21\], not \[3, 21\]"),
    ((4, 13), (4, 20), ValueError, r"hx.*: needs shape \[4, 21\], not \[4, 20\]"),
    ((4, 13), (21,), ValueError, r"hx.*: needs shape \[4, 21\], not \[21\]"),
    ((13,), (1, 21), ValueError, "hx.*: needs 1 axes, as the input"),
]


@every_kind
@pytest.mark.parametrize(("shape", "state", "error", "message"), REFUSED)
def test_shapes_that_are_refused(
    kind: str, shape: Any, state: Any, error: type[Exception], message: str
) -> None:
    layer = quantized(float_cell(kind))
    with pytest.raises(error, match=message):
        layer(torch.ones(shape), None if state is None else states(kind, *state))


@every_kind
def test_dtypes_that_are_refused(kind: str) -> None:
    layer, x, hx = quantized(float_cell(kind)), torch.ones(4, 13), states(kind, 4, 21)
    for dtype in (torch.int64, torch.complex64):
        with pytest.raises(TypeError, match=r"input: needs float32, .*, not "):
            layer(x.to(dtype))
    with pytest.raises(TypeError, match=r"hx.*: is float64; needs float32, as the input"):
        layer(x, mapped(Tensor.double, hx))
    with pytest.raises(TypeError, match=r"hx.*: is float32; needs float16, as the input"):
        layer(x.half(), hx)


def test_an_lstms_state_is_a_pair() -> None:
    layer, hx = quantized(float_cell("lstm")), states("lstm", 4, 21)
    with pytest.raises(TypeError, match=r"hx: needs a pair of tensors, \(h0, c0\), not Tensor"):
        layer(torch.ones(4, 13), hx[0])
    assert_bits(layer(torch.ones(4, 13), list(hx)), layer(torch.ones(4, 13), hx))


# --- surroundings ---


@every_kind
@pytest.mark.parametrize("choice", [DEFAULT, FLOAT16], ids=["int8", "float16"])
def test_state(kind: str, choice: WeightChoice) -> None:
    layer = quantized(float_cell(kind), choice)
    assert_keeps_its_state(layer, numbers(4, 13), states(kind, 4, 21))


@pytest.mark.sweep(3)
@every_kind
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_graphs(kind: str, bias: bool) -> None:
    layer = Flat(quantized(float_cell(kind, bias=bias)))
    given = [(numbers(n, 13), *parts(states(kind, n, 21))) for n in (4, 7)]
    assert_runs_in_graphs(layer, *given)
    assert_runs_in_graphs(layer, *(some[:1] for some in given))


def test_a_single_item_in_graphs() -> None:
    layer, x = quantized(float_cell("gru")), numbers(13)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_bits(compiled(x, numbers(21)), layer(x, numbers(21)))
    assert_bits(torch.export.export(layer, (x,)).module()(x), layer(x))


@every_kind
def test_graphs_refuse_what_eager_refuses(kind: str) -> None:
    layer = quantized(float_cell(kind))
    with pytest.raises(Exception, match="input: needs shape"):
        torch.export.export(layer, (torch.ones(4, 12),))
    with pytest.raises(Exception, match=r"hx.*: needs"):
        torch.export.export(layer, (torch.ones(4, 13), states(kind, 3, 21)))


@every_kind
def test_forward_works_in_grad_mode_and_backward_says_why_not(kind: str) -> None:
    layer, x, hx = quantized(float_cell(kind)), numbers(4, 13), states(kind, 4, 21)
    wanted = layer(x, hx)
    for some in ((x.clone().requires_grad_(), hx), (x, mapped(nn.Parameter, hx))):
        found = layer(*some)
        assert_bits(mapped(Tensor.detach, found), wanted)
        with pytest.raises(NotTrainableError, match=r"octavo::recurrent has no backward"):
            parts(found)[0].sum().backward()


def test_compiling_in_grad_mode_works() -> None:
    torch._dynamo.reset()
    layer, x = quantized(float_cell("gru")), numbers(4, 13)
    y = quiet(torch.compile(layer, fullgraph=True, backend="aot_eager"))(x.clone().requires_grad_())
    assert_bits(y.detach(), layer(x))
    with pytest.raises(NotTrainableError, match=r"octavo::recurrent has no backward"):
        y.sum().backward()


def test_another_process() -> None:
    layer, x = quantized(float_cell("gru")), numbers(4, 13)
    (y,) = in_another_process([layer], [x])
    assert_bits(y, layer(x))


@every_kind
def test_threads_do_not_matter(kind: str) -> None:
    layer = quantized(float_cell(kind, 300, 400))
    assert_threads_do_not_matter(layer, numbers(33, 300), states(kind, 33, 400))


def test_loading_in_place_is_seen() -> None:
    layer, other = quantized(float_cell("gru")), quantized(float_cell("gru", 13, 21, bias=True))
    other.load_state_dict({**other.state_dict(), "bias_ih": torch.ones(63)})
    x = numbers(4, 13)
    before = layer(x)
    layer.load_state_dict(other.state_dict())
    assert not torch.equal(layer(x), before)
    assert_bits(layer(x), other(x))


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
def test_an_empty_cell_says_that_it_is_empty(kind: str) -> None:
    with torch.device("meta"):
        layer = CELLS[kind][1](13, 21)
    with pytest.raises(ModelError, match="holds no weights yet"):
        layer(torch.ones(4, 13))


# --- conversion ---


@every_kind
def test_quantize_dynamic_takes_cells(kind: str) -> None:
    model = nn.ModuleDict({"cell": float_cell(kind), "again": float_cell(kind, 30, 20)})
    made = quantize_dynamic(model, {type(model["cell"])})
    assert type(made["cell"]) is CELLS[kind][1]
    outcomes = {o.layer.name: o for o in report(made).layers}
    assert all(o.quantized and o.sqnr_db and o.sqnr_db > 35 for o in outcomes.values())
    held = made["again"]
    sizes = [held.packed_ih, held.packed_hh, held.scale_ih, held.scale_hh]
    assert outcomes["again"].bytes_after == sum(t.numel() * t.element_size() for t in sizes)


def test_what_cannot_be_held_is_adapted_or_stays_float() -> None:
    choice, note = AFFINE.adapted(symmetric=True)
    assert "symmetric weights, not affine" in note
    assert_bits(
        quantized(float_cell("gru"), choice)(numbers(4, 13)),
        quantized(float_cell("gru"))(numbers(4, 13)),
    )
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
    model = nn.Sequential(nn.Linear(4, 4), nn.GRUCell(0, 5))
    made = quantize_dynamic(model, {nn.Linear, nn.GRUCell})
    assert type(made[1]) is nn.GRUCell
    assert "no inputs" in next(o.reason for o in report(made).layers if o.layer.name == "1")


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    cell = float_cell("gru")
    with torch.no_grad():
        cell.weight_hh[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"decoder\.cell: weight: channel 3 .*NaN or infinity"):
        quantized(cell, name="decoder.cell")


def test_a_half_model_is_quantized_as_its_weights_are() -> None:
    cell = float_cell("lstm").half()
    same = quantized(copy.deepcopy(cell).float())
    for name, tensor in quantized(cell).state_dict().items():
        assert_bits(tensor, same.state_dict()[name])


def test_it_prints_what_it_is() -> None:
    assert repr(quantized(float_cell("lstm"))) == "QuantizedLSTMCell(13, 21, int8)"
    cell = quantized(float_cell("relu", bias=False), FLOAT16)
    assert repr(cell) == "QuantizedRNNCell(13, 21, bias=False, nonlinearity=relu, float16)"
    with pytest.raises(ValueError, match="nonlinearity: 'gelu' must be 'tanh' or 'relu'"):
        CELLS["relu"][1](13, 21, nonlinearity="gelu")
