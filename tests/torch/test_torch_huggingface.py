"""Models of `transformers`: randomly initialised ones, and all-MiniLM-L6 with its real weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo import Scheme
from octavo.recipe import FLOAT, Kind, Recipe, Rule
from octavo.torch import quantize_dynamic, report
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import relative, tokens, transformer

transformers = pytest.importorskip("transformers")

MOST_ERROR = 0.0013  # 1 - cosine of hidden states: five times as good as any peer's
NEW_TOKENS = 4


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


SMALL: dict[str, Any] = {"vocab_size": 97, "pad_token_id": 0, "eos_token_id": None}


def gpt2() -> Any:
    return transformer("GPT2LMHeadModel", initializer_range=0.3, **SMALL)


def t5() -> Any:
    given: dict[str, Any] = {"feed_forward_proj": "gated-gelu", "initializer_factor": 1.0}
    model = transformer("T5ForConditionalGeneration", num_layers=1, **SMALL, **given)
    model.lm_head.weight = nn.Parameter(torch.randn(97, 48))  # tied, it would repeat one token
    return model


def bert(**given: Any) -> Any:
    return transformer("BertModel", vocab_size=97, initializer_range=0.2, **given)


def words(*shape: int) -> Tensor:
    return tokens(*shape, below=97)


def becomes(model: nn.Module) -> dict[str, bool]:
    return {o.layer.name: o.quantized for o in report(model).layers}


@pytest.mark.parametrize(
    ("make", "inputs", "layers"),
    [
        (gpt2, {}, ["transformer.h.0.attn.c_attn", "transformer.h.1.mlp.c_proj"]),
        pytest.param(
            *(t5, {"decoder_input_ids": words(2, 5)}, ["encoder.block.0.layer.0.SelfAttention.q"]),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_models_generate(make: Any, inputs: dict[str, Tensor], layers: list[str]) -> None:
    """The cache changes nothing: rows are quantized one by one, whatever came before them."""
    model, prompt = make(), words(2, 9)
    quantized, inputs = quantize_dynamic(model), inputs | {"input_ids": prompt}
    found = becomes(quantized)
    assert all(found[name] for name in [*layers, "lm_head"])
    assert not found.get("transformer.wte")
    assert 0 < relative(quantized(**inputs).logits, model(**inputs).logits) < 0.05
    given = {
        "attention_mask": torch.ones_like(prompt),
        "max_new_tokens": NEW_TOKENS,
        "min_new_tokens": NEW_TOKENS,
        "do_sample": False,
    }
    cached = quantized.generate(prompt, use_cache=True, **given)
    assert torch.equal(cached, quantized.generate(prompt, use_cache=False, **given))
    new = cached[:, -NEW_TOKENS:]
    assert new.shape == (len(prompt), NEW_TOKENS) and len(new.unique()) > 2
    same = (new == model.generate(prompt, **given)[:, -NEW_TOKENS:]).float().mean()
    assert same > 0.4  # once a token differs, so may all that follow


@pytest.mark.parametrize("make", [gpt2, t5])
def test_lm_head_is_left_out_by_name(make: Any) -> None:
    model = make()
    everything = quantize_dynamic(model)
    kinds = {nn.Linear: Scheme(), transformers.pytorch_utils.Conv1D: Scheme()}
    recipe = Recipe(
        "no head", Scheme(), (Rule(FLOAT, name="lm_head"), Rule(FLOAT, kind=Kind.EMBEDDING))
    )
    for quantized in (
        quantize_dynamic(model, {"lm_head": None, **kinds}),
        quantize_dynamic(model, recipe=recipe),
    ):
        left = {name for name, done in becomes(quantized).items() if not done}
        assert "lm_head" in left
        assert left - {"lm_head"} == {n for n, done in becomes(everything).items() if not done}
        assert type(quantized.lm_head) is nn.Linear
        tied = model.lm_head.weight is model.get_input_embeddings().weight
        assert tied == (make is gpt2)
        assert (quantized.lm_head.weight is quantized.get_input_embeddings().weight) == tied


def test_the_dtype_of_a_quantized_model_is_the_float_models() -> None:
    for model in (bert(), bert().to(torch.bfloat16)):
        quantized = quantize_dynamic(model)
        assert quantized.dtype is model.dtype and quantized.device == model.device
        got = quantized(words(2, 9)).last_hidden_state
        assert got.dtype is model.dtype and got.isfinite().all()


def test_bert_with_padding() -> None:
    model = bert()
    quantized = quantize_dynamic(model)
    given = {
        "input_ids": words(2, 9),
        "attention_mask": (torch.arange(9) < 6).long().expand(2, 9),
    }
    wanted = model(**given).last_hidden_state[:, :6]
    got = quantized(**given).last_hidden_state[:, :6]
    assert 0 < relative(got, wanted) < 0.03
    alone = quantized(given["input_ids"][:, :6])
    assert relative(alone.last_hidden_state, got) < 1e-4


def test_a_whole_bert_compiles() -> None:
    quantized = quantize_dynamic(bert(num_hidden_layers=1))
    given = words(2, 9)
    compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
    got = compiled(input_ids=given).last_hidden_state
    assert relative(got, quantized(input_ids=given).last_hidden_state) < 1e-5


@pytest.mark.models
@pytest.mark.parametrize("documents", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_minilm_is_as_exact_as_promised(documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.zoo import minilm

    texts = minilm.lee_documents()[:documents]
    monkeypatch.setattr(minilm, "lee_documents", lambda: texts)
    model = minilm.torch_model()
    quantized = quantize_dynamic(model)
    assert sum(isinstance(module, QuantizedLinear) for module in quantized.modules()) == 36
    assert minilm.hidden_state_error(model, quantized) <= MOST_ERROR


@pytest.mark.sweep(2)
@pytest.mark.models
@pytest.mark.parametrize("inplace", [True, False])
def test_sentence_transformers_encode(inplace: bool) -> None:
    from sentence_transformers import SentenceTransformer

    from benchmarks.zoo import minilm

    model = SentenceTransformer(str(minilm.model_dir()), device="cpu", local_files_only=True)
    texts = list(minilm.lee_documents()[:6])
    wanted = model.encode(texts)
    quantized = quantize_dynamic(model, inplace=inplace)
    assert type(quantized) is SentenceTransformer and (quantized is model) == inplace
    assert sum(becomes(quantized).values()) == 37  # the pooler too, which nothing here uses
    got = quantized.encode(texts)
    assert 0 < 1 - (got * wanted).sum() / len(texts) < 0.003
    assert quantized.encode(texts, convert_to_tensor=True, batch_size=2).shape == (6, 384)
    if not inplace:
        assert (model.encode(texts) == wanted).all()
