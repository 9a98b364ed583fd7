"""Under torch.autocast quantized layers return the dtype that the float layers return there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from octavo.torch import quantize_dynamic
from tests.models import mlp, net

K = 32


def attention() -> nn.Module:
    call = lambda m, x: m.inner(x, x, x, need_weights=False)[0]  # noqa: E731
    return net(call, inner=nn.MultiheadAttention(K, 2))


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
    "attention": (attention, (3, 2, K)),
}
KINDS = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention}
KINDS |= {nn.LSTMCell, nn.GRUCell, nn.RNNCell}


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


def as_float(found: Any, expected: Any) -> None:
    """The dtypes of the float layer's outputs, and nearly the values."""
    for y, like in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert y.dtype is like.dtype
        assert torch.allclose(y.float(), like.float(), atol=0.05)


def of_torch(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RuntimeError as said:  # oneDNN has no LSTM of some dtypes on some processors
        pytest.skip(f"NOT TESTED: PyTorch's own layer does not run here: {said}")


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_have_the_float_layers_dtype(name: str, half: torch.dtype) -> None:
    make, shape = LAYERS[name]
    model = nn.Sequential(make()).eval()
    quantized = quantize_dynamic(model, KINDS)
    for given in (torch.float32, half):
        x = torch.randn(shape).to(given)
        with torch.autocast("cpu", dtype=half):
            as_float(quantized(x), of_torch(lambda x=x: model(x)))
        assert tree_leaves(quantized(x))[0].dtype is given, "and outside of autocast the input's"


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_states_of_another_dtype(kind: Any, given: torch.dtype) -> None:
    if kind is nn.LSTM and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("NOT TESTED: PyTorch's own LSTM needs a oneDNN with bfloat16")
    layer = kind(K, 8)
    quantized, is_cell = quantize_dynamic(layer), isinstance(layer, nn.RNNCellBase)
    x = torch.randn(*([] if is_cell else [3]), 2, K).to(given)
    for state in (None, torch.float32, torch.bfloat16):
        h: Any = None
        if state is not None:
            h = torch.randn(*([] if is_cell else [1]), 2, 8).to(state)
            h = (h, h.clone()) if "LSTM" in kind.__name__ else h
        with torch.autocast("cpu", dtype=torch.bfloat16):
            as_float(quantized(x, h), of_torch(lambda h=h: layer(x, h)))


def test_packed_sequences_are_cast_too() -> None:
    layer = nn.LSTM(K, 8)
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, K), torch.randn(2, K)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert quantize_dynamic(layer)(packed)[0].data.dtype is torch.bfloat16


def test_compiled_as_eager() -> None:
    model, x = quantize_dynamic(mlp(K, 16, 8)), torch.randn(4, K)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = compiled(x), model(x)
    assert found.dtype is expected.dtype is torch.bfloat16
    assert torch.equal(found, expected)


def test_autocast_for_another_device_and_float64_change_nothing() -> None:
    layer, x = quantize_dynamic(nn.Sequential(nn.Linear(K, 8))), torch.randn(4, K)
    expected: Tensor = layer(x)
    with torch.autocast("cpu", enabled=False):
        assert torch.equal(layer(x), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x.double()).dtype is torch.float64
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(layer(x), expected)
