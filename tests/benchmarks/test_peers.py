"""Every peer computes the layer that it is timed on: a wrong one would be no peer, however fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import ours, peers, peers_rnn
from benchmarks.parts import activations, weights
from benchmarks.peers import Float32, Layer
from benchmarks.peers_rnn import Rnn
from tests.benchmarks.marks import needs_openvino

pytestmark = pytest.mark.slow

FLOAT_ERROR = 1e-5  # of outputs near 1, sums of at most 128 products


def rms(values: Float32) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def quantization_error(x: Float32, w: Float32) -> float:
    """Expected root mean square error of `x @ w.T` by the coarsest of the peers' grids.

    Those are PyTorch's: one scale for a whole tensor, of 128 steps for activations (`reduce_range`)
    and 255 for weights; a rounding error is uniform, its variance a twelfth of the squared step.
    """
    x_step = (max(x.max(), 0) - min(x.min(), 0)) / 127
    w_step = 2 * np.abs(w).max() / 255
    k = x.shape[-1]
    return float(np.sqrt(k / 12 * (rms(x) ** 2 * w_step**2 + rms(w) ** 2 * x_step**2)))


def check_linear(layer: Layer, rows: int, *, exact: bool) -> None:
    w, bias = weights(48, 128)
    x = activations(rows, 128)
    expected = x.astype(np.float64) @ w.T.astype(np.float64) + bias
    got = layer(x).output()
    assert got.shape == expected.shape
    error = FLOAT_ERROR if exact else 1.5 * quantization_error(x, w)
    assert error < 0.05 * rms(expected)  # a wrong output would be seen
    assert rms(got - expected) < error
    if not exact:
        assert rms(got - expected) > FLOAT_ERROR  # it is int8 indeed


@pytest.mark.vnni("ONNX Runtime int8")
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[needs_openvino] * (n == peers.OPENVINO)) for n in peers.LINEAR],
)
def test_linear(name: str, rows: int) -> None:
    layer = peers.LINEAR[name](*weights(48, 128), 1)
    check_linear(layer, rows, exact=name in (peers.TORCH, peers.ONNX))


@pytest.mark.parametrize("group", [0, 128])
def test_our_linear(group: int) -> None:
    check_linear(ours.linear(*weights(48, 128), group), 5, exact=False)


@pytest.mark.parametrize("groups", [1, 8], ids=["dense", "depthwise"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_conv(kernel: int, groups: int) -> None:
    w, bias = weights(8, 8 // groups * kernel**2)
    w = w.reshape(8, 8 // groups, kernel, kernel)
    x = activations(1, 8, 5, 6)
    expected = torch.conv2d(
        *map(torch.from_numpy, (x, w, bias)), padding=kernel // 2, groups=groups
    ).numpy()
    for peer in (peers.onnx_conv, peers.torch_conv):
        got = peer(w, bias, kernel // 2, groups, 1)(x).output()
        np.testing.assert_allclose(got, expected, atol=FLOAT_ERROR)
    made = ours.conv(w, bias, kernel // 2, groups)(x).output()
    columns = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    patches = columns.reshape(-1, kernel**2 * 8 // groups)
    assert rms(made - expected) < 1.5 * quantization_error(patches, w)


SHAPES = [Rnn("LSTM", 32, 1, True), Rnn("LSTM", 32, 2), Rnn("GRU", 32, 1), Rnn("GRU", 32, 2, True)]


def recurrent_error(rnn: Rnn, x: Float32, given: list[Float32]) -> float:
    """Of the hidden state: sigmoids are near 1/2 here and tanh near its argument, so an error of
    the sums reaches h as i * g * o does, by 1/4 in an LSTM, and as (1 - z) * n, by 1/2, in a GRU.
    """
    slope = {"LSTM": 1 / 4, "GRU": 1 / 2}[rnn.kind]
    return 1.5 * slope * quantization_error(x, given[0])


@pytest.mark.vnni("LSTM")
@pytest.mark.parametrize("rnn", SHAPES, ids=lambda rnn: f"{rnn.kind} {rnn.label}")
def test_recurrent(rnn: Rnn) -> None:
    given = rnn.weights()
    x = activations(3, 2, 32)
    expected = peers_rnn.torch_float(rnn, given, 1)(x).output()
    assert expected.shape == (3, 2, 32 * rnn.ways)
    exact = peers_rnn.onnx_float(rnn, given, 1)(x).output()
    np.testing.assert_allclose(exact, expected, atol=FLOAT_ERROR)
    error = recurrent_error(rnn, x, given)
    assert error < 0.06 * rms(expected)
    made = {name: peer(threads=1) for name, peer in peers_rnn.peers(rnn, given).items()}
    made[ours.OCTAVO] = ours.recurrent(rnn, given)
    for name, layer in made.items():
        got = layer(x).output()
        assert got.shape == expected.shape, name
        assert rms(got - expected) < (FLOAT_ERROR if "fp32" in name else error), name


@pytest.mark.parametrize("kind", peers_rnn.GATES)
def test_the_bound_would_see_a_wrong_layer(kind: peers_rnn.Kind) -> None:
    """Gates in another order, and a layer left out."""
    rnn = Rnn(kind, 32, 2)
    given, x = rnn.weights(), activations(3, 2, 32)
    expected = peers_rnn.torch_float(rnn, given, 1)(x).output()
    error = recurrent_error(rnn, x, given)
    swapped = [np.concatenate(np.split(part, peers_rnn.GATES[kind])[::-1]) for part in given]
    shorter = replace(rnn, layers=1)
    for other, parts in ((rnn, swapped), (shorter, given[:4])):
        got = peers_rnn.torch_float(other, parts, 1)(x).output()
        assert rms(got - expected) > 5 * error
