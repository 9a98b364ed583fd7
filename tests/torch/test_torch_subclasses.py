"""Subclasses of torch's layers: with more than those they stay float, or keep it where named."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from octavo.recipe import Rule, Scheme, preset
from octavo.torch import TorchTarget, default_mapping, inspect, load, quantize_dynamic, report, save
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear


def having(name: str, base: type = nn.Linear, **own: Any) -> Any:
    return type(name, (base,), {"__module__": __name__, **own})


def holding(name: str, hold: Any) -> Any:
    def init(self: Any, *sizes: int) -> None:
        nn.Linear.__init__(self, *sizes)
        hold(self)

    return having(name, __init__=init)


WithProperty = having("WithProperty", gain=property(lambda self: 2.0))
WithMethod = having("WithMethod", twice=lambda self, x: 2 * self(x))
WithClassAttribute = having("WithClassAttribute", kind="special")
WithLoading = having("WithLoading", train=lambda self, mode=True: nn.Linear.train(self, mode))
Below = having("Below", WithProperty)  # nothing of its own, but its parent has
WithTable = having("WithTable", nn.Embedding, rows=lambda self: self.num_embeddings)
WithSteps = having("WithSteps", nn.LSTM, helper=lambda self: 5)
WithFilters = having("WithFilters", nn.Conv1d, gain=property(lambda self: 3.0))
Clash = having("Clash", scale=property(lambda self: 2.0))
Alias = having("Alias")


WithParameter = holding("WithParameter", lambda m: setattr(m, "extra", nn.Parameter(torch.ones(3))))
WithBuffer = holding(
    "WithBuffer", lambda m: m.register_buffer("steps", torch.ones(2), persistent=False)
)
WithChild = holding("WithChild", lambda m: setattr(m, "norm", nn.LayerNorm(16)))
HAVING = [WithProperty, WithMethod, WithClassAttribute, WithParameter, WithBuffer, WithChild]
HAVING += [WithLoading, Below]


class WithPlainAttributes(nn.Linear):
    """Further arguments, which it remembers."""

    def __init__(self, *sizes: int, init: str = "relu") -> None:
        super().__init__(*sizes)
        self.init = init

    def extra_repr(self) -> str:
        return f"as {self.init}"


def model(kind: type) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(kind(16, 16), nn.Linear(16, 16))


@pytest.mark.parametrize("kind", HAVING)
def test_it_stays_float_by_default_and_says_why(kind: Any) -> None:
    for how in ({}, {"recipe": "int8"}, {"qconfig_spec": {nn.Linear}}):
        quantized = quantize_dynamic(model(kind), **how)  # type: ignore[arg-type]
        assert type(quantized[0]) is kind and isinstance(quantized[1], QuantizedLinear)
        (left,) = report(quantized).left_float
        assert left.reason.startswith(f"{kind.__name__} has `")
    assert [d.scheme.is_float for d in inspect(model(kind)).decisions] == [True, False]


NAMED: dict[str, Any] = {
    "name": lambda kind: {"qconfig_spec": {"0"}},
    "type": lambda kind: {"qconfig_spec": {kind}},
    "mapping": lambda kind: {"mapping": default_mapping() | {kind: QuantizedLinear}},
    "rule": lambda kind: {"recipe": preset("int8").with_rules_first(Rule(Scheme(), name="0"))},
}


@pytest.mark.parametrize(
    ("kind", "how"), [(kind, [*NAMED][i % len(NAMED)]) for i, kind in enumerate(HAVING)]
)
def test_named_it_is_quantized_and_keeps_what_it_has(kind: Any, how: str) -> None:
    given = model(kind)
    given[0].note = {"any": "thing"}
    quantized = quantize_dynamic(given, **NAMED[how](kind))
    layer, x = quantized[0], torch.randn(5, 16)
    assert isinstance(layer, QuantizedModule) and isinstance(layer, kind)
    assert layer.note == {"any": "thing"}
    exact = given[0](x)
    with torch.no_grad():
        assert (layer(x) - exact).abs().max() < 0.03 * exact.abs().max()
    assert getattr(layer, "gain", 2.0) == 2.0
    assert getattr(layer, "kind", "special") == "special"
    if kind is WithMethod:
        assert torch.equal(layer.twice(x), 2 * layer(x))
    assert {n for n, _ in layer.named_parameters()} == {
        n for n, _ in given[0].named_parameters() if n not in ("weight", "bias")
    }
    kept = {n for n, _ in layer.named_buffers()} - {"packed", "scale", "bias"}
    assert kept == {n for n, _ in given[0].named_buffers()}
    assert "steps" not in layer.state_dict()
    assert not report(quantized).left_float or how in ("name", "type")


@pytest.mark.parametrize("kind", HAVING)
def test_copies_and_files_keep_it_too(kind: Any, tmp_path: Path) -> None:
    quantized, x = quantize_dynamic(model(kind), {"0", "1"}), torch.randn(5, 16)
    save(quantized, tmp_path / "model.octavo")
    loaded = load(tmp_path / "model.octavo", lambda: model(kind))
    again = (copy.deepcopy(quantized), copy.copy(quantized), pickle.loads(pickle.dumps(quantized)))
    for other in (*again, loaded, quantized.to(torch.float64).to(torch.float32)):
        assert type(other[0]) is type(quantized[0])
        assert torch.equal(other(x), quantized(x))
        assert set(other.state_dict()) == set(quantized.state_dict())
    compiled = torch.compile(quantized, backend="eager")
    assert torch.equal(compiled(x), quantized(x))


@pytest.mark.parametrize("kind", [Alias, WithPlainAttributes])
def test_nothing_but_attributes_is_quantized_and_kept(kind: Any, tmp_path: Path) -> None:
    quantized = quantize_dynamic(model(kind))
    assert type(quantized[0]) is QuantizedLinear
    assert getattr(quantized[0], "init", "relu") == "relu"
    save(quantized, tmp_path / "model.octavo")
    loaded = load(tmp_path / "model.octavo", lambda: model(kind))
    assert vars(loaded[0]).keys() >= {"init"} & vars(quantized[0]).keys()


def test_attributes_of_plain_layers_are_kept() -> None:
    given = model(nn.Linear)
    given[0].multiplier = 0.5
    given[0].adapter = nn.Linear(16, 2)  # a child that forward knows nothing of
    quantized = quantize_dynamic(given)
    assert quantized[0].multiplier == 0.5
    assert isinstance(quantized[0].adapter, QuantizedLinear)


def test_a_name_that_the_quantized_layer_needs_keeps_it_float() -> None:
    given = model(nn.Linear)
    given[1].packed = "mine"
    for some in (model(Clash), given):
        quantized = quantize_dynamic(some, {"0", "1"})
        (left,) = report(quantized).left_float
        assert "needs that name" in left.reason
    assert quantize_dynamic(model(Clash))[0].scale == 2.0


def test_other_layers_than_linear() -> None:
    torch.manual_seed(0)
    for layer, dtype, x in (
        (WithTable(300, 64), torch.quint8, torch.arange(5)),
        (WithSteps(16, 16), torch.qint8, torch.randn(3, 2, 16)),
        (WithFilters(16, 16, 3), torch.qint8, torch.randn(2, 16, 9)),
    ):
        kind: Any = type(layer)
        given = nn.Sequential(layer, nn.Identity())
        quantized = quantize_dynamic(given, {kind}, dtype=dtype)
        assert isinstance(quantized[0], QuantizedModule) and isinstance(quantized[0], kind)
        for again in (copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized)).double()):
            made, exact = (
                y[0] if isinstance(y, tuple) else y for y in (again[0](x), quantized[0](x))
            )
            assert torch.equal(made, exact)
        added = {WithTable: "rows", WithSteps: "helper", WithFilters: "gain"}[kind]
        assert hasattr(quantized[0], added)


def test_tuning_tells_a_layer_that_a_rule_names_from_one_that_it_does_not() -> None:
    target, recipe = TorchTarget(model(WithProperty)), preset("int8")
    named = recipe.with_rules_first(Rule(recipe.default, name="0"))
    for given, left_float in ((named, False), (recipe, True), (named, False)):
        assert target.decisions(given)[0].scheme.is_float == left_float
