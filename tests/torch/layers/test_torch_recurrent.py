"""Quantized LSTM, GRU and RNN: layers against their own steps, packed sequences, dropout.

Single steps are stated in float64, here for projections and in test_torch_cells for all else; what
a layer computes has to be the bits of its steps.
"""

from __future__ import annotations

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
from tests.models import assert_bits
from tests.torch.recurrent_cases import (
    CHOICES,
    CLOSE,
    DEEP,
    DEFAULT,
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


STEPPED: list[tuple[bool, int, dict[str, Any]]] = [
    (True, 7, {}),
    (False, 16, {"num_layers": 3}),
    (True, 40, {"bidirectional": True}),
    (False, 40, DEEP),
    (True, 16, DEEP),
]


@every_kind
def test_layers_are_their_steps(kind: str) -> None:
    for bias, hidden, options in STEPPED:
        module = float_stack(kind, 13, hidden, bias=bias, **options)
        layer, x = quantized(module), numbers(4, 3, 13)
        hx = states(kind, len(layer.all_weights), 3, hidden)
        assert_bits(layer(x, hx), stepped(module, x, hx))


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("hidden", [7, 40])
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
    assert y.shape == (5, 3, 6 * (2 if options else 1))
    assert (end[0].shape, end[1].shape) == ((ways, 3, 6), (ways, 3, 21))
    if not options:
        for t in range(5):
            out, hx = layer(x[t : t + 1], hx)
            assert_bits(out[0], y[t])
        assert_bits(hx, end)


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
        assert (between - first(x)[0]).abs().max() < CLOSE
    y, end_second = quantized(second)(between)
    hidden = (torch.cat(pair) for pair in zip(parts(end_first), parts(end_second), strict=True))
    found, end = layer(x)
    assert_bits((found, *parts(end)), (y, *hidden))
    assert sorted(layer.integers()) == [
        f"weight_{part}_l1{way}" for part in ("hh", "ih") for way in ("", "_reverse")
    ]


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
    one = x[:, 0], mapped(lambda t: t[:, 0], hx)
    assert_bits(turned(*one), layer(*one))


@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
def test_the_kernel_gets_strides_and_no_copies(batch_first: bool) -> None:
    layer = quantized(float_stack("lstm"))
    net = layer._stack.network(layer._tensors())
    calls: list[Any] = []
    net.run = lambda *given: calls.append(given)
    wide = numbers(5, 3, 40)
    x = wide[..., 3:16].transpose(0, 1) if batch_first else wide[..., 3:16]
    y, _, _ = caller(net)(x, None, None, None, batch_first)
    (given,) = calls
    assert given[:5] == (x.data_ptr(), 5, 3, 120, 40)
    assert given[5:8] == (y.data_ptr(), *((21, 105) if batch_first else (63, 21)))


@every_kind
def test_an_empty_batch_and_no_steps(kind: str) -> None:
    layer = quantized(float_stack(kind, **DEEP))
    y, end = layer(torch.ones(5, 0, 13))
    assert y.shape == (5, 0, 42)
    assert all(t.shape == (4, 0, 21) for t in parts(end))
    for shape in [(0, 3, 13), (0, 13), (0, 0, 13)]:
        with pytest.raises(ValueError, match="input: has no steps"):
            layer(torch.ones(shape))


PACKED: list[tuple[list[int], dict[str, Any]]] = [
    ([5, 3, 3, 1], {}),
    ([2, 5, 1, 4], {**DEEP, "batch_first": True}),
    ([5, 5, 5, 5], DEEP),
    ([4], DEEP),
]


@every_kind
@pytest.mark.parametrize(("lengths", "options"), PACKED, ids=["sorted", "not", "equal", "one"])
def test_packed_sequences(kind: str, lengths: list[int], options: dict[str, Any]) -> None:
    """Each item as if it were alone."""
    layer = quantized(float_stack(kind, **options, **(proj_of(kind) if options else {})))
    ways, width = len(layer.all_weights), layer.proj_size or 21
    items = [numbers(n, 13, seed=n) for n in lengths]
    hx = numbers(ways, len(items), width, seed=2, size=0.5)
    if kind == "lstm":
        hx = (hx, numbers(ways, len(items), 21, seed=3))
    packed = pack_sequence(items, enforce_sorted=lengths == sorted(lengths, reverse=True))
    y, end = layer(packed, hx)
    assert isinstance(y, PackedSequence)
    assert all(mine is given for mine, given in zip(y[1:], packed[1:], strict=True))
    found, found_lengths = pad_packed_sequence(y)
    assert found_lengths.tolist() == lengths
    for i, item in enumerate(items):
        alone, alone_end = layer(item, mapped(lambda t, i=i: t[:, i], hx))
        assert_bits(found[: lengths[i], i], alone)
        assert_bits(mapped(lambda t, i=i: t[:, i], end), alone_end)
    zeros = mapped(torch.zeros_like, hx)
    assert_bits(layer(packed)[0].data, layer(packed, zeros)[0].data)


def test_packed_sequences_of_another_dtype_or_batch() -> None:
    layer, x = quantized(float_stack("gru", **DEEP)), numbers(5, 3, 13)
    packed = pack_padded_sequence(x.bfloat16(), [5, 4, 1])
    assert layer(packed, states("gru", 4, 3, 21).bfloat16())[0].data.dtype is torch.bfloat16
    with pytest.raises(ValueError, match="hx"):
        layer(pack_padded_sequence(x, [5, 4, 1]), states("gru", 4, 4, 21))


@every_kind
def test_dropout_acts_between_layers_in_train_mode_alone(kind: str) -> None:
    layer, x = quantized(float_stack(kind, dropout=0.5, **DEEP)), numbers(5, 3, 13)
    hx = states(kind, 4, 3, 21)
    calm = layer(x, hx)
    assert_bits(layer(x, hx), calm)
    layer.train()
    torch.manual_seed(0)
    one = layer(x, hx)
    assert not torch.equal(one[0], calm[0])
    for mine, other in zip(parts(one[1]), parts(calm[1]), strict=True):
        assert_bits(mine[:2], other[:2])  # the first layer's
    torch.manual_seed(0)
    assert_bits(layer(x, hx), one)
    layer.dropout = 1.0  # the second layer gets zeros
    second = float_stack(kind, 42, bidirectional=True)
    second.load_state_dict(
        {k.replace("_l1", "_l0"): v for k, v in layer.dequantized().items() if "_l1" in k}
    )
    y, _ = layer(x, hx)
    wanted, _ = quantized(second)(torch.zeros(5, 3, 42), mapped(lambda t: t[2:].contiguous(), hx))
    assert (y - wanted).abs().max() < CLOSE
    with pytest.raises(ValueError, match=r"hx.*: needs 4 states, not 5"):
        layer(x, states(kind, 5, 3, 21))
    assert_bits(layer.eval()(x, hx), calm)
    for layers in (1, 2):
        plain = quantized(float_stack(kind, num_layers=layers))
        calm = plain(x)
        assert_bits(plain.train()(x), calm)


def test_dropout_of_packed_sequences() -> None:
    layer = quantized(float_stack("gru", num_layers=2, dropout=0.5))
    packed = pack_padded_sequence(numbers(5, 3, 13), [5, 3, 2])
    calm, noisy = layer.eval()(packed)[0], layer.train()(packed)[0]
    assert noisy.data.shape == calm.data.shape
    assert not torch.equal(noisy.data, calm.data)
