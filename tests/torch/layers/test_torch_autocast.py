"""Under torch.autocast quantized layers return the dtype that the float layers return there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from octavo.torch import quantize_dynamic

K = 32


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(K, 2)

    def forward(self, x: Tensor) -> Any:
        return self.inner(x, x, x, need_weights=False)[0]


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(K, 8), (4, K)),
    "linear-gelu": (lambda: nn.Sequential(nn.Linear(K, 8), nn.GELU()), (4, K)),
    "conv1d": (lambda: nn.Conv1d(K, 8, 3), (2, K, 9)),
    "conv2d": (lambda: nn.Conv2d(K, 8, 3, padding=1, padding_mode="reflect"), (2, K, 9, 9)),
    "lstm": (lambda: nn.LSTM(K, 8), (3, 2, K)),
    "gru": (lambda: nn.GRU(K, 8), (3, 2, K)),
    "rnn": (lambda: nn.RNN(K, 8), (3, 2, K)),
    "lstm-cell": (lambda: nn.LSTMCell(K, 8), (2, K)),
    "gru-cell": (lambda: nn.GRUCell(K, 8), (2, K)),
    "rnn-cell": (lambda: nn.RNNCell(K, 8), (2, K)),
    "attention": (Attention, (3, 2, K)),
}
KINDS = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention}
KINDS |= {nn.LSTMCell, nn.GRUCell, nn.RNNCell}


HALVES = (torch.bfloat16, torch.float16)
PAIRS = [(given, half) for half in HALVES for given in (torch.float32, half)]


@pytest.mark.parametrize(("given", "half"), PAIRS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_have_the_float_layers_dtype(
    name: str, given: torch.dtype, half: torch.dtype
) -> None:
    make, shape = LAYERS[name]
    model = nn.Sequential(make()).eval()
    quantized, x = quantize_dynamic(model, KINDS), torch.randn(shape).to(given)
    with torch.no_grad(), torch.autocast("cpu", dtype=half):
        try:
            expected = tree_leaves(model(x))
        except RuntimeError:  # oneDNN has no LSTM of float16 on some processors
            pytest.skip(f"torch's own {name} does not run under autocast to {half} here")
        found = tree_leaves(quantized(x))
    for y, like in zip(found, expected, strict=True):
        assert y.dtype is like.dtype
        assert torch.allclose(y.float(), like.float(), atol=0.05)
    assert tree_leaves(quantized(x))[0].dtype is given, "and outside of autocast the input's"


@pytest.mark.parametrize("state", [None, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_states_of_another_dtype(kind: Any, given: torch.dtype, state: torch.dtype | None) -> None:
    layer = kind(K, 8)
    quantized = quantize_dynamic(layer)
    cell = isinstance(layer, nn.RNNCellBase)
    x = torch.randn(*([] if cell else [3]), 2, K).to(given)
    h: Any = None
    if state is not None:
        h = torch.zeros(*([] if cell else [1]), 2, 8, dtype=state)
        h = (h, h.clone()) if "LSTM" in kind.__name__ else h
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected, found = tree_leaves(layer(x, h)), tree_leaves(quantized(x, h))
    assert [y.dtype for y in found] == [y.dtype for y in expected]


def test_packed_sequences_are_cast_too() -> None:
    layer = nn.LSTM(K, 8)
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, K), torch.randn(2, K)])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert quantize_dynamic(layer)(packed)[0].data.dtype is torch.bfloat16


def test_compiled_as_eager() -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(K, 16), nn.ReLU(), nn.Linear(16, 8)))
    x = torch.randn(4, K)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = compiled(x), model(x)
    assert found.dtype is expected.dtype is torch.bfloat16
    assert torch.equal(found, expected)


def test_autocast_for_another_device_and_float64_change_nothing() -> None:
    layer, x = quantize_dynamic(nn.Sequential(nn.Linear(K, 8))), torch.randn(4, K)
    with torch.no_grad():
        expected = layer(x)
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(layer(x), expected)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(x.double()).dtype is torch.float64
            with torch.autocast("cpu", enabled=False):
                assert torch.equal(layer(x), expected)
