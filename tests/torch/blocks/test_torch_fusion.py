"""Activations that join the linear layer before them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic, report
from octavo.torch.blocks.activations import activation_name
from octavo.torch.dynamic_type import has_dynamic_type
from octavo.torch.memory import in_large_pages

pytestmark = pytest.mark.usefixtures("one_registry")

ACTIVATIONS = {
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU("tanh"),
    "relu": nn.ReLU(),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
}


def sequence(activation: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), activation or nn.GELU(), nn.Linear(32, 8))


class Block(nn.Module):
    """A forward without branches."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act, self.out = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.dense(x))
        return self.out(x)


class Quick(nn.GELU):
    """A GELU by name only."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


def fused(model: nn.Module) -> list[str]:
    """Names of the parents that call layer and activation as one."""
    return [name for name, module in model.named_modules() if has_dynamic_type(module)]


def apart(model: nn.Module) -> nn.Module:
    """The quantized model with hooks, which keep layers and activations apart."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if activation_name(module):
            module.register_forward_pre_hook(lambda module, args: None)
    return model


def near(found: Tensor, exact: Tensor) -> None:
    assert (found - exact).abs().max() < 0.05 * exact.abs().max()


@pytest.mark.parametrize("word", ACTIVATIONS)
def test_in_a_sequence(word: str) -> None:
    quantized, x = quantize_dynamic(sequence(ACTIVATIONS[word])), torch.randn(5, 16)
    assert fused(quantized) == [""]
    # The kernels' functions and torch's differ in the last bits, which may move an integer of the
    # second layer by one step.
    hidden = quantized[0].activated(x, word)
    torch.testing.assert_close(hidden, quantized[1](quantized[0](x)), rtol=2e-6, atol=2e-7)
    torch.testing.assert_close(quantized(x), apart(quantized)(x), rtol=0, atol=2e-3)
    assert torch.equal(quantized(x), quantized[2](hidden))


def test_in_a_forward_without_branches() -> None:
    quantized, x = quantize_dynamic(Block()), torch.randn(5, 16)
    assert fused(quantized) == [""]
    assert "computed in the layer's pass: dense" in "\n".join(report(quantized).notes)
    assert torch.equal(quantized(x), quantized.out(quantized.dense.activated(x, "gelu")))


@pytest.mark.parametrize("name", ["last", "names", "straight", "record", "call", "forward_"])
def test_children_may_have_any_name(name: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(name, nn.Linear(16, 32))
            self.act, self.out = nn.GELU(), nn.Linear(32, 8)

    read = f"def forward(self, x):\n    return self.out(self.act(self.{name}(x)))\n"
    found: dict[str, Any] = {}
    exec(read, found)
    Named.forward = found["forward"]  # type: ignore[assignment]
    model, x = Named().eval(), torch.randn(5, 16)
    quantized = quantize_dynamic(copy.deepcopy(model))
    assert fused(quantized) == [""]
    near(quantized(x), model(x))


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


class Helper(Block):
    """What forward does with the activation is not in forward."""

    use = True

    def after(self, x: Tensor) -> Tensor:
        return self.act(x) if self.use else x

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.after(self.dense(x)))


def patched() -> nn.Module:
    model = sequence(nn.ReLU())
    model[1].forward = lambda x: x + 100
    return model


LEFT_ALONE = {
    "branch": Branch,
    "residual": Residual,
    "helper": Helper,
    "lookalike": lambda: sequence(Quick()),
    "patched": patched,
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_cannot_be_read_for_certain_stays(name: str) -> None:
    model, x = LEFT_ALONE[name](), torch.randn(5, 16)
    quantized = quantize_dynamic(model)
    assert not fused(quantized)
    near(quantized(x), model(x))


def test_float_layers_keep_their_activations() -> None:
    assert not fused(quantize_dynamic(sequence(), {"2"}))


@pytest.mark.parametrize(("make", "name"), [(Block, "x"), (sequence, "input")])
def test_an_input_may_be_given_by_its_name(make: Any, name: str) -> None:
    model, x = quantize_dynamic(make()), torch.randn(3, 16)
    assert torch.equal(model(**{name: x}), model(x))
    with pytest.raises(TypeError, match=r"forward\(\) got an unexpected keyword argument 'z'"):
        model(z=x)
    with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{name}'"):
        model()


def test_no_layer_changes_its_meaning() -> None:
    model = nn.Sequential(*sequence(), nn.Sigmoid())
    quantized, x = quantize_dynamic(model), torch.randn(5, 16)
    assert fused(quantized) == [""]
    for cut in (1, 2, 3, 4):
        near(quantized[:cut](x), model[:cut](x))
    found = exact = x
    for mine, its in zip(quantized, model, strict=True):
        found, exact = mine(found), its(exact)
        near(found, exact)


@pytest.mark.parametrize("where", ["dense", "act"])
def test_hooks_before_and_after_see_what_they_did(where: str) -> None:
    model, x, seen = Block(), torch.randn(3, 16), []
    quantized = quantize_dynamic(model)
    for of in (model, quantized):
        of.get_submodule(where).register_forward_hook(lambda m, a, out: seen.append(out))
        of(x)
    exact, found = seen
    near(found, exact)
    quantize_dynamic(model)(x)  # the model's own hook came along
    assert len(seen) == 3


def test_a_layer_that_stands_twice() -> None:
    layer = nn.Linear(16, 16)
    model, x = nn.Sequential(layer, nn.ReLU(), layer), torch.randn(5, 16)
    near(quantize_dynamic(model)(x), model(x))


@pytest.mark.parametrize(
    ("kind", "activation"),
    [(nn.TransformerEncoderLayer, "relu"), (nn.TransformerDecoderLayer, "gelu")],
)
def test_in_transformer_layers(kind: type[nn.Module], activation: str) -> None:
    model = kind(16, 2, 32, activation=activation).eval()
    quantized, x = quantize_dynamic(model), torch.randn(4, 3, 16)
    assert fused(quantized) == [""]
    inputs = (x,) if kind is nn.TransformerEncoderLayer else (x, x)
    near(quantized(*inputs), model(*inputs))
    quantized.activation = model.activation = torch.tanh
    near(quantized(*inputs), model(*inputs))


MODELS = {
    "forward": Block,
    "sequence": lambda: nn.Sequential(Block(), nn.ReLU()),
    "transformer": lambda: nn.TransformerEncoderLayer(16, 2, 32),
}


@pytest.mark.parametrize("name", MODELS)
def test_survives_compilation(name: str) -> None:
    torch._dynamo.reset()  # it counts what a process compiled of one function
    quantized, x = quantize_dynamic(MODELS[name]().eval()), torch.randn(5, 3, 16)
    exact = quantized(x)
    compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), exact, rtol=0, atol=2e-3)
    exported = torch.export.export(quantized, (x,)).module()
    torch.testing.assert_close(exported(x), exact, rtol=0, atol=2e-3)


def test_asking_for_large_pages_changes_no_content() -> None:
    memory = torch.arange(3 << 19, dtype=torch.int64)
    in_large_pages(memory.data_ptr(), memory.nbytes)
    assert torch.equal(memory, torch.arange(3 << 19, dtype=torch.int64))
    in_large_pages(memory.data_ptr(), 100)  # no whole large page: nothing to ask for
