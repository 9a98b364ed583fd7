"""Quantized LSTM, GRU and RNN: layers against their own steps, and every form of input.

Single steps are stated in float64, here for projections and in test_torch_cells for all else; what
a layer computes has to be the bits of its steps.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

from octavo.torch.layers.recurrent_ops import caller
from tests.core import statement
from tests.torch.behaviour import (
    assert_bits,
    every_float,
    quiet,
)
from tests.torch.recurrent_cases import (
    CHOICES,
    CLOSE,
    DEEP,
    DEFAULT,
    FLOAT16,
    STACKS,
    every_kind,
    float_cell,
    float_stack,
    mapped,
    numbers,
    parts,
    proj_of,
    quantized,
    stated,
    states,
)


def direction(module: Any, suffix: str) -> Any:
    """A quantized cell with the weights of one direction of the float `module`."""
    kind = next(k for k, (f, _) in STACKS.items() if type(module) is f)
    if kind == "tanh":
        kind = module.nonlinearity
    inputs = getattr(module, f"weight_ih{suffix}").shape[1]
    cell = float_cell(kind, inputs, module.hidden_size, bias=module.bias)
    with torch.no_grad():
        for name, weight in cell.named_parameters():
            weight.copy_(getattr(module, name + suffix))
    return quantized(cell)


def stepped(module: Any, x: Tensor, hx: Any) -> tuple[Tensor, Any]:
    """What the layers of the float `module` compute where each step is a quantized cell's."""
    ends = []
    for layer in range(module.num_layers):
        outs = []
        for way in ("", "_reverse") if module.bidirectional else ("",):
            cell, at = direction(module, f"_l{layer}{way}"), len(ends)
            state = mapped(lambda t, at=at: t[at], hx)
            steps = []
            for t in reversed(range(len(x))) if way else range(len(x)):
                state = cell(x[t], state)
                steps.append(parts(state)[0])
            outs.append(torch.stack(steps[::-1] if way else steps))
            ends.append(state)
        x = torch.cat(outs, dim=2)
    if isinstance(hx, tuple):
        return x, tuple(torch.stack(states) for states in zip(*ends, strict=True))
    return x, torch.stack(ends)


# --- the numbers ---


@every_kind
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("hidden", [7, 16, 40])
def test_layers_are_their_steps(kind: str, bias: bool, hidden: int) -> None:
    for options in ({}, {"num_layers": 3}, {"bidirectional": True}, DEEP):
        module = float_stack(kind, 13, hidden, bias=bias, **options)
        layer, x = quantized(module), numbers(5, 3, 13)
        hx = states(kind, len(layer.all_weights), 3, hidden)
        assert_bits(layer(x, hx), stepped(module, x, hx))


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("hidden", [7, 16, 40])
def test_a_projection_is_as_defined(choice: Any, hidden: int) -> None:
    layer = quantized(float_stack("lstm", 13, hidden, proj_size=5), choice)
    x, h0, c0 = numbers(1, 4, 13), numbers(1, 4, 5, seed=2), numbers(1, 4, hidden, seed=3)
    y, (h, c) = layer(x, (h0, c0))
    want_h, want_c = stated(layer, "lstm", "_l0").step(x[0].numpy(), h0[0].numpy(), c0[0].numpy())
    # What is projected was quantized once more: a number that lies on an edge may fall either way.
    one_integer = 2 / 255 * layer.weight_hr_l0.abs().max().item()
    difference = np.abs(y[0].numpy() - want_h)
    assert np.mean(difference > CLOSE) < 0.05
    assert difference.max() < one_integer + CLOSE
    assert np.abs(c[0].numpy() - want_c).max() < CLOSE
    assert_bits(y, h)


@pytest.mark.parametrize("options", [{}, DEEP], ids=["one", "deep"])
def test_a_projected_sequence_is_its_steps(options: dict[str, Any]) -> None:
    layer = quantized(float_stack("lstm", proj_size=6, **options))
    ways, x = len(layer.all_weights), numbers(5, 3, 13)
    hx = numbers(ways, 3, 6, seed=2), numbers(ways, 3, 21, seed=3)
    y, end = layer(x, hx)
    assert (y.shape, end[0].shape, end[1].shape) == (
        (5, 3, 6 * (2 if options else 1)),
        (ways, 3, 6),
        (ways, 3, 21),
    )
    if not options:
        for t in range(5):
            out, hx = layer(x[t : t + 1], hx)
            assert_bits(out[0], y[t])
        assert_bits(hx, end)


@every_kind
@pytest.mark.parametrize("options", [{}, DEEP], ids=["one", "deep"])
def test_it_is_about_as_near_to_the_float_layer_as_its_roundings(
    kind: str, options: dict[str, Any]
) -> None:
    """Noise of half a step in the float layer's inputs and weights tells what to expect."""
    module = float_stack(kind, 50, 64, **options)
    x = numbers(20, 4, 50)
    step = torch.from_numpy(statement.quantize_rows(x.reshape(80, 50).numpy())[1]).reshape(20, 4, 1)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) - 0.5
    rough = copy.deepcopy(module)
    with torch.no_grad():
        for name, weight in rough.named_parameters():
            if weight.dim() == 2:
                held = quantized(module).dequantized()[name]
                weight.copy_(held)
        exact = module(x)[0]
        expected = (rough(x + noise * step)[0] - exact).norm()
    error = (quantized(module)(x)[0] - exact).norm()
    assert 0.3 * expected < error < 3 * expected
    assert error < 0.03 * exact.norm()


@every_kind
@pytest.mark.parametrize("choice", [FLOAT16, None], ids=["float16", "float32"])
def test_float_weights_compute_in_float32(kind: str, choice: Any) -> None:
    for options in ({}, DEEP, {**DEEP, **proj_of(kind)}):
        module = float_stack(kind, **options)
        layer, x = quantized(module, [choice] * module.num_layers), numbers(6, 3, 13)
        held = layer.dequantized()
        for name, weight in module.state_dict().items():
            kept = weight.half().float() if choice and weight.dim() == 2 else weight
            assert_bits(held[name], kept)
        with torch.no_grad():
            module.load_state_dict(held)
            y, end = quiet(module)(x)
        found, found_end = layer(x)
        assert (found - y).abs().max() < 5 * CLOSE
        for mine, other in zip(parts(found_end), parts(end), strict=True):
            assert (mine - other).abs().max() < 5 * CLOSE


@every_kind
def test_one_layer_of_a_stack_can_stay_float(kind: str) -> None:
    """The first layer float, the second int8: the same as two stacks, one behind the other."""
    module = float_stack(kind, **DEEP)
    layer, x = quantized(module, [None, DEFAULT]), numbers(5, 3, 13)
    assert layer.storage == ["float32", "int8"]
    first, second = float_stack(kind, bidirectional=True), float_stack(kind, 42, bidirectional=True)
    with torch.no_grad():
        for one, i in ((first, 0), (second, 1)):
            for name, weight in one.named_parameters():
                weight.copy_(getattr(module, name.replace("_l0", f"_l{i}")))
    between, end_first = quantized(first, None)(x)
    y, end_second = quantized(second)(between)
    hidden = tuple(
        torch.cat(pair) for pair in zip(parts(end_first), parts(end_second), strict=True)
    )
    found, end = layer(x)
    assert_bits((found, *parts(end)), (y, *hidden))
    with torch.no_grad():
        assert (between - first(x)[0]).abs().max() < CLOSE
    assert sorted(layer.integers()) == [
        f"weight_{part}_l1{way}" for part in ("hh", "ih") for way in ("", "_reverse")
    ]


@every_kind
def test_weights_are_in_pytorchs_order(kind: str) -> None:
    module = float_stack(kind, **DEEP, **proj_of(kind))
    layer = quantized(module)
    held = layer.dequantized()
    assert set(held) == set(module.state_dict())
    for name, (q, scale) in layer.integers().items():
        w = getattr(module, name).detach()
        assert_bits(scale, w.abs().amax(1) / 127)
        assert torch.equal(q, (w / scale[:, None]).round().to(torch.int8))
        assert_bits(held[name], q * scale[:, None])
        assert_bits(getattr(layer, name) + 0, held[name])
    for mine, theirs in zip(layer.all_weights, module.all_weights, strict=True):
        assert [w.shape for w in mine] == [w.shape for w in theirs]
    assert_bits(layer.bias_hh_l1_reverse, module.bias_hh_l1_reverse.detach())
    for name in ("weight_ih_l2", "weight_ih", "weight_xy_l0", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(layer, name)
    layer.flatten_parameters()


# --- what comes in ---


@every_kind
@every_float
def test_every_dtype_is_computed_in_float32_and_returned_in_kind(
    kind: str, dtype: torch.dtype
) -> None:
    layer = quantized(float_stack(kind, **DEEP))
    x, hx = numbers(5, 3, 13).to(dtype), mapped(lambda t: t.to(dtype), states(kind, 4, 3, 21))
    y, end = layer(x.float(), mapped(Tensor.float, hx))
    assert_bits(layer(x, hx), (y.to(dtype), mapped(lambda t: t.to(dtype), end)))
    packed = pack_padded_sequence(x, [5, 4, 1])
    assert layer(packed, hx)[0].data.dtype == dtype


@every_kind
def test_batch_first(kind: str) -> None:
    module = float_stack(kind, **DEEP)
    layer, hx, x = quantized(module), states(kind, 4, 3, 21), numbers(5, 3, 13)
    y, end = layer(x, hx)
    module.batch_first = True
    turned = quantized(module)
    found, found_end = turned(x.transpose(0, 1), hx)
    assert_bits(found, y.transpose(0, 1))
    assert_bits(found_end, end)
    assert found.is_contiguous()
    assert_bits(turned(x.transpose(0, 1).contiguous(), hx), (found, found_end))


@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
def test_the_kernel_gets_strides_and_no_copies(batch_first: bool) -> None:
    net = quantized(float_stack("lstm"))._stack.network(quantized(float_stack("lstm"))._tensors())
    calls: list[Any] = []
    net.run = lambda *given: calls.append(given)
    wide = numbers(5, 3, 40)
    x = wide[..., 3:16].transpose(0, 1) if batch_first else wide[..., 3:16]
    y, _, _ = caller(net)(x, None, None, None, batch_first)
    (given,) = calls
    assert given[:5] == (x.data_ptr(), 5, 3, 120, 40)
    assert given[5:8] == (y.data_ptr(), *((21, 105) if batch_first else (63, 21)))


@every_kind
@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
def test_a_sequence_without_a_batch(kind: str, batch_first: bool) -> None:
    layer = quantized(float_stack(kind, batch_first=batch_first, **DEEP))
    x, hx = numbers(5, 13), states(kind, 4, 21)
    axis = 0 if batch_first else 1
    y, end = layer(x.unsqueeze(axis), mapped(lambda t: t.unsqueeze(1), hx))
    assert_bits(layer(x, hx), (y.squeeze(axis), mapped(lambda t: t.squeeze(1), end)))
    assert_bits(layer(x)[0], layer(x.unsqueeze(axis))[0].squeeze(axis))


@every_kind
def test_states_are_zeros_where_there_are_none(kind: str) -> None:
    layer, x = quantized(float_stack(kind, **DEEP)), numbers(5, 3, 13)
    zeros = mapped(torch.zeros_like, states(kind, 4, 3, 21))
    assert_bits(layer(x), layer(input=x, hx=zeros))


@every_kind
def test_strided_inputs(kind: str) -> None:
    layer, x, hx = quantized(float_stack(kind)), numbers(5, 3, 13), states(kind, 1, 3, 21)
    wanted = layer(x, hx)
    wide = torch.zeros(9, 3, 40)
    wide[2:7, :, 3:16] = x
    apart = mapped(lambda t: t.mT.contiguous().mT, hx)
    for other in (wide[2:7, :, 3:16], x.mT.contiguous().mT, torch.stack([x, x], 3)[..., 0]):
        assert_bits(layer(other, hx), wanted)
        assert_bits(layer(other, apart), wanted)
    assert_bits(layer(x[:, :1].expand(5, 4, 13)), layer(x[:, :1].repeat(1, 4, 1)))
    single = quantized(float_stack(kind, 1, 4))
    assert_bits(single(torch.ones(6, 2, 2)[::2, :, :1]), single(torch.ones(3, 2, 1)))


@every_kind
def test_an_empty_batch_and_no_steps(kind: str) -> None:
    layer = quantized(float_stack(kind, **DEEP))
    y, end = layer(torch.ones(5, 0, 13))
    assert y.shape == (5, 0, 42)
    assert all(t.shape == (4, 0, 21) for t in parts(end))
    for shape in [(0, 3, 13), (0, 13), (0, 0, 13)]:
        with pytest.raises(ValueError, match="input: has no steps"):
            layer(torch.ones(shape))


LENGTHS = {"sorted": [5, 3, 3, 1], "unsorted": [2, 5, 1, 4], "equal": [5, 5, 5, 5], "one": [4]}


@every_kind
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_packed_sequences(kind: str, lengths: list[int]) -> None:
    """Each item as if it were alone."""
    for options in ({}, DEEP, {**DEEP, **proj_of(kind), "batch_first": True}):
        layer = quantized(float_stack(kind, **options))
        ways, width = len(layer.all_weights), layer.proj_size or 21
        items = [numbers(n, 13, seed=n) for n in lengths]
        hx = numbers(ways, len(items), width, seed=2, size=0.5)
        if kind == "lstm":
            hx = (hx, numbers(ways, len(items), 21, seed=3))
        packed = pack_sequence(items, enforce_sorted=lengths == sorted(lengths, reverse=True))
        y, end = layer(packed, hx)
        assert isinstance(y, PackedSequence)
        for mine, given in zip(y[1:], packed[1:], strict=True):
            assert mine is given
        found, found_lengths = pad_packed_sequence(y)
        assert found_lengths.tolist() == lengths
        for i, item in enumerate(items):
            alone, alone_end = layer(item, mapped(lambda t, i=i: t[:, i], hx))
            assert_bits(found[: lengths[i], i], alone)
            assert_bits(mapped(lambda t, i=i: t[:, i], end), alone_end)
        zeros = mapped(torch.zeros_like, hx)
        assert_bits(layer(packed)[0].data, layer(packed, zeros)[0].data)


@every_kind
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_item(kind: str, bad: float) -> None:
    layer, x = quantized(float_stack(kind, **DEEP)), numbers(5, 3, 13)
    clean, clean_end = layer(x)
    x[2, 1, 4] = bad
    y, end = layer(x)
    assert_bits(y[:, [0, 2]], clean[:, [0, 2]])
    assert y[:, 1].isnan().any()
    for mine, before in zip(parts(end), parts(clean_end), strict=True):
        assert_bits(mine[:, [0, 2]], before[:, [0, 2]])
        assert mine[:, 1].isnan().any()


@every_kind
def test_an_item_100_times_as_large_changes_no_bit_of_the_others(kind: str) -> None:
    layer, x = quantized(float_stack(kind, 60, 64, **DEEP)), numbers(12, 5, 60)
    clean, clean_end = layer(x)
    x[:, 3] *= 100
    keep = [0, 1, 2, 4]
    y, end = layer(x)
    assert_bits(y[:, keep], clean[:, keep])
    assert not torch.equal(y[:, 3], clean[:, 3])
    for mine, before in zip(parts(end), parts(clean_end), strict=True):
        assert_bits(mine[:, keep], before[:, keep])


REFUSED = [
    ((5, 3, 12), None, r"input: needs shape \[T, B, 13\], not \[5, 3, 12\]"),
    ((5, 12), None, r"input: needs shape \[T, B, 13\]"),
    ((13,), None, "input: needs 3 axes, or 2 for a sequence without a batch"),
    ((1, 5, 3, 13), None, "input: needs 3 axes, or 2"),
    ((5, 3, 13), (4, 2, 21), r"hx.*: needs shape \[4, 3, 21\], not \[4, 2, 21\]"),
    ((5, 3, 13), (2, 3, 21), r"hx.*: needs shape \[4, 3, 21\], not \[2, 3, 21\]"),
    ((5, 3, 13), (4, 21), r"hx.*: needs shape \[4, 3, 21\], not \[4, 21\]"),
    ((5, 13), (4, 1, 21), "hx.*: needs 2 axes, as the input has no batch"),
]


@every_kind
@pytest.mark.parametrize(("shape", "state", "message"), REFUSED)
def test_shapes_that_are_refused(kind: str, shape: Any, state: Any, message: str) -> None:
    layer = quantized(float_stack(kind, **DEEP))
    hx = None if state is None else states(kind, *state)
    with pytest.raises(ValueError, match=message):
        layer(torch.ones(shape), hx)
    with pytest.raises(Exception, match=message.partition(", not")[0]):
        torch.export.export(layer, (torch.ones(shape), hx))


@every_kind
def test_what_else_is_refused(kind: str) -> None:
    layer, x, hx = quantized(float_stack(kind, **DEEP)), numbers(5, 3, 13), states(kind, 4, 3, 21)
    with pytest.raises(TypeError, match=r"input: needs float32, .*, not int64"):
        layer(x.long())
    with pytest.raises(TypeError, match=r"hx.*: is float64; needs float32, as the input"):
        layer(x, mapped(Tensor.double, hx))
    with pytest.raises(ValueError, match=r"hx.*: needs 3 axes, the second of 3 items"):
        layer(pack_padded_sequence(x, [5, 4, 1]), states(kind, 4, 4, 21))
    if kind == "lstm":
        with pytest.raises(TypeError, match=r"hx: needs a pair of tensors, \(h0, c0\)"):
            layer(x, hx[0])


@every_kind
def test_under_autocast_states_may_have_another_dtype(kind: str) -> None:
    layer, x, hx = quantized(float_stack(kind)), numbers(5, 3, 13), states(kind, 1, 3, 21)
    halves = mapped(Tensor.bfloat16, hx)
    wanted = layer(x, mapped(Tensor.float, halves))
    turned = layer(x.bfloat16(), mapped(Tensor.bfloat16, hx))
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x, halves), layer(x.bfloat16(), hx)
    rounded = {
        "rtol": 2**-7,
        "atol": 2**-7,
        "check_dtype": False,
    }  # to bfloat16, where autocast says
    torch.testing.assert_close(found[0], wanted, **rounded)
    torch.testing.assert_close(found[1], turned, **rounded)


def test_constructors_refuse_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="nonlinearity: 'gelu' must be"):
        STACKS["relu"][1](13, 21, nonlinearity="gelu")
    with pytest.raises(ValueError, match="storage: has 1 entries, num_layers=2"):
        STACKS["gru"][1](13, 21, 2, storage=["int8"])
