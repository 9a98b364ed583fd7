"""Layers quantized alone, without a conversion each: the bits are those of a conversion."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from octavo.core.metrics import relative_error
from octavo.errors import InputDataError, RecipeError
from octavo.recipe import FLOAT, PRESETS, Recipe, Rule
from octavo.torch import TorchTarget
from octavo.torch.tuning.sensitivity import Variants
from tests.models import Attends, Feedforward, Speech, net
from tests.torch.tuning_models import Wrapped, normalized, tied

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning"),
]

INT8, ACCURATE = PRESETS["int8"], PRESETS["int8-accurate"]
FLOAT16 = PRESETS["float16"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Layers are small: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _x(*shape: int) -> dict[str, Any]:
    return {"0": np.random.default_rng(0).standard_normal(shape, np.float32)}


def _hooked() -> nn.Module:
    model = Feedforward()
    model.first.register_forward_hook(lambda module, args, out: out * 2)
    return nn.Sequential(model, nn.ReLU())


MODELS: dict[str, tuple[Any, dict[str, Any], Recipe]] = {
    "rnn-stack": (Speech, _x(2, 6, 12), INT8),
    "rnn-stack-float16": (Speech, _x(2, 6, 12), FLOAT16),
    "root-stack": (lambda: nn.GRU(6, 8, num_layers=2), _x(5, 2, 6), INT8),
    "root-linear": (lambda: nn.Linear(16, 8), _x(4, 16), ACCURATE),
    "root-attention": (lambda: nn.MultiheadAttention(8, 2), {}, INT8),
    "tied": (tied, {"ids": np.arange(12).reshape(2, 6)}, INT8),
    "encoder": (Attends, _x(2, 5, 16), INT8),
    "encoder-accurate": (lambda: Attends(fast=False, layers=1), _x(2, 5, 16), ACCURATE),
    "encoder-padded": (
        Attends,
        {**_x(2, 5, 16), "mask": np.arange(5) > np.array([[4], [2]])},
        INT8,
    ),
    "fused": (Feedforward, _x(3, 20), INT8),
    "dataclass": (Wrapped, _x(3, 20), INT8),
    "hooked": (_hooked, _x(3, 20), INT8),
    "normalized": (normalized, _x(3, 10), INT8),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)),
        _x(2, 3, 8, 8),
        Recipe("all", INT8.default),
    ),
}


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, dict[str, Any], Recipe]:
    torch.manual_seed(7)
    make, feed, recipe = MODELS[request.param]
    if request.param == "root-attention":
        feed = {name: _x(5, 2, 8)["0"] for name in ("query", "key", "value")}
    return make(), feed, recipe


def narrowed(recipe: Recipe, names: Sequence[str], some: Sequence[str]) -> Recipe:
    return recipe.with_rules_first(*(Rule(FLOAT, name=n) for n in names if n not in some))


def sets_of(names: Sequence[str]) -> list[list[str]]:
    """Each alone, halves, every second, all and none."""
    middle = len(names) // 2
    several = [names[:middle], names[::2], names, []]
    return [[name] for name in names] + [list(some) for some in several]


def assert_as_converted(a: np.ndarray, b: np.ndarray) -> None:
    """Equal, but for the rounding of a block that a converted model runs as one call."""
    if b.dtype.kind != "f":
        np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_each_form_gives_what_a_conversion_gives(case: Any) -> None:
    model, feed, recipe = case
    target = TorchTarget(model)
    caller = target._model.caller
    names = [d.layer.name for d in target.decisions(recipe)]
    sets = sets_of(names)
    variants = Variants(model, target._model.layers, recipe)
    floats = target.float_model().run(feed)
    errors = []
    for some in sets:
        built = target.build(narrowed(recipe, names, some))
        expected = built.run(feed)
        if not variants.need_conversion(some):
            for _ in range(2):  # the second time with layers that were made before
                with variants.quantized(some) as form:
                    found = caller.run(form, feed)
                for a, b in zip(found, expected, strict=True):
                    assert_as_converted(a, b)
        pairs = [p for p in zip(floats, expected, strict=True) if p[0].dtype.kind == "f"]
        errors.append(max(relative_error(a, b) for a, b in pairs))
        assert (errors[-1] > 0) == (built is not target.float_model())
    assert any(errors)
    assert list(target.errors(recipe, sets, [feed])) == pytest.approx(errors, rel=1e-3)


def test_the_model_is_the_same_before_and_after(case: Any) -> None:
    model, feed, recipe = case
    model.train()
    modules = list(model.named_modules())
    state = {n: (t, t._version, t.detach().clone()) for n, t in model.state_dict().items()}
    own = {n: dict(m.__dict__) for n, m in modules}
    inner = {n: {k: copy.copy(v) for k, v in d.items() if type(v) is dict} for n, d in own.items()}
    target = TorchTarget(model)
    names = [d.layer.name for d in target.decisions(recipe)]
    target.errors(recipe, sets_of(names), [feed])
    assert [(n, id(m)) for n, m in model.named_modules()] == [(n, id(m)) for n, m in modules]
    for name, module in modules:
        assert module.__dict__.keys() == own[name].keys()
        assert all(module.__dict__[key] is value for key, value in own[name].items())
        for key, before in inner[name].items():
            assert {k: id(v) for k, v in module.__dict__[key].items()} == {
                k: id(v) for k, v in before.items()
            }
    for tensor, version, values in state.values():
        assert tensor._version == version
        assert torch.equal(tensor, values)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_ends_a_run_leaves_the_next_one_alone(error: type[BaseException]) -> None:
    model = Attends()
    target = TorchTarget(model)
    variants = Variants(model, target._model.layers, INT8)
    with variants.quantized([]) as form:
        expected = target._model.caller.run(form, _x(2, 5, 16))
    with pytest.raises(error), variants.quantized(["look", "encoder.layers.0.linear1"]) as form:
        changed = target._model.caller.run(form, _x(2, 5, 16))
        raise error
    assert not np.array_equal(changed[0], expected[0])
    with variants.quantized([]) as form:
        for a, b in zip(target._model.caller.run(form, _x(2, 5, 16)), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_worst_output_of_the_worst_input_counts() -> None:
    two = net(
        lambda m, x: {"a": m.a(x), "b": m.b(x), "n": torch.tensor([3])},
        a=nn.Linear(16, 4),
        b=nn.Linear(16, 4),
    )
    target = TorchTarget(two)
    feeds = [_x(1, 16), {"x": np.linspace(0, 9, 16, dtype=np.float32)[None] ** 3}]
    single = [target.errors(INT8, [["a"], ["b"]], [feed]) for feed in feeds]
    both = target.errors(INT8, [["a"], ["b"], ["a", "b"]], feeds)
    worst = [max(column) for column in zip(*single, strict=True)]
    assert list(both) == [*worst, max(worst)]
    assert single[0] != single[1]


def test_what_fails_or_is_not_finite_is_infinitely_wrong() -> None:
    def picky(m: Any, x: torch.Tensor) -> Any:
        masked = m.good(x).masked_fill(torch.arange(8) > 5, -math.inf)
        y = m.strict(x) if type(m.strict) is nn.Linear else m.strict(x) / 0
        return masked, y, m.nan(x)

    model: Any = net(picky, **{name: nn.Linear(8, 8) for name in ("good", "nan", "strict")})
    model.nan.weight.data[0, 0] = math.nan
    target = TorchTarget(model)
    x = np.ones((2, 8), np.float32)
    sets = [["good"], ["nan"], ["strict"], ["good", "strict"], []]
    found = target.errors(INT8, sets, [{"x": x}])
    assert 0 < found[0] < 1e-3
    assert list(found[1:]) == [math.inf, math.inf, math.inf, 0]


def test_what_is_wrong_with_the_question() -> None:
    target = TorchTarget(Feedforward())
    with pytest.raises(RecipeError, match="Did you mean 'first'"):
        target.errors(INT8, [["first"], ["frist"]], [_x(1, 20)])
    with pytest.raises(InputDataError, match="there are no inputs"):
        target.errors(INT8, [["first"]], [])
    with pytest.raises(InputDataError, match="fails on an input: mat1 and mat2"):
        target.errors(INT8, [["first"]], [_x(1, 21)])


def test_it_finds_the_layer_that_int8_ruins() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 32, bias=False) for _ in range(96)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
    layers[40].weight.data[5] *= 1000  # one channel, made good in the next layer
    layers[41].weight.data[:, 5] /= 1000
    target = TorchTarget(nn.Sequential(*layers))
    found = target.errors(INT8, [[str(i)] for i in range(96)], [_x(4, 32)])
    assert int(np.argmax(found)) == 41
    assert found[41] > 100 * sorted(found)[-2]
