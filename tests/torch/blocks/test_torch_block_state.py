"""What a traced forward reads beside its weights, and what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.torch import quantize_dynamic
from octavo.torch.blocks import making
from octavo.torch.blocks.block import plans_of


class _OwnForward(TorchDispatchMode):
    """Under it no block runs as a program."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Block(nn.Module):
    by_class = 1.0

    def __init__(self, index: int) -> None:
        super().__init__()
        self.layer_idx = index
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self._hidden = 1.0
        self.held = SimpleNamespace(factor=1.0)
        self.listed = [1.0]
        self.counted = torch.tensor(1.0)

    @property
    def by_property(self) -> float:
        return self._hidden

    def factor(self) -> Any:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor() + self.down(torch.relu(self.up(x)))


class _OfClass(_Block):
    def factor(self) -> Any:
        return self.by_class


class _OfProperty(_Block):
    def factor(self) -> Any:
        return self.by_property


class _OfObject(_Block):
    def factor(self) -> Any:
        return self.held.factor


class _OfList(_Block):
    def factor(self) -> Any:
        return self.listed[0]


class _OfTensor(_Block):
    def factor(self) -> Any:
        return self.counted


class _OfPlace(_Block):
    def factor(self) -> Any:
        return 1 + 0.01 * self.layer_idx


def _model(kind: type[_Block]) -> Any:
    torch.manual_seed(0)
    layers = nn.ModuleList(kind(i) for i in range(3))
    whole = nn.Sequential()
    whole.layers = layers
    return quantize_dynamic(whole)


def _agrees(model: Any) -> bool:
    x = torch.randn(2, 5, 32)

    def run() -> Tensor:
        y = x
        for layer in model.layers:
            y = layer(y)
        return y

    with torch.no_grad():
        found = run()
        with _OwnForward():
            wanted = run()
    return bool((found - wanted).norm() <= 1e-4 * wanted.norm())


CHANGES: dict[type[_Block], Callable[[Any], None]] = {
    _OfClass: lambda layer: setattr(layer, "by_class", 3.0),
    _OfProperty: lambda layer: setattr(layer, "_hidden", 3.0),
    _OfObject: lambda layer: setattr(layer.held, "factor", 3.0),
    _OfList: lambda layer: layer.listed.__setitem__(0, 3.0),
    _OfTensor: lambda layer: layer.counted.fill_(3.0) and None,
}


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__.strip("_"))
def test_what_a_forward_reads_may_change_after_a_call(kind: type[_Block]) -> None:
    model = _model(kind)
    assert _agrees(model)
    CHANGES[kind](model.layers[1])
    assert _agrees(model)


def test_a_class_may_change_after_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(_OfClass)
    assert _agrees(model)
    monkeypatch.setattr(_OfClass, "by_class", 3.0)
    assert _agrees(model)


def test_layers_that_compute_with_their_place_share_no_trace() -> None:
    assert _agrees(_model(_OfPlace))


LOG: list[int] = []


class _Logs(_Block):
    def factor(self) -> Any:
        LOG.append(self.layer_idx)
        return 1.0


def test_what_a_forward_writes_it_writes_in_every_call() -> None:
    model = _model(_Logs)
    LOG.clear()
    with torch.no_grad():
        for _ in range(2):
            for layer in model.layers:
                layer(torch.randn(2, 5, 32))
    assert LOG == [0, 1, 2] * 2


class _Filled(_Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        q = self.up(x)
        scores = (q @ q.transpose(1, 2)).unsqueeze(1)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = torch.softmax(scores, -1)
        return self.down((weights @ q.unsqueeze(1)).squeeze(1))


def test_a_query_that_no_key_counts_for_has_the_mean_where_the_fill_is_finite() -> None:
    layer = _model(_Filled).layers[0]
    x, mask = torch.randn(2, 5, 32), torch.ones(2, 1, 1, 5)
    with torch.no_grad():
        layer(x, mask)
        mask[1] = 0
        found = layer(x, mask)
        with _OwnForward():
            wanted = layer(x, mask)
    assert (found - wanted).norm() <= 0.01 * wanted.norm()


@pytest.mark.parametrize("odd", [2**70, "\ud800"], ids=["large", "surrogate"])
def test_arguments_that_are_no_form_reach_the_forward(odd: Any) -> None:
    class Takes(_Block):
        def forward(self, x: Tensor, flag: Any = None) -> Tensor:  # type: ignore[override]
            return x + self.down(torch.relu(self.up(x)))

    layer = _model(Takes).layers[0]
    with torch.no_grad():
        assert layer(torch.randn(2, 5, 32), flag=odd).shape == (2, 5, 32)


class _Adds(_Block):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x))) + y


def _has_plans(layer: Any) -> bool:
    block = plans_of(layer, _Adds)
    return not block.reasons and any(block._plans.values())


@pytest.mark.parametrize("where", ["in this block", "in another of its kind"])
def test_a_call_that_fails_decides_nothing(where: str) -> None:
    """It would leave all calls of its form to the own forward, of all such blocks."""
    making._compiled.pop(_Adds, None)
    failing, other, _ = _model(_Adds).layers
    tried = failing if where == "in this block" else other
    x, y = torch.randn(2, 2, 5, 32)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="must match"):
            failing(x, torch.randn(2, 4, 32))
        tried(x, y)
    assert _has_plans(tried)


def test_a_call_with_one_tensor_twice_decides_nothing_for_two() -> None:
    making._compiled.pop(_Adds, None)
    layer = _model(_Adds).layers[0]
    x, y = torch.randn(2, 2, 5, 32)
    with torch.no_grad():
        both, _ = layer(x, x), layer(x, y)
        with _OwnForward():
            wanted = layer(x, x)
    assert _has_plans(layer)
    assert (both - wanted).norm() <= 1e-4 * wanted.norm()


def test_threads_that_call_at_once_leave_torch_as_it_was() -> None:
    """Its tracer says for all threads that it traces: two at once leave that said for good."""
    models = [_model(_Adds) for _ in range(4)]
    x, y = torch.randn(2, 2, 5, 32)
    making._compiled.pop(_Adds, None)
    start = threading.Barrier(len(models))

    def run(model: Any) -> None:
        with torch.no_grad():
            start.wait()
            for layer in model.layers:
                making._compiled.pop(_Adds, None)
                layer(x, y)

    threads = [threading.Thread(target=run, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torch.fx._symbolic_trace.is_fx_symbolic_tracing()
    layer = _model(_Adds).layers[0]
    with torch.no_grad():
        layer(x, y)
    assert _has_plans(layer)


def test_an_attribute_that_changes_before_each_call_ends_the_tracing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, plan = [], making.new_plan
    monkeypatch.setattr(making, "new_plan", lambda *args: made.append(1) or plan(*args))
    layer, x = _model(_OfClass).layers[0], torch.randn(2, 5, 32)
    with torch.no_grad():
        for i in range(30):
            layer.by_class = float(i)
            layer(x)
    assert 0 < len(made) < 12
