"""Families of transformers by name: a quantized model is near float, and is itself in every call.

What runs as one call into the kernels computes what the layers' own forward computes, whatever
mask, padding, cache, length, batch or number of threads it is called with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.zoo import family_models
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family, Size
from octavo.torch import quantize_dynamic
from octavo.torch.blocks import compiled

transformers = pytest.importorskip("transformers")

NAMES = sorted(FAMILIES)
CACHED = [name for name in NAMES if FAMILIES[name].cached]
PADDED = [name for name in NAMES if family_models.can_pad(FAMILIES[name])]
GENERATING = [name for name in NAMES if FAMILIES[name].head]
ALIKE = (
    "BART encoder",
    "CLIP text",
    "Cohere",
    "DeiT",
    "DistilBERT",
    "ELECTRA",
    "Gemma 2",
    "Marian",
    "OPT",
    "Phi-3",
    "Qwen2",
    "RoBERTa",
)
MOST_ERROR = 0.05
"""Norm of the difference from float as a share of float's: of two layers in 8 bits. A wrong mask is
off by 0.4."""
ROUNDING = 0.01
"""The same of two ways to compute one model: they round to 8 bits what float32 rounded in its last
place, and a step of one activation shows in all that read it. What is wrong is off by a tenth."""
NEW = 5
"""Tokens that are generated."""
CALLS = ((1, 1), (3, 9), (1, 13), (2, 5), (3, 9), (1, 1))
"""Batch and length of calls in a row."""


def of_families(names: list[str], *more: Callable[[str], Sequence[Any]]) -> list[Any]:
    """Cases by family, which one worker runs: it makes and traces each model once. Slow are those
    whose blocks are built as another family's are."""
    return [
        pytest.param(name, *rest, marks=marks_of(name))
        for name in names
        for rest in itertools.product(*(of(name) for of in more))
    ]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    group = pytest.mark.xdist_group(name)
    return [group, pytest.mark.slow] if name in ALIKE else [group]


def padded_or_not(name: str) -> Sequence[bool]:
    """With a mask too where the family takes one."""
    return (False, True)[: 1 + (name in PADDED)]


@pytest.fixture(autouse=True)
def _one_thread_and_no_gradients() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(before)


class Models:
    """Each is made once; tests leave it as it is."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], Any] = {}

    def exact(self, name: str, attention: str = "") -> Any:
        attention = attention or spelling(name)
        return self._kept(
            ("exact", name, attention),
            lambda: family_models.model(FAMILIES[name], Size.SMALL, attention),
        )

    def quantized(self, name: str, attention: str = "") -> Any:
        attention = attention or spelling(name)
        return self._kept(
            ("quantized", name, attention),
            lambda: quantize_dynamic(self.exact(name, attention), recipe="int8"),
        )

    def _kept(self, key: tuple[str, ...], make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


def spelling(name: str) -> str:
    """What transformers takes by default."""
    return FAMILIES[name].spellings[-1]


def feed(name: str, batch: int = 3, length: int = 9, **options: Any) -> dict[str, Tensor]:
    return family_models.feed(FAMILIES[name], Size.SMALL, batch, length, **options)


def call(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
    return family_models.output(model(**given))


def difference(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).norm() / wanted.norm())


class Watched(TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator of PyTorch, as a profiler does: layers run their own forward."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def by_its_own_forward(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
    with Watched():
        return call(model, given)


@pytest.mark.parametrize(
    ("name", "attention"), of_families(NAMES, lambda name: FAMILIES[name].spellings)
)
def test_it_is_near_float(models: Models, name: str, attention: str) -> None:
    given = feed(name)
    wanted, found = (
        call(models.exact(name, attention), given),
        call(models.quantized(name, attention), given),
    )
    assert 0 < difference(found, wanted) < MOST_ERROR


@pytest.mark.parametrize("name", of_families(PADDED))
def test_padding_is_left_out(models: Models, name: str) -> None:
    given = feed(name, padded=True)
    wanted, found = (
        family_models.counting(given, call(of(name), given))
        for of in (models.exact, models.quantized)
    )
    assert difference(found, wanted) < MOST_ERROR


@pytest.mark.parametrize(("name", "padded"), of_families(NAMES, padded_or_not))
def test_it_computes_what_its_own_forward_does(models: Models, name: str, padded: bool) -> None:
    given, model = feed(name, padded=padded), models.quantized(name)
    found, own = call(model, given), by_its_own_forward(model, given)
    counting = family_models.counting
    assert difference(counting(given, found), counting(given, own)) < ROUNDING


@pytest.mark.parametrize("name", of_families(NAMES))
def test_calls_of_other_sizes_in_a_row(models: Models, name: str) -> None:
    """Nothing is left of one call in the next; rows are the same alone and in a batch."""
    model = models.quantized(name)
    first: dict[tuple[int, int], Tensor] = {}
    for batch, length in CALLS:
        given = feed(name, batch, length, seed=1)
        found = call(model, given)
        assert difference(found, by_its_own_forward(model, given)) < ROUNDING
        assert torch.equal(found, first.setdefault((batch, length), found))


@pytest.mark.parametrize("name", of_families(NAMES))
def test_two_threads_compute_what_one_does(models: Models, name: str) -> None:
    given, model, found = feed(name), models.quantized(name), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(call(model, given))
    assert difference(found[1], found[0]) < ROUNDING  # float layers of PyTorch's may differ


@pytest.mark.parametrize(("name", "padded"), of_families(CACHED, padded_or_not))
def test_a_token_after_a_cache(models: Models, name: str, padded: bool) -> None:
    given, model = feed(name, length=12, padded=padded), models.quantized(name)
    step = family_models.Step(FAMILIES[name], model, given)
    found = step()
    assert torch.equal(step(), found)
    whole = call(models.exact(name), given)[:, -1:]
    assert difference(found, whole) < MOST_ERROR
    with Watched():
        own = family_models.Step(FAMILIES[name], model, given)()
    assert difference(found, own) < 2 * ROUNDING  # keys and values of the cache differ too


def generate(model: Any, given: dict[str, Tensor], **options: Any) -> Tensor:
    """As every model does it: Whisper has a way of its own, for long recordings."""
    found: Tensor = transformers.GenerationMixin.generate(model, **given, **options)
    return found


def prompt(family: Family) -> dict[str, Tensor]:
    """What `generate` is given."""
    if family.kind == "WhisperModel":
        return family_models.feed(FAMILIES["Whisper encoder"], Size.SMALL, 2)
    given = family_models.feed(FAMILIES["BERT"], Size.SMALL, 2, 6)
    return {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"]}


@pytest.mark.parametrize("name", of_families(GENERATING))
def test_generate_takes_the_tokens_that_step_by_step_calls_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = FAMILIES[name]
    made = family_models.model(family, Size.SMALL, spelling(name), head=True)
    model, given = quantize_dynamic(made, recipe="int8"), prompt(family)
    model.generation_config.forced_eos_token_id = None
    model.generation_config.eos_token_id = None
    found = generate(model, given, max_new_tokens=NEW, do_sample=False)
    pair = model.config.is_encoder_decoder
    tokens = found[:, :-NEW]
    for _ in range(NEW):
        more = {**given, "decoder_input_ids": tokens} if pair else {"input_ids": tokens}
        best = model(**more, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, best], 1)
    assert torch.equal(found, tokens)
    traced, trace = [], compiled.trace
    monkeypatch.setattr(compiled, "trace", lambda *given: traced.append(given) or trace(*given))
    generate(model, given, max_new_tokens=3 * NEW, do_sample=False)
    assert not traced, "longer sequences have other sizes, and are no other calls"
