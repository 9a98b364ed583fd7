"""Activations that join the linear layer before them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic, report
from octavo.torch.fusion import activation_word
from octavo.torch.memory import LARGE, in_large_pages
from octavo.torch.modules.fused_activation import FusedActivation

ACTIVATIONS = [
    (nn.GELU(), "gelu"),
    (nn.GELU("tanh"), "gelu_tanh"),
    (nn.ReLU(), "relu"),
    (nn.SiLU(), "silu"),
    (nn.Tanh(), "tanh"),
    (nn.Sigmoid(), "sigmoid"),
]


class Block(nn.Module):
    """A forward without branches."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act, self.out = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.dense(x))
        return self.out(x)


class Branch(Block):
    """Which layer the activation follows depends on the input."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.dense(x)
        if x.shape[0] > 2:
            x = self.act(x)
        return self.out(x)


class Residual(Block):
    """The layer's output is used beside the activation."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.dense(x)
        y = self.act(x)
        return self.out(x + y)


class Twice(Block):
    """The activation serves two layers."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.dense(x))
        return self.act(self.out(x))


def fused(model: nn.Module) -> list[str]:
    return [name for name, m in model.named_modules() if isinstance(m, FusedActivation)]


def unfused(model: nn.Module, spec: Any = None) -> nn.Module:
    """`model` quantized with a hook on each activation's input, which keeps it apart."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if activation_word(module):
            module.register_forward_pre_hook(lambda module, args: None)
    return quantize_dynamic(model, spec)


@pytest.mark.parametrize(("activation", "word"), ACTIVATIONS, ids=[w for _, w in ACTIVATIONS])
def test_in_a_sequence(activation: nn.Module, word: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), activation, nn.Linear(32, 8))
    quantized, apart = quantize_dynamic(model), unfused(model)
    assert fused(quantized) == ["1"] and not fused(apart)
    assert quantized[0].activation == word and quantized[1].activation == word
    x = torch.randn(5, 16)
    with torch.inference_mode():
        # The kernels' functions and torch's differ in the last bits, which may move an integer of
        # the second layer by one step.
        torch.testing.assert_close(quantized[0](x), apart[1](apart[0](x)), rtol=2e-6, atol=2e-7)
        torch.testing.assert_close(quantized(x), apart(x), rtol=0, atol=2e-3)
        assert torch.equal(quantized[1](x), x)


def test_in_a_forward_without_branches() -> None:
    torch.manual_seed(0)
    model = Block()
    quantized, x = quantize_dynamic(model), torch.randn(5, 16)
    assert fused(quantized) == ["act"]
    assert "applied by the layer itself: dense" in "\n".join(report(quantized).notes)
    with torch.inference_mode():
        torch.testing.assert_close(quantized(x), unfused(model)(x), rtol=0, atol=2e-3)


@pytest.mark.parametrize("kind", [Branch, Residual, Twice])
def test_what_cannot_be_read_for_certain_stays(kind: type[Block]) -> None:
    torch.manual_seed(0)
    model = kind()
    quantized, x = quantize_dynamic(model), torch.randn(5, 16)
    assert not fused(quantized)
    with torch.inference_mode():
        exact = model(x)
        assert (quantized(x) - exact).abs().max() < 0.05 * exact.abs().max()


@pytest.mark.parametrize("where", ["dense", "act"])
def test_hooks_keep_layer_and_activation_apart(where: str) -> None:
    model, seen = Block(), []
    model.get_submodule(where).register_forward_hook(lambda m, args, out: seen.append(out))
    quantized = quantize_dynamic(model)
    assert not fused(quantized)
    quantized(torch.randn(2, 16))
    assert len(seen) == 1


def test_a_layer_that_stands_twice_stays_as_it_is() -> None:
    layer = nn.Linear(16, 16)
    assert not fused(quantize_dynamic(nn.Sequential(layer, nn.ReLU(), layer)))


def test_float_layers_keep_their_activations() -> None:
    quantized = quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), {"2"})
    assert type(quantized[1]) is nn.ReLU


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_in_transformer_layers(activation: str) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, activation=activation).eval()
    quantized, x = quantize_dynamic(model), torch.randn(4, 3, 16)
    assert fused(quantized) == ["activation"] and quantized.linear1.activation == activation
    with torch.inference_mode():
        exact = model(x)
        assert (quantized(x) - exact).abs().max() < 0.05 * exact.abs().max()


def test_survives_copies_and_compilation() -> None:
    quantized, x = quantize_dynamic(Block()), torch.randn(5, 16)
    with torch.inference_mode():
        exact = quantized(x)
        for other in (copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized))):
            assert torch.equal(other(x), exact)
        compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), exact)


def test_large_outputs_hold_what_small_ones_do() -> None:
    """Outputs of 4 MiB and more lie in large pages; their values are the same."""
    torch.manual_seed(0)
    quantized = quantize_dynamic(nn.Linear(8, 2048))
    rows = LARGE // (4 * 2048) + 3
    x = torch.randn(rows, 8)
    with torch.inference_mode():
        whole = quantized(x)
        assert torch.equal(whole[:5], quantized(x[:5])) and torch.equal(
            whole[-5:], quantized(x[-5:])
        )


def test_asking_for_large_pages_changes_no_content() -> None:
    memory = torch.arange(3 << 19, dtype=torch.int64)
    in_large_pages(memory.data_ptr(), memory.nbytes)
    assert torch.equal(memory, torch.arange(3 << 19, dtype=torch.int64))
    in_large_pages(memory.data_ptr(), 100)  # no whole large page: nothing to ask for
