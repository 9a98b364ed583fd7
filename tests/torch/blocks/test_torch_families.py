"""Families of transformers by name: a quantized model is near float, and is itself in every call.

What runs as one call into the kernels computes what the layers' own forward computes, whatever
mask, padding, cache, length, batch or number of threads it is called with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.zoo import family_models
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Size
from octavo.torch import quantize_dynamic
from tests.models import relative
from tests.torch.blocks.one_call import OwnForwards, ran

transformers = pytest.importorskip("transformers")

NAMES = sorted(FAMILIES)
CACHED = [name for name in NAMES if FAMILIES[name].cached]
PADDED = [name for name in NAMES if family_models.can_pad(FAMILIES[name])]
SHOWN = ("BLOOM", "DeBERTa-v2", "GPT-NeoX", "ModernBERT", "Swin", "nn.TransformerDecoder")
"""Families whose blocks no other test of blocks has; all others are slow tests."""
MOST_ERROR = 0.05
"""Norm of the difference from float as a share of float's: of two layers in 8 bits. A wrong mask is
off by 0.4."""
ROUNDING = 0.01
"""The same of two ways to compute one model: they round to 8 bits what float32 rounded in its last
place, and a step of one activation shows in all that read it. What is wrong is off by a tenth."""
CALLS = ((1, 1), (3, 9), (1, 13), (1, 1), (3, 9))
"""Batch and length of calls in a row."""


def of_families(names: list[str], *more: Callable[[str], Sequence[Any]]) -> list[Any]:
    """Cases by family, which one worker runs: it makes and traces each model once."""
    return [
        pytest.param(name, *rest, marks=marks_of(name))
        for name in names
        for rest in itertools.product(*(of(name) for of in more))
    ]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    group = pytest.mark.xdist_group(name)
    return [group] if name in SHOWN else [group, pytest.mark.slow]


def padded_or_not(name: str) -> Sequence[bool]:
    """With a mask too where the family takes one."""
    return (True, False)[name not in PADDED :]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spelling(name: str) -> str:
    """The implementation of attention that transformers takes by default."""
    return FAMILIES[name].spellings[-1]


@cache
def exact(name: str, attention: str) -> Any:
    return family_models.model(FAMILIES[name], Size.SMALL, attention)


@cache
def of_spelling(name: str, attention: str) -> Any:
    return quantize_dynamic(exact(name, attention), recipe="int8")


def quantized(name: str) -> Any:
    return of_spelling(name, spelling(name))


def feed(name: str, batch: int = 3, length: int = 9, **options: Any) -> dict[str, Tensor]:
    return family_models.feed(FAMILIES[name], Size.SMALL, batch, length, **options)


def call(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
    return family_models.output(model(**given))


def by_its_own_forward(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
    with OwnForwards():
        return call(model, given)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", of_families(PADDED))
def test_padding_is_left_out(name: str) -> None:
    given, model = feed(name, padded=True), quantized(name)
    found, own, wanted = (
        family_models.counting(given, y)
        for y in (
            call(model, given),
            by_its_own_forward(model, given),
            call(exact(name, spelling(name)), given),
        )
    )
    assert relative(found, own) < ROUNDING
    assert relative(found, wanted) < MOST_ERROR


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *of_families(NAMES, lambda name: FAMILIES[name].spellings[-1:]),
        *(
            pytest.param(name, other, marks=pytest.mark.slow)
            for name in NAMES
            for other in FAMILIES[name].spellings[:-1]
        ),
    ],
)
def test_it_computes_what_its_own_forward_does(name: str, attention: str) -> None:
    """Nothing is left of one call in the next, of another size; nor do threads matter."""
    model = of_spelling(name, attention)
    first: dict[tuple[int, int], Tensor] = {}
    for batch, length in CALLS:
        given = feed(name, batch, length, seed=1)
        found = call(model, given)
        assert relative(found, by_its_own_forward(model, given)) < ROUNDING
        assert torch.equal(found, first.setdefault((batch, length), found))
    assert ran(model) >= 2
    torch.set_num_threads(2)
    assert relative(call(model, given), found) < ROUNDING  # PyTorch's float layers may differ
    given = feed(name)
    assert 0 < relative(call(model, given), call(exact(name, attention), given)) < MOST_ERROR


@pytest.mark.parametrize(("name", "padded"), of_families(CACHED, padded_or_not))
def test_a_token_after_a_cache(name: str, padded: bool) -> None:
    given, model = feed(name, length=12, padded=padded), quantized(name)
    step = family_models.Step(FAMILIES[name], model, given)
    found = step()
    assert torch.equal(step(), found)
    whole = call(exact(name, spelling(name)), given)[:, -1:]
    assert relative(found, whole) < MOST_ERROR
    with OwnForwards():
        own = family_models.Step(FAMILIES[name], model, given)()
    assert relative(found, own) < 2 * ROUNDING  # keys and values of the cache differ too
