"""Nested tensors, jagged and strided, through single layers and parents that fuse activations."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic
from octavo.torch.layers.attention import run_with_one_input
from tests.models import seeded

pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype:UserWarning")

K = 32
PARTS = [seeded(n, K, seed=n) for n in (2, 5, 1)]
LAYOUTS = pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)


class Block(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.dense, self.act = nn.Linear(K, 16), act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.dense(x))


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


def nested(layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor(PARTS, layout=layout)


@pytest.mark.sweep(3)
@LAYOUTS
@pytest.mark.parametrize("act", [nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("parent", [lambda a: nn.Sequential(nn.Linear(K, 16), a), Block])
def test_a_fused_parent_gives_what_it_gives_of_each_part(
    layout: torch.layout, act: Callable[[], nn.Module], parent: Callable[[nn.Module], nn.Module]
) -> None:
    model = quantize_dynamic(parent(act()).eval())
    found = model(nested(layout))
    assert found.layout is layout
    assert all(torch.equal(y, model(p)) for p, y in zip(PARTS, found.unbind(), strict=True))
    if act is nn.GELU:
        compiled = torch.compile(model, backend="aot_eager")(nested(layout))
        assert all(map(torch.equal, compiled.unbind(), found.unbind()))


@LAYOUTS
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_a_linear_layer_keeps_the_structure(layout: torch.layout, dtype: str) -> None:
    layer = quantize_dynamic(nn.Sequential(nn.Linear(K, K)), dtype=dtype)
    x = nested(layout)
    for _ in range(2):  # the second call has a way of its own
        parts = (x + layer(x)).unbind()  # of one structure, else they cannot be added
        assert all(torch.equal(y, p + layer(p)) for p, y in zip(PARTS, parts, strict=True))


def test_jagged_axes_behind_the_first_and_holes() -> None:
    layer = quantize_dynamic(nn.Sequential(nn.Linear(K, 16), nn.ReLU()))
    offsets, values = torch.tensor([0, 3, 7]), torch.randn(7, K)
    x = torch.nested.nested_tensor_from_jagged(values, offsets, torch.tensor([2, 3]))
    for y, part in zip(layer(x).unbind(), (values[:2], values[3:6]), strict=True):
        assert torch.equal(y, layer(part))
    heads = torch.randn(2, 7, K)
    x = torch.nested.nested_tensor_from_jagged(heads, offsets, jagged_dim=2)
    for y, part in zip(layer(x).unbind(), (heads[:, :3], heads[:, 3:]), strict=True):
        assert torch.equal(y, layer(part))


@LAYOUTS
@pytest.mark.parametrize("dtype", ["quint8", "float16"])
def test_embeddings_look_each_part_up(layout: torch.layout, dtype: str) -> None:
    model = quantize_dynamic(nn.Sequential(nn.Embedding(5000, 8)), {nn.Embedding}, dtype=dtype)
    parts = [torch.tensor([3, 4999]), torch.tensor([0, 1, 2])]
    found = model(torch.nested.nested_tensor(parts, layout=layout))
    assert found.layout is layout
    assert all(torch.equal(y, model(p)) for p, y in zip(parts, found.unbind(), strict=True))


@LAYOUTS
def test_layers_over_one_nested_input(layout: torch.layout) -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(K, 8), nn.Linear(K, 8)))
    for layer, found in zip(model, run_with_one_input(list(model), nested(layout)), strict=True):
        assert all(torch.equal(y, layer(p)) for p, y in zip(PARTS, found.unbind(), strict=True))


@LAYOUTS
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.Conv1d])
def test_what_torch_does_not_take_either_is_refused_in_words(
    kind: Callable[..., nn.Module], layout: torch.layout
) -> None:
    layer = kind(K, 8, 1) if kind is nn.Conv1d else kind(K, 8)
    quantized = quantize_dynamic(nn.ModuleList([layer]), {kind})[0]
    with pytest.raises(TypeError, match="input: is a nested tensor; give"):
        quantized(nested(layout))
