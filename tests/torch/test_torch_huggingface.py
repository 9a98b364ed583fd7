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

transformers = pytest.importorskip("transformers")

MOST_ERROR = 0.0013  # 1 - cosine of hidden states: five times as good as any peer's
NEW_TOKENS = 8


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=97,
        n_positions=64,
        n_embd=48,
        n_layer=2,
        n_head=4,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=97,
        d_model=48,
        d_kv=12,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        initializer_factor=1.0,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=None,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.lm_head.weight = nn.Parameter(torch.randn(97, 48))  # tied, it would repeat one token
    return model


def bert(layers: int = 2, **given: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=97,
        hidden_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=96,
        initializer_range=0.2,
        **given,
    )
    return transformers.BertModel(config, add_pooling_layer=False).eval()


def tokens(batch: int = 2, length: int = 9) -> Tensor:
    return torch.randint(2, 97, (batch, length))


def error(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


def becomes(model: nn.Module) -> dict[str, bool]:
    return {o.layer.name: o.quantized for o in report(model).layers}


def test_gpt2_generates() -> None:
    model = gpt2()
    quantized = quantize_dynamic(model)
    found = becomes(quantized)
    assert found["transformer.h.0.attn.c_attn"] and found["transformer.h.1.mlp.c_proj"]
    assert found["lm_head"] and not found["transformer.wte"]
    prompt = tokens()
    wanted, got = model(prompt).logits, quantized(prompt).logits
    assert 0 < error(got, wanted) < 0.05
    check_generation(quantized, prompt, model)


def test_t5_generates() -> None:
    model = t5()
    quantized = quantize_dynamic(model)
    found = becomes(quantized)
    assert found["encoder.block.0.layer.0.SelfAttention.q"] and found["lm_head"]
    prompt, target = tokens(), tokens(2, 5)
    wanted = model(input_ids=prompt, decoder_input_ids=target).logits
    got = quantized(input_ids=prompt, decoder_input_ids=target).logits
    assert 0 < error(got, wanted) < 0.05
    check_generation(quantized, prompt, model)


def check_generation(quantized: Any, prompt: Tensor, model: Any) -> None:
    """The cache changes nothing: rows are quantized one by one, whatever came before them."""
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


def test_an_embedding_is_left_out_by_name() -> None:
    model = bert()
    words = "embeddings.word_embeddings"
    positions = "embeddings.position_embeddings"
    spec = {nn.Linear: Scheme(), nn.Embedding: Scheme(), words: None}
    found = becomes(quantize_dynamic(model, spec))
    assert not found[words] and found[positions]
    assert found["encoder.layer.0.attention.self.query"]


def test_the_dtype_of_a_quantized_model_is_the_float_models() -> None:
    for model in (bert(), bert().to(torch.bfloat16)):
        quantized = quantize_dynamic(model)
        assert quantized.dtype is model.dtype and quantized.device == model.device
        got = quantized(tokens()).last_hidden_state
        assert got.dtype is model.dtype and got.isfinite().all()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bert_with_padding(attention: str) -> None:
    model = bert(attn_implementation=attention)
    quantized = quantize_dynamic(model)
    given = {"input_ids": tokens(), "attention_mask": (torch.arange(9) < 6).long().expand(2, 9)}
    wanted = model(**given).last_hidden_state[:, :6]
    got = quantized(**given).last_hidden_state[:, :6]
    assert 0 < error(got, wanted) < 0.03
    alone = quantized(given["input_ids"][:, :6])
    assert error(alone.last_hidden_state, got) < 1e-4


def layers(model: Any) -> nn.Module:
    """The encoder's layers: hidden states in, hidden states out."""

    class Stack(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = model.encoder.layer

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                found = layer(x)
                x = found[0] if isinstance(found, tuple) else found
            return x

    return Stack().eval()


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # in torch itself
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_layers_of_bert_compile_as_one_graph(backend: str) -> None:
    quantized = quantize_dynamic(layers(bert()))
    x = torch.randn(2, 9, 48)
    wanted = quantized(x)
    compiled = torch.compile(quantized, fullgraph=True, backend=backend)
    assert error(compiled(x), wanted) < 0.01


def test_layers_of_bert_export() -> None:
    quantized = quantize_dynamic(layers(bert()))
    x = torch.randn(2, 9, 48)
    length = torch.export.Dim("length", min=2, max=64)
    exported = torch.export.export(quantized, (x,), dynamic_shapes=({1: length},))
    names = {str(node.target) for node in exported.graph.nodes}
    assert any("octavo.linear" in name for name in names)
    for other in (x, torch.randn(2, 17, 48)):
        assert error(exported.module()(other), quantized(other)) < 1e-5


def test_a_whole_bert_compiles() -> None:
    quantized = quantize_dynamic(bert())
    given = tokens()
    compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
    got = compiled(input_ids=given).last_hidden_state
    assert error(got, quantized(input_ids=given).last_hidden_state) < 1e-5


@pytest.mark.models
def test_minilm_is_as_exact_as_promised() -> None:
    from benchmarks.zoo import minilm

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
