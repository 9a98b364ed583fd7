"""Weights that are computed: normalized, parametrized and pruned ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

from octavo.torch import quantize_dynamic, report
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import Doubled, outcomes, quiet, relative
from tests.torch.test_torch_whole_models import old_weight_norm

IN, OUT = 24, 16


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def pruned(module: nn.Module) -> nn.Module:
    prune.l1_unstructured(module, "weight", 0.4)
    prune.random_unstructured(module, "weight", 0.2)
    prune.l1_unstructured(module, "bias", 0.4)
    module.weight_orig.data *= 3
    return module


def parametrized(module: nn.Module) -> nn.Module:
    parametrize.register_parametrization(module, "weight", Doubled())
    parametrize.register_parametrization(module, "bias", Doubled())
    return module


NORMALIZED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight_norm hook": old_weight_norm,
    "spectral_norm hook": spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "parametrized": parametrized,
    "pruned": pruned,
}
every_normalization = pytest.mark.parametrize("normalize", NORMALIZED.values(), ids=NORMALIZED)


@every_normalization
@pytest.mark.parametrize(("training", "inplace"), [(True, False), (False, True)])
def test_a_computed_weight_is_quantized_as_eval_mode_computes_it(
    normalize: Callable[[nn.Module], nn.Module], training: bool, inplace: bool
) -> None:
    model = nn.Sequential(normalize(nn.Linear(IN, OUT)), nn.ReLU(), nn.Linear(OUT, OUT))
    x = torch.randn(5, IN)
    model.train()
    for _ in range(4):
        model(x)  # spectral norms settle; hooks leave weights with a history behind
    model.train(training)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    wanted = copy_of(model).eval()(x)
    quantized = quantize_dynamic(model, inplace=inplace)
    assert isinstance(quantized[0], QuantizedLinear) and not quantized.training
    assert 0 < relative(quantized(x), wanted) < 0.02
    assert outcomes(quantized)["0"].layer.shares_with == ()
    if not inplace:
        after = model.state_dict()
        assert after.keys() == before.keys() and model.training == training
        assert all(torch.equal(after[k], v) for k, v in before.items())
    again = copy.deepcopy(quantized)
    assert torch.equal(again(x), quantized(x))


def copy_of(model: nn.Module) -> nn.Module:
    """copy.deepcopy, also of weights that a hook has left with a history."""
    memo = {
        id(v): v.detach()
        for module in model.modules()
        for v in module.__dict__.values()
        if isinstance(v, Tensor)
    }
    return copy.deepcopy(model, memo)


@every_normalization
def test_a_normalized_layer_that_stays_float_is_copied(
    normalize: Callable[[nn.Module], nn.Module],
) -> None:
    model = nn.Sequential(normalize(nn.Linear(IN, OUT)), nn.Linear(OUT, OUT))
    x = torch.randn(5, IN)
    model(x)
    model.eval()
    wanted = model(x)
    quantized = quantize_dynamic(model, {"1"})
    assert torch.equal(quantized[0](x), model[0](x))
    assert relative(quantized(x), wanted) < 0.02
    for a, b in zip(model[0].parameters(), quantized[0].parameters(), strict=True):
        assert a is not b and torch.equal(a, b)


def test_weight_norm_on_one_of_two_layers_says_what_was_done() -> None:
    quantized = quantize_dynamic(nn.Sequential(old_weight_norm(nn.Linear(IN, OUT))))
    assert any("WeightNorm was applied once" in note for note in report(quantized).notes)
    assert outcomes(quantized)["0"].bytes_before == IN * OUT * 4


def test_equal_parametrizations_over_one_weight_each_count() -> None:
    model = nn.Sequential(*(parametrized(nn.Linear(IN, IN)) for _ in range(4)))
    model[2].parametrizations.weight.original = model[0].parametrizations.weight.original
    x = torch.randn(5, IN)
    quantized = quantize_dynamic(model)
    assert relative(quantized(x), model(x)) < 0.03


def test_parametrized_and_pruned_attention() -> None:
    x = torch.randn(3, 5, IN)
    changes: list[Callable[..., Any]] = [
        quiet(weight_norm),
        parametrizations.weight_norm,
        lambda model, name: prune.random_unstructured(model, name, 0.3),
    ]
    for change in changes:
        model = nn.MultiheadAttention(IN, 2, batch_first=True).eval()
        change(model, "in_proj_weight")
        wanted = model(x, x, x)[0]
        assert 0 < relative(quantize_dynamic(model)(x, x, x)[0], wanted) < 0.03
