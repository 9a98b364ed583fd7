"""Recurrent layers: single steps against a float64 statement, all else against single steps."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from octavo.core.recurrent import Gru, GruCell, Lstm, LstmCell, Recurrent, Rnn, RnnCell
from octavo.core.recurrent_weights import (
    ONNX_GRU,
    ONNX_LSTM,
    FloatWeight,
    permute_gates,
)
from tests.core.recurrent_statement import GATES, KINDS, Direction, Shape, Step, run
from tests.core.statement import assert_same_bits
from tests.core.tables import assert_all_same, on_every_table

every_kind = pytest.mark.parametrize("kind", KINDS)
CLOSE = 3e-6
"""Float32's roundings of one step, where gates are below 10; one integer more or less is 100 times
that."""


def network(shape: Shape, **more: Any) -> Recurrent:
    common: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_layers": shape.layers,
        "bidirectional": shape.bidirectional,
        "bias": shape.bias,
        "float_layers": shape.floating,
        "clip": shape.clip,
        **more,
    }
    weights = shape.flat()
    if shape.kind == "lstm":
        return Lstm.from_float(weights, proj_size=shape.proj, **common)
    if shape.kind in ("tanh", "relu"):
        return Rnn.from_float(weights, nonlinearity=shape.kind, **common)
    return Gru.from_float(weights, linear_before_reset=shape.kind == "gru", **common)


def call(net: Recurrent, x: Any, h0: Any = None, c0: Any = None, **more: Any) -> tuple[Any, ...]:
    if isinstance(net, Lstm):
        return net(x, h0, c0, **more)
    assert isinstance(net, Gru | Rnn)
    return (*net(x, h0, **more), None)


def numbers(*shape: int, seed: int = 3, size: float = 1.0) -> np.ndarray:
    r = np.random.default_rng([seed, *shape])
    return (r.standard_normal(shape) * size).astype(np.float32)  # type: ignore[no-any-return]


def states(shape: Shape, batch: int) -> tuple[np.ndarray, np.ndarray]:
    count = shape.layers * shape.ways
    return numbers(count, batch, shape.output, size=0.5), numbers(count, batch, shape.hidden)


def chained(shape: Shape, **more: Any) -> list[list[Step]]:
    """Every direction of every layer as a network of its own, called for single steps."""

    def step_of(way: Direction, kept: bool) -> Step:
        one = replace(shape, inputs=way.w_ih.shape[1], layers=1, bidirectional=False)
        one = replace(one, floating=(0,) if kept else (), directions=[[way]])
        net = network(one, **more)

        def step(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
            _, after, memory = call(net, x[None], h[None], c[None])
            return after[0], c if memory is None else memory[0]

        return step

    return [
        [step_of(way, shape.is_float(i, w)) for w, way in enumerate(layer)]
        for i, layer in enumerate(shape.directions)
    ]


SIZES = [(1, 1, 1), (3, 5, 7), (2, 64, 16), (1, 33, 31), (17, 130, 48), (5, 20, 100)]


@every_kind
@pytest.mark.parametrize("floating", [(), (0,)], ids=["int8", "float32"])
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
def test_a_step_computes_what_is_defined(
    kind: str, floating: tuple[int, ...], size: tuple[int, int, int]
) -> None:
    batch, inputs, hidden = size
    third = max(1, hidden // 3)
    for bias, clip, proj in [(True, 0, 0), (False, 0.7, 0), (True, 0.7, third), (False, 0, third)]:
        if proj and (kind != "lstm" or proj >= hidden):
            continue
        shape = Shape(
            kind, inputs, hidden, proj=proj, bias=bias, clip=clip, floating=floating
        ).make()
        x, (h0, c0) = numbers(batch, inputs, seed=4), states(shape, batch)
        h, c = shape.directions[0][0].step(x, h0[0], c0[0])
        y, h_end, c_end = call(network(shape), x[None], h0, c0)
        if kind == "gru_reset" or proj:  # h is quantized again: one that lies on an edge may fall
            assert np.mean(np.abs(y[0] - h) > CLOSE) < 0.05
            assert np.abs(y[0] - h).max() < 0.02
        else:
            assert np.abs(y[0] - h).max() < CLOSE
        assert_same_bits(y, h_end)
        if c_end is not None:
            assert np.abs(c_end[0] - c).max() < CLOSE


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_largest_biases_of_opposite_signs_cancel(kind: str) -> None:
    """No factor takes one of them to infinity before they meet."""
    rows, hidden = GATES[kind] * 16, 16
    large = np.full(rows, 2e38, np.float32)
    zeros = np.zeros((rows, 1), np.float32), np.zeros((rows, hidden), np.float32)
    way = Direction(kind, hidden, *zeros, large, -large)
    shape = Shape(kind, 1, hidden, directions=[[way]])
    x, h0, c0 = numbers(2, 1), numbers(1, 2, hidden), numbers(1, 2, hidden)
    h, _ = way.step(x, h0[0], c0[0])
    _, h_end, _ = call(network(shape), x[None], h0, c0 if kind == "lstm" else None)
    assert np.abs(h_end[0] - h).max() < CLOSE


@pytest.mark.parametrize("kind,floating", [("lstm", ()), ("gru", (0,)), ("tanh", ())])
def test_gates_are_accurate_however_large_or_small(kind: str, floating: tuple[int, ...]) -> None:
    """With no state's weight and one input, a step is its activations of chosen numbers."""
    v = np.concatenate([np.linspace(-30, 30, 801), np.geomspace(1e-12, 1e4, 100)])
    v = np.concatenate([v, -v[801:], [0.0]]).astype(np.float32)
    gates, hidden = GATES[kind], v.size
    r = np.random.default_rng(0)
    b = np.concatenate([r.permutation(v) for _ in range(gates)])
    zeros = np.zeros((gates * hidden, 1), np.float32)
    w_hh = np.zeros((gates * hidden, hidden), np.float32)
    way = Direction(kind, hidden, zeros, w_hh, b, np.zeros_like(b), floating=bool(floating))
    shape = Shape(kind, 1, hidden, floating=floating, directions=[[way]])
    h0, c0 = numbers(1, 1, hidden), numbers(1, 1, hidden, size=3)
    x = np.zeros((1, 1, 1), np.float32)
    h, c = way.step(x[0], h0[0], c0[0])
    _, h_end, c_end = call(network(shape), x, h0, c0)
    assert np.abs(h_end[0] - h).max() < 5e-7
    if c_end is not None:
        assert np.all(np.abs(c_end[0] - c) < 5e-7 * np.maximum(1, np.abs(c)))
    if kind == "tanh":  # small numbers keep their digits
        assert np.all(np.abs(h_end[0] - h) <= 6e-7 * np.abs(h))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gates_beyond_float32(kind: str) -> None:
    """They are 0 or 1; of sums of two infinities the bits are the reference's."""
    rows, hidden = GATES[kind] * 40, 40
    signs = np.sign(numbers(rows, 2)) * np.float32(1e3)
    states_weight = np.sign(numbers(rows, hidden)) * np.float32(1e3)
    way = Direction(kind, hidden, signs, states_weight, *2 * [np.zeros(rows, np.float32)])
    net = network(Shape(kind, 2, hidden, directions=[[way]]))
    x = np.array([[3e38, 2e38], [-3e38, 1e38], [1, -2], [3e38, -3e38]], np.float32)
    h0, c0 = numbers(1, 4, hidden, size=1e-3), numbers(1, 4, hidden) * np.float32(kind == "lstm")
    h0[0, 3] = np.sign(h0[0, 3]) * np.float32(3e38)
    a, b = way.product(x[3:], signs), way.product(h0[0, 3:], states_weight)
    assert ((np.abs(a) > 4e38) & (np.abs(b) > 4e38) & (a * b < 0)).any(), "no infinities meet"
    given = (x[None], h0, c0 if kind == "lstm" else None)
    found = on_every_table(lambda threads: call(net, *given, threads=threads), [1])
    h, c = way.step(x[:3], h0[0, :3], c0[0, :3])
    assert np.abs(found[0][0, :3] - h).max() < 1e-5
    assert found[2] is None or np.abs(found[2][0, :3] - c).max() < 1e-5


@every_kind
@pytest.mark.parametrize(
    "floating", [(), (0, 1), ((0, 0), (1, 1))], ids=["int8", "float32", "both"]
)
def test_layers_are_their_steps(kind: str, floating: tuple[Any, ...]) -> None:
    """Any number of steps, layers, directions, items and lengths: the same bits as single steps."""
    for hidden, bidirectional, proj in [(7, True, 0), (20, False, 0), (20, True, 6)]:
        if proj and kind != "lstm":
            continue
        kept = tuple(f for f in floating if bidirectional or not isinstance(f, tuple))
        shape = Shape(kind, 9, hidden, 2, bidirectional, proj, floating=kept).make()
        x, (h0, c0) = numbers(6, 4, 9), states(shape, 4)
        steps, net = chained(shape), network(shape)
        for lengths in ([6] * 4, [2, 6, 0, 5], [5, 3, 3, 1]):
            y, h, c = run(steps, x, h0, c0, lengths)
            given = None if min(lengths) == 6 else lengths
            got = call(net, x, h0, c0, lengths=given)
            assert_all_same(got, (y, h, c if kind == "lstm" else None))


@every_kind
@pytest.mark.parametrize("hidden", [1, 16, 17, 100, 272])
def test_every_table_gives_the_same_bits(kind: str, hidden: int) -> None:
    proj = hidden // 2 if kind == "lstm" and hidden > 16 else 0
    for floating, batch in [((), 3), ((0,), 1), ((), 16), ((0,), 33)][: 2 if hidden > 100 else 4]:
        shape = Shape(kind, hidden + 3, hidden, 1, True, proj, floating=floating).make()
        net, x = network(shape), numbers(3, batch, hidden + 3)
        for lengths in (None, [1 + b % 3 for b in range(batch)]):
            on_every_table(lambda t: call(net, x, lengths=lengths, threads=t), [1])  # noqa: B023


@every_kind
def test_threads_change_no_bits(kind: str) -> None:
    sizes = [(False, ((0, 0),), 300), (True, (), 400)] + [(False, (), 1100)] * (kind == "lstm")
    for bidirectional, floating, hidden in sizes:
        proj = 150 if kind == "lstm" else 0
        shape = Shape(kind, 40, hidden, 2, bidirectional, proj, floating=floating).make()
        net, x = network(shape), numbers(7, 3, 40)
        for lengths in (None, [3, 7, 0]):
            one = call(net, x, lengths=lengths, threads=1)
            for threads in (2, 3, 4):
                assert_all_same(call(net, x, lengths=lengths, threads=threads), one)


def test_many_steps_go_in_chunks() -> None:
    """The input's part is made for a chunk of steps at a time."""
    shape = Shape("lstm", 8, 512, 1, True).make()
    net, x = network(shape), numbers(150, 12, 8)
    lengths = np.random.default_rng(0).integers(0, 151, 12)
    for given in (None, lengths):
        whole = call(net, x, lengths=given)
        assert_all_same(call(net, x, lengths=given, threads=2), whole)
        b = 5
        end = 150 if given is None else int(given[b])
        alone = call(net, x[:end, b : b + 1])
        assert not whole[0][end:, b].any()
        assert_all_same((whole[0][:end, [b]], whole[1][:, [b]], whole[2][:, [b]]), alone)


@every_kind
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_item(kind: str, value: float) -> None:
    for floating in ((), (0,)):
        shape = Shape(kind, 9, 20, 1, True, floating=floating).make()
        x = numbers(5, 3, 9)
        clean = call(network(shape), x)
        x[2, 1, 4] = value
        found = call(network(shape), x)
        for a, b in zip(found, clean, strict=True):
            if a is not None:
                assert_same_bits(a[:, [0, 2]], b[:, [0, 2]])
        if np.isnan(value) or not floating:
            assert np.isnan(found[0][2, 1]).all()
        assert_same_bits(found[0][:2, 1, :20], clean[0][:2, 1, :20])  # forward, before it


def test_reverse_and_onnx_gates() -> None:
    for kind, order in [("lstm", ONNX_LSTM), ("gru_reset", ONNX_GRU)]:
        shape = Shape(kind, 6, 10, 1, True).make()
        x = numbers(5, 2, 6)
        both = call(network(shape), x)[0]
        back = replace(shape, bidirectional=False, directions=[[shape.directions[0][1]]])
        assert_same_bits(call(network(back, reverse=True), x)[0], both[:, :, 10:])
        # ONNX's weights from PyTorch's, and back.
        w = shape.directions[0][0].w_ih
        theirs = permute_gates(w, np.argsort(order).tolist())
        assert_same_bits(permute_gates(theirs, order), w)
    assert permute_gates(np.array(list("iofc")), ONNX_LSTM).tolist() == list("ifco")
    assert permute_gates(np.array(list("zrh")), ONNX_GRU).tolist() == list("rzh")
    with pytest.raises(ValueError, match="order: "):
        permute_gates(np.zeros(8), (0, 1, 1, 2))


@every_kind
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (4, 0), (0, 0)])
def test_nothing_to_do(kind: str, steps: int, batch: int) -> None:
    shape = Shape(kind, 9, 20, 2, True).make()
    h0, c0 = states(shape, batch)
    y, h, c = call(network(shape), np.zeros((steps, batch, 9), np.float32), h0, c0, threads=2)
    assert y.shape == (steps, batch, 40)
    assert_same_bits(h, h0)
    if kind == "lstm":
        assert_same_bits(c, c0)


def test_strided_arrays_are_used_as_they_are() -> None:
    shape = Shape("gru", 9, 20, 2, True).make()
    net, x = network(shape), numbers(5, 3, 9)
    assert repr(net) == "Gru(9 -> 20, layers=2, directions=2)"
    y, _, _ = call(net, x)
    batch_first = np.ascontiguousarray(x.swapaxes(0, 1))
    out = np.full((3, 5, 50), 7, np.float32)
    view = out[:, :, 5:45].swapaxes(0, 1)
    assert call(net, batch_first.swapaxes(0, 1), out=view)[0] is view
    assert_same_bits(np.ascontiguousarray(view), y)
    assert (out[:, :, :5] == 7).all()
    assert (out[:, :, 45:] == 7).all()
    wide = np.repeat(x, 2, axis=2)[:, :, ::2]
    for other in (wide, x[::-1].copy()[::-1], np.asfortranarray(x)):
        assert_same_bits(call(net, other)[0], y)


def test_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    shape = Shape("lstm", 9, 20, proj=5).make()
    net, x = network(shape), numbers(5, 3, 9)
    found = call(net, torch.from_numpy(x).requires_grad_(), lengths=torch.tensor([5, 2, 3]))
    assert all(isinstance(part, torch.Tensor) for part in found)
    assert_all_same(tuple(part.numpy() for part in found), call(net, x, lengths=[5, 2, 3]))


def test_cells() -> None:
    for kind, cell in [("lstm", LstmCell), ("gru", GruCell), ("tanh", RnnCell)]:
        for bias, keep_float in itertools.product([True, False], repeat=2):
            kept = (0,) if keep_float else ()
            shape = Shape(kind, 9, 20, bias=bias, floating=kept).make()
            made = cell.from_float(*shape.flat(), keep_float=keep_float)  # type: ignore[attr-defined]
            x, (h0, c0) = numbers(3, 9), states(shape, 3)
            _, h, c = call(network(shape), x[None], h0, c0)
            if kind == "lstm":
                assert_all_same(made(x, h0[0], c0[0]), (h[0], c[0]))
                assert_all_same(made(x), made(x, h0[0] * 0, c0[0] * 0))
            else:
                assert_same_bits(made(x, h0[0]), h[0])
    with pytest.raises(ValueError, match=r"x: needs shape \[B, inputs\]"):
        made(np.zeros(9, np.float32))
    with pytest.raises(ValueError, match="give both or neither"):
        RnnCell.from_float(*Shape("tanh", 2, 3).make().flat()[:3])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": 0}, "hidden_size: 0"),
        ({"num_layers": 0}, "num_layers: 0"),
        ({"num_layers": 2}, "weights: 4 arrays; 2 layers of 1 directions need 8: w_ih, w_hh"),
        ({"hidden_size": 9}, r"weights\[0\] \(w_ih\): needs \(36, 6\), not \(40, 6\)"),
        ({"proj_size": -1}, "proj_size: -1"),
        ({"proj_size": 10}, "proj_size: 10 must be less than hidden_size 10"),
        ({"float_layers": (1,)}, "float_layers: 1"),
        ({"float_layers": ((0, 1),)}, r"float_layers: \(0, 1\)"),
        ({"clip": -1.0}, "clip: -1.0"),
        ({"clip": float("nan")}, "clip: nan"),
        ({"bidirectional": True, "reverse": True}, "reverse"),
    ],
)
def test_weights_that_do_not_fit(change: dict[str, Any], named: str) -> None:
    weights = Shape("lstm", 6, 10).make().flat()
    with pytest.raises(ValueError, match=named):
        Lstm.from_float(weights, **{"hidden_size": 10, **change})


def test_weights_that_cannot_be_quantized() -> None:
    weights = Shape("gru", 6, 10).make().flat()
    nan = weights[1].copy()
    nan[3, 4] = np.nan
    for error, wrong, named in [
        (ValueError, [weights[0], nan, *weights[2:]], "layer 0, direction 0: .* NaN"),
        (TypeError, [w.astype(np.float64) for w in weights], r"weights\[0\] \(w_ih\)"),
        (ValueError, [np.zeros((30, 0), np.float32), *weights[1:]], r"w_ih\): shape \(30, 0\)"),
    ]:
        with pytest.raises(error, match=named):
            Gru.from_float(wrong, hidden_size=10)
    wide = Shape("tanh", 32_641, 1).make().flat()
    with pytest.raises(ValueError, match="32641 inputs; int8 has up to 32640"):
        Rnn.from_float(wide, hidden_size=1)
    kept = Rnn.from_float(wide, hidden_size=1, float_layers=(0,))
    assert isinstance(kept.layers[0][0].input.weight, FloatWeight)
    with pytest.raises(ValueError, match="nonlinearity: 'gelu'"):
        Rnn.from_float(wide, hidden_size=1, nonlinearity="gelu")


X = np.zeros((5, 3, 6), np.float32)
Y = np.zeros((5, 3, 10), np.float32)
ROOM = np.zeros(210, np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"x": X[0]}, ValueError, r"x: needs shape \[T, B, 6\], not \(3, 6\)"),
        ({"x": X.astype(np.float64)}, TypeError, "x: needs float32"),
        ({"x": [1.0]}, TypeError, "x: is a list"),
        ({"h0": X}, ValueError, r"h0: needs shape \(1, 3, 10\)"),
        ({"c0": X}, ValueError, r"c0: needs shape \(1, 3, 10\)"),
        ({"lengths": [1, 2]}, ValueError, "lengths: needs shape"),
        ({"lengths": [1, 6, 2]}, ValueError, "lengths: item 1 is 6, not in 0..5"),
        ({"lengths": [1, 2, -1]}, ValueError, "lengths: item 2 is -1, not in 0..5"),
        ({"lengths": [1.0, 2, 3]}, TypeError, "lengths: needs integers"),
        ({"out": X}, ValueError, r"out: needs shape \(5, 3, 10\)"),
        ({"out": Y.astype(float)}, TypeError, "out: needs float32"),
        ({"out": np.repeat(Y, 2, 2)[:, :, ::2]}, ValueError, "out: .* contiguous last axis"),
        ({"out": Y[::-1]}, ValueError, "out: .* no negative stride"),
        ({"out": as_strided(Y, (5, 3, 10), (40, 40, 4))}, ValueError, "out: .* no overlap"),
        (
            {"x": ROOM[:90].reshape(5, 3, 6), "out": ROOM[60:210].reshape(5, 3, 10)},
            *(ValueError, "out: shares memory with x"),
        ),
        ({"h0": Y[:1], "out": Y}, ValueError, "out: shares memory with h0"),
        ({"c0": Y[4:], "out": Y}, ValueError, "out: shares memory with c0"),
        ({"threads": -1}, ValueError, "threads: -1"),
    ],
)
def test_inputs_that_do_not_fit(
    arguments: dict[str, Any], error: type[Exception], named: str
) -> None:
    net = Lstm.from_float(Shape("lstm", 6, 10).make().flat(), hidden_size=10)
    with pytest.raises(error, match=named):
        net(**{"x": X, **arguments})
