"""torch.fx and torch.jit over quantized models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Tracer
from torch.utils._pytree import tree_leaves

from octavo.errors import ModelError
from octavo.torch import quantize_dynamic
from octavo.torch.layers.base import QuantizedModule
from tests.models import net

EVERY = {nn.Linear, nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell, nn.Conv1d}
EVERY |= {nn.Conv2d, nn.Embedding, nn.EmbeddingBag, nn.MultiheadAttention}
K = 8


class Calls(nn.Module):
    """A forward that calls its layer with `arguments` in place of x alone."""

    def __init__(self, layer: nn.Module, *arguments: Any) -> None:
        super().__init__()
        self.layer, self.arguments = layer, arguments

    def forward(self, x: Tensor) -> Any:
        return self.layer(x, *self.arguments)


def attention() -> nn.Module:
    call = lambda m, x: m.layer(x, x, x, need_weights=False)[0]  # noqa: E731
    return net(call, layer=nn.MultiheadAttention(K, 2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act = nn.Linear(K, K), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.dense(x))


MODELS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(K, K)), (2, K)),
    "fused": (
        lambda: nn.Sequential(nn.Linear(K, K), nn.ReLU(), nn.Sequential(Block()), Block()),
        (2, K),
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(K, K, 3)), (2, K, 9)),
    "conv2d": (
        lambda: nn.Sequential(nn.Conv2d(K, K, 3, padding=1, padding_mode="circular")),
        (2, K, 9, 9),
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5000, K)), None),
    "embedding-bag": (lambda: Calls(nn.EmbeddingBag(5000, K), torch.tensor([0, 2])), None),
    "lstm": (lambda: Calls(nn.LSTM(K, K)), (3, 2, K)),
    "gru": (lambda: Calls(nn.GRU(K, K), torch.zeros(1, 2, K)), (3, 2, K)),
    "rnn": (lambda: Calls(nn.RNN(K, K)), (3, 2, K)),
    "lstm-cell": (lambda: Calls(nn.LSTMCell(K, K)), (2, K)),
    "gru-cell": (lambda: Calls(nn.GRUCell(K, K)), (2, K)),
    "rnn-cell": (lambda: Calls(nn.RNNCell(K, K)), (2, K)),
    "attention": (attention, (3, 2, K)),
}
EACH = pytest.mark.parametrize("name", MODELS)


def made(name: str) -> tuple[nn.Module, Tensor]:
    make, shape = MODELS[name]
    return quantize_dynamic(make(), EVERY), torch.arange(5) if shape is None else torch.randn(shape)


def assert_same(found: Any, expected: Any, atol: float = 0.0) -> None:
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert torch.allclose(one, other, atol=atol, rtol=0)


@EACH
def test_fx_takes_layers_for_leaves(name: str) -> None:
    model, x = made(name)
    traced = torch.fx.symbolic_trace(model)
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    for path, module in model.named_modules():
        if isinstance(module, QuantizedModule) and not path.startswith("layer."):
            assert path in called
            assert traced.get_submodule(path) is module
    # An activation that is a node of its own is torch's.
    assert_same(traced(x), model(x), atol=1e-5 if name == "fused" else 0.0)


class NodePathTracer(Tracer):
    """As torchvision's feature extractor names nodes: by the module that makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.module, self.names = "", {}

    def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        outer, self.module = self.module, self.path_of_module(m)
        try:
            if not self.is_leaf_module(m, self.module):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", self.module, args, kwargs)
        finally:
            self.module = outer

    def create_proxy(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        proxy = super().create_proxy(kind, *args, **kwargs)
        ending = "" if kind == "call_module" else f".{proxy.node}"
        self.names[f"{self.module}{ending}"] = proxy.node
        return proxy


def test_features_are_taken_from_a_layer_by_its_name() -> None:
    chain = nn.Sequential(nn.Conv2d(3, K, 3), nn.ReLU(), nn.Conv2d(K, 4, 3))
    model = quantize_dynamic(chain, EVERY)
    tracer = NodePathTracer()
    graph = tracer.trace(model)
    (output,) = (node for node in graph.nodes if node.op == "output")
    output.args = (tracer.names["0"],)
    features = GraphModule(model, graph)
    features.graph.eliminate_dead_code()
    features.recompile()
    x = torch.randn(1, 3, 9, 9)
    assert torch.equal(features(x), model[0](x))


SCRIPTED = ("linear", "fused", "conv1d", "conv2d", "embedding")


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@EACH
def test_script_compiles_a_model_or_says_to_trace_it(name: str, tmp_path: Any) -> None:
    model, x = made(name)
    if name not in SCRIPTED:
        with pytest.raises(ModelError, match=r"cannot compile a Quantized.*torch\.jit\.trace"):
            torch.jit.script(model)
        return
    scripted, atol = torch.jit.script(model), 1e-5 if name == "fused" else 0.0
    assert_same(scripted(x), model(x), atol)
    scripted.save(tmp_path / "scripted.pt")
    assert_same(torch.jit.load(tmp_path / "scripted.pt")(x), model(x), atol)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_script_compiles_weights_of_16_bits() -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(K, K, bias=False)), dtype=torch.float16)
    x = torch.randn(2, K)
    model(x)
    assert torch.equal(torch.jit.script(model)(x), model(x))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@EACH
def test_jit_trace_keeps_the_bits(name: str) -> None:
    model, x = made(name)
    with torch.no_grad():
        assert_same(torch.jit.trace(model, x)(x), model(x))
