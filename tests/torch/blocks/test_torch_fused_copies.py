"""Fused parents are whom they are called on: copies, other children, classes patched later."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import load, quantize_dynamic, save
from octavo.torch.dynamic_type import has_dynamic_type, type_behind


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act = nn.Linear(16, 32), nn.GELU()

    def forward(self, hidden: Tensor) -> Tensor:
        """What it does."""
        return self.act(self.dense(hidden))


PARENTS: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "a forward": (Block, "dense", "act"),
    "nn.Sequential": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU()), "0", "1"),
    "a block": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, activation=nn.GELU(), batch_first=True),
        *("linear1", "activation"),
    ),
}
every_parent = pytest.mark.parametrize("name", PARENTS)


def made(name: str) -> tuple[Any, Tensor]:
    quantized = quantize_dynamic(PARENTS[name][0]())
    assert has_dynamic_type(quantized)
    return quantized, torch.randn(2, 5, 16)


def own(quantized: Any, x: Tensor) -> Any:
    """What the user's own class computes with the module's children."""
    plain = type_behind(type(quantized))
    if plain is nn.TransformerEncoderLayer:
        again = copy.copy(quantized)
        again.__class__ = plain
        return again(x)
    return plain.forward(quantized, x)  # type: ignore[attr-defined]


@every_parent
@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: m._replicate_for_data_parallel(),
    ],
    ids=["copy", "deepcopy", "pickle", "replica"],
)
def test_copies_have_children_of_their_own(name: str, copied: Any) -> None:
    quantized, x = made(name)
    before = quantized(x)
    again = copied(quantized)
    assert torch.equal(again(x), before)
    assert has_dynamic_type(again) and type(again) is type(quantized) is type(made(name)[0])
    _, linear, activation = PARENTS[name]
    other = quantize_dynamic(nn.Sequential(nn.Linear(16, 32)))[0]
    again._modules = dict(again._modules) | {linear: other, activation: nn.Tanh()}
    assert torch.equal(again(x), own(again, x))
    assert not torch.equal(again(x), before)
    assert torch.equal(quantized(x), before)


@every_parent
def test_children_that_are_replaced_are_called(name: str) -> None:
    quantized, x = made(name)
    _, linear, activation = PARENTS[name]
    for child, new in (
        (activation, nn.SiLU()),
        (activation, nn.ReLU6()),
        (linear, nn.Linear(16, 32)),
    ):
        setattr(quantized, child, new)
        assert torch.equal(quantized(x), own(quantized, x))
    delattr(quantized, activation)
    if name == "nn.Sequential":
        assert torch.equal(quantized(x), quantized[0](x))
        quantized.append(nn.Tanh()).append(nn.Linear(32, 3))
        assert torch.equal(quantized(x), own(quantized, x))
    else:
        with pytest.raises(AttributeError, match=f"has no attribute '{activation}'"):
            quantized(x)


def test_a_class_that_is_patched_later_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized, x = made("a forward")
    before, forward = quantized(x), Block.forward
    with monkeypatch.context() as patch:
        patch.setattr(Block, "forward", lambda self, x: forward(self, x) * 5)
        for same in (quantized, copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized))):
            assert torch.equal(same(x), Block.forward(quantized, x))
    assert torch.equal(quantized(x), before)
    quantized.forward = lambda x: x + 1
    assert torch.equal(quantized(x), x + 1)
    block, x = made("a block")
    monkeypatch.setattr(nn.TransformerEncoderLayer, "_ff_block", lambda self, x: 0 * x)
    assert torch.equal(block(x), own(block, x))


@every_parent
@pytest.mark.parametrize("patched", ["activation", "layer", "nn.Module"])
def test_a_child_whose_class_is_patched_later_is_called(
    name: str, patched: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantized, x = made(name)
    before, seen = quantized(x), []
    _, linear, activation = PARENTS[name]
    child = getattr(quantized, linear if patched == "layer" else activation)
    kind: Any = nn.Module if patched == "nn.Module" else type(child)
    method = "__call__" if patched == "nn.Module" else "forward"
    does = getattr(kind, method)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(self)
        return does(self, *args, **kwargs)

    monkeypatch.setattr(kind, method, wrapper)
    assert torch.equal(quantized(x), own(quantized, x))
    assert any(one is child for one in seen)
    monkeypatch.undo()
    seen.clear()
    assert torch.equal(quantized(x), before) and not seen


@every_parent
def test_forwards_have_names_and_signatures(name: str) -> None:
    quantized, x = made(name)
    exact = PARENTS[name][0]()
    plain: Any = type(exact)
    for word in ("__name__", "__qualname__", "__doc__"):
        assert getattr(quantized.forward, word) == getattr(plain.forward, word)
    assert quantized.forward.__self__ is quantized
    assert inspect.signature(quantized.forward) == inspect.signature(exact.forward)
    assert inspect.getsource(quantized.forward) == inspect.getsource(plain.forward)
    argument = next(iter(inspect.signature(quantized.forward).parameters))
    assert torch.equal(quantized(**{argument: x}), quantized(x))
    kind = type(quantized)
    assert (kind.__name__, kind.__module__) == (plain.__name__, plain.__module__)
    assert isinstance(quantized, plain) and repr(quantized).startswith(plain.__name__)
    for wrong in ((), (x, x, x, x, x, x)):
        with pytest.raises(TypeError, match="argument"):
            quantized(*wrong)


@every_parent
def test_a_file_is_fused_again(name: str, tmp_path: Any) -> None:
    quantized, x = made(name)
    save(quantized, tmp_path / "model.octavo")
    again = load(tmp_path / "model.octavo", PARENTS[name][0])
    assert has_dynamic_type(again) and torch.equal(again(x), quantized(x))


class Registered(Block):
    known: ClassVar[list[str]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        Registered.known.append(cls.__name__)


class Reduced(Block):
    def __reduce__(self) -> Any:
        return (Reduced, ())


class WithMeta(Block, metaclass=type("Meta", (type,), {})):  # type: ignore[misc]
    pass


def test_classes_with_ways_of_their_own() -> None:
    x = torch.randn(2, 16)
    for kind in (Registered, Reduced, WithMeta):
        quantized = quantize_dynamic(kind())
        fused = has_dynamic_type(quantized)
        assert fused == (kind is Registered)
        assert fused or torch.equal(quantized(x), quantized.act(quantized.dense(x)))
    assert Registered.known == []
    assert type(pickle.loads(pickle.dumps(quantize_dynamic(Reduced())))) is Reduced


class Optional(Block):
    def forward(self, hidden: Any = None) -> Any:
        return self.act(self.dense(hidden))


def test_an_input_that_may_be_left_out() -> None:
    quantized = quantize_dynamic(Optional())
    assert has_dynamic_type(quantized)
    with pytest.raises((AttributeError, TypeError), match="NoneType"):  # as Optional's own
        quantized()
