"""Every layer takes any buffer: what DLPack or Python's buffer protocol shows, for any argument."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from octavo.core import kernels
from octavo.core.convolution import Conv1d
from octavo.core.embedding import Embedding
from octavo.core.half_linear import HalfLinear
from octavo.core.linear import Linear, linear_together
from octavo.core.qparams import Grid, QType
from octavo.core.recurrent import Gru, GruCell, Lstm, LstmCell, Rnn, RnnCell
from tests.core.foreign import Foreign
from tests.core.statement import assert_same_bits

Wrap = Callable[[np.ndarray], Any]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def recurrent(kind: Any, gates: int) -> tuple[Any, list[np.ndarray]]:
    return kind, [floats(gates * 8, 6), floats(gates * 8, 8), floats(gates * 8), floats(gates * 8)]


W, BIAS, X = floats(20, 30), floats(20), floats(4, 30)
Q, SCALE, ZERO = kernels.quantize_rows(X)
INDICES, OFFSETS = np.array([1, 9, 3, 3]), np.array([0, 3])
SEQUENCE, H0, C0 = floats(5, 3, 6), floats(1, 3, 8), floats(1, 3, 8)
INT8 = Grid.of(QType.INT8, symmetric=True)


def layer(wrap: Wrap) -> Any:
    made, out = Linear.from_float(wrap(W), wrap(BIAS)), np.zeros((4, 20), np.float32)
    made(wrap(X), wrap(BIAS + np.zeros((4, 1), np.float32)), wrap(out))
    return made(wrap(X)), out, made.quantized(wrap(Q), wrap(SCALE), wrap(ZERO))


def together(wrap: Wrap) -> Any:
    made, outs = Linear.from_float(W), [np.zeros((4, 20), np.float32) for _ in range(2)]
    linear_together([made, made], wrap(X), [wrap(out) for out in outs])
    return outs


def half(wrap: Wrap) -> Any:
    return (HalfLinear.from_float(wrap(W), wrap(BIAS), "bfloat16")(wrap(X)),)


def integers(wrap: Wrap) -> Any:
    packed = kernels.pack(wrap(np.arange(60, dtype=np.int8).reshape(6, 10)))
    found = kernels.quantize_weight(wrap(W), INT8, 0)
    return packed, found.q, *kernels.quantize_rows(wrap(X))


def embedding(wrap: Wrap) -> Any:
    made = Embedding.from_float(floats(10, 8))
    table = Embedding(wrap(made.q), wrap(made.scale))
    bags = table.bag(
        wrap(INDICES), wrap(OFFSETS), mode="sum", per_sample_weights=wrap(np.ones(4, np.float32))
    )
    return table(wrap(INDICES)), bags, Embedding.from_float(wrap(W))(wrap(INDICES))


def lstm(wrap: Wrap) -> Any:
    kind, weights = recurrent(Lstm, 4)
    made = kind.from_float([wrap(w) for w in weights], hidden_size=8)
    out = np.zeros((5, 3, 8), np.float32)
    _, h, c = made(wrap(SEQUENCE), wrap(H0), wrap(C0), wrap(np.array([5, 2, 0])), wrap(out))
    return out, h, c


def others(wrap: Wrap) -> Any:
    for kind, gates in ((Gru, 3), (Rnn, 1)):
        _, weights = recurrent(kind, gates)
        yield from kind.from_float([wrap(w) for w in weights], hidden_size=8)(wrap(SEQUENCE))


def cells(wrap: Wrap) -> Any:
    x, h, c = wrap(SEQUENCE[0]), wrap(H0[0]), wrap(C0[0])
    yield from LstmCell.from_float(*map(wrap, recurrent(Lstm, 4)[1]))(x, h, c)
    yield GruCell.from_float(*map(wrap, recurrent(Gru, 3)[1]))(x, h)
    yield RnnCell.from_float(*map(wrap, recurrent(Rnn, 1)[1]))(x, h)


def convolution(wrap: Wrap) -> Any:
    return (Conv1d.from_float(wrap(floats(4, 3, 2)), wrap(floats(4)))(wrap(floats(2, 3, 9))),)


LAYERS = (layer, together, half, integers, embedding, lstm, others, cells, convolution)


@pytest.mark.parametrize("wrap", [Foreign, memoryview], ids=["DLPack", "buffer"])
@pytest.mark.parametrize("use", LAYERS, ids=lambda use: use.__name__)
def test_any_buffer_gives_what_the_array_gives(use: Callable[[Wrap], Any], wrap: Wrap) -> None:
    for mine, other in zip(use(wrap), use(lambda plain: plain), strict=True):
        assert isinstance(mine, np.ndarray)
        assert_same_bits(mine, other)


def test_a_row_of_pythons_own_array_and_an_output_that_is_returned_as_it_came() -> None:
    made = Linear.from_float(W)
    assert_same_bits(made(array("f", X[0].tolist())), made(X[0]))
    out = Foreign(np.zeros((4, 20), np.float32))
    assert made(X, out=out) is out
    assert_same_bits(out.array, made(X))


def test_bfloat16_through_dlpack() -> None:
    """NumPy reads no bfloat16 there, though it is what the format was made for."""
    torch = pytest.importorskip("torch")

    narrow = X.astype(ml_dtypes.bfloat16)
    tensor = torch.from_numpy(X).bfloat16()
    made = Linear.from_float(Foreign(torch.from_numpy(W).bfloat16()))
    assert_same_bits(
        made.weight.unpack(), Linear.from_float(W.astype(ml_dtypes.bfloat16)).weight.unpack()
    )
    expected = made(narrow)
    found = made(Foreign(tensor))
    assert found.dtype == ml_dtypes.bfloat16
    assert_same_bits(found.view(np.uint16), expected.view(np.uint16))
    strided = tensor.T.contiguous().T
    assert_same_bits(made(Foreign(strided)).view(np.uint16), expected.view(np.uint16))
    out = torch.zeros(4, 20, dtype=torch.bfloat16)
    made(Foreign(tensor), out=Foreign(out))
    assert_same_bits(out.view(torch.int16).numpy().view(np.uint16), expected.view(np.uint16))


def test_bfloat16_without_its_numpy_type_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "ml_dtypes")
    with pytest.raises(TypeError, match="x: is bfloat16, which NumPy has of ml_dtypes: import"):
        Linear.from_float(W)(Foreign(torch.from_numpy(X).bfloat16()))


@pytest.mark.parametrize("x", [[1.0], "text", object(), 3.0], ids=lambda x: type(x).__name__)
def test_what_is_no_buffer_says_so(x: Any) -> None:
    for call in (Linear.from_float(W), Linear.from_float, Embedding.from_float, kernels.pack):
        with pytest.raises(TypeError, match=rf"^\w+: is a {type(x).__name__}; needs a NumPy array"):
            call(x)


def test_a_buffer_that_is_read_only_is_not_written() -> None:
    frozen = memoryview(np.zeros((4, 20), np.float32).tobytes()).cast("f", (4, 20))
    with pytest.raises(ValueError, match="out: is read-only"):
        Linear.from_float(W)(X, out=frozen)
