"""Encoder layers of transformers that run as one call into C++, and when they do not."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from octavo.errors import NotTrainableError
from octavo.recipe import Rule, preset
from octavo.torch import load, quantize_dynamic, report, save
from octavo.torch.blocks import making as under_test
from octavo.torch.blocks.calls import BLOCK
from octavo.torch.blocks.dynamic_type import has_dynamic_type, set_type, type_behind
from octavo.torch.blocks.plans import Plan

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, VOCABULARY = 48, 4, 97
BERT_LIKE = "Bert BertGeneration Camembert Electra Ernie RoCBert Roberta XLMRoberta".split()
MODELS = {name: f"{name}Model" for name in [*BERT_LIKE, "DistilBert"]} | {
    "BertGeneration": "BertGenerationEncoder"
}
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
}
DISTILBERT = {"dim": WIDTH, "n_layers": 2, "n_heads": HEADS, "hidden_dim": 96}


def model(family: str = "Bert", **options: Any) -> Any:
    """Two layers with weights large enough that every part of them shows."""
    config = getattr(transformers, f"{family}Config")(
        **(DISTILBERT if family == "DistilBert" else SIZES),
        vocab_size=VOCABULARY,
        max_position_embeddings=40,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **options,
    )
    return getattr(transformers, MODELS[family])(config).eval()


def tokens(batch: int = 3, length: int = 9, padded: bool = False) -> dict[str, Tensor]:
    ids = torch.randint(3, VOCABULARY, (batch, length))
    mask = torch.ones_like(ids)
    if padded:
        for i in range(1, batch):
            mask[i, length - 2 * i :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A plan for each layer that ran as one call."""
    ran: list[Any] = []
    run = Plan.run

    def counted(plan: Any, *given: Any) -> Any:
        ran.append(plan)
        return run(plan, *given)

    monkeypatch.setattr(Plan, "run", counted)
    return ran


def layers(of: Any) -> Any:
    return (of.transformer if hasattr(of, "transformer") else of.encoder).layer


def chained(layer: nn.Module) -> bool:
    return has_dynamic_type(layer)


def reasons(layer: nn.Module) -> list[str]:
    """Why calls were left to the layer's own forward."""
    return list(layer.__dict__[BLOCK].reasons.values())


def apart(of: Any) -> Any:
    """The quantized model whose layers run their own forward."""
    of = copy.deepcopy(of)
    for layer in layers(of):
        set_type(layer, type_behind(type(layer)))
    return of


def hidden(of: Any, feed: dict[str, Tensor]) -> Tensor:
    """The hidden states of real tokens."""
    found: Tensor = of(**feed).last_hidden_state
    return found[feed["attention_mask"].bool()]


def near(found: Tensor, exact: Tensor, share: float = 0.02) -> None:
    assert (found - exact).norm() <= share * exact.norm()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", sorted(MODELS))
def test_each_family_computes_what_its_own_forward_does(
    family: str, padded: bool, chains: list[Any]
) -> None:
    quantized, feed = quantize_dynamic(model(family)), tokens(padded=padded)
    found = hidden(quantized, feed)
    assert len(chains) == 2
    near(found, hidden(apart(quantized), feed))
    assert len(chains) == 2


# --- the trial before the first call ---


@pytest.mark.parametrize("family", ["Bert", "DistilBert"])
def test_a_layer_is_tried_once(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, agrees = [], under_test.agrees

    def counted(*of: Any) -> bool:
        tried.append(agrees(*of))
        return tried[-1]

    monkeypatch.setattr(under_test, "agrees", counted)
    quantized = quantize_dynamic(model(family))
    for _ in range(3):
        quantized(**tokens())
    assert tried == [True, True]


@pytest.mark.parametrize(
    "change",
    [lambda y: 0.9 * y, lambda y: None, lambda y: y[:1], lambda y: y.missing],
    ids=["values", "none", "shape", "error"],
)
def test_a_layer_that_computes_something_else_keeps_its_forward(
    change: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    agrees, verdicts = under_test.agrees, []

    def otherwise(own: Any, *rest: Any) -> bool:
        verdicts.append(agrees(lambda given: [change(y) for y in own(given)], *rest))
        return verdicts[-1]

    monkeypatch.setattr(under_test, "agrees", otherwise)
    x = torch.randn(2, 5, WIDTH)
    layer = layers(quantize_dynamic(model()))[0]
    for _ in range(2):
        assert torch.equal(layer(x), type_behind(type(layer)).forward(layer, x))
    assert verdicts == [False]
    assert reasons(layer) == ["its program computes something else"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_defaults_of_the_process_do_not_reach_the_trial(dtype: torch.dtype) -> None:
    quantized, feed = quantize_dynamic(model()), tokens()
    exact = hidden(quantized, feed)
    again = copy.deepcopy(quantized)
    try:
        torch.set_default_dtype(dtype)
        with torch.device("meta"):
            found = layers(again)[0](exact[None])
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, layers(quantized)[0](exact[None]))
    assert chained(layers(again)[0])


def test_it_is_as_exact_as_the_layers_apart(chains: list[Any]) -> None:
    exact, feed = model(), tokens(8, 12, padded=True)
    quantized = quantize_dynamic(exact)
    wanted = hidden(exact, feed)
    errors = [(hidden(q, feed) - wanted).norm() for q in (quantized, apart(quantized))]
    assert errors[0] < 1.1 * errors[1]
    said = "where a call asks for nothing else: encoder.layer.0, encoder.layer.1"
    assert said in "\n".join(report(quantized).notes)


def test_an_item_does_not_depend_on_its_batch(chains: list[Any]) -> None:
    quantized, feed = quantize_dynamic(model()), tokens(4, 11, padded=True)
    whole = quantized(**feed).last_hidden_state
    for i in range(4):
        one = quantized(**{n: t[i : i + 1] for n, t in feed.items()}).last_hidden_state
        mask = feed["attention_mask"][i].bool()
        assert torch.equal(one[0][mask], whole[i][mask])
    assert len(chains) == 10


@pytest.mark.parametrize("threads", [1, 2])
def test_long_inputs_lie_in_large_pages(threads: int, chains: list[Any]) -> None:
    quantized, feed = quantize_dynamic(model()), tokens(300, 40)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        whole = quantized(**feed).last_hidden_state
    finally:
        torch.set_num_threads(before)
    assert torch.equal(whole[7:9], quantized(feed["input_ids"][7:9]).last_hidden_state)
    assert len(chains) == 4


MIXED = preset("int4").with_rules_first(
    Rule(preset("int8-accurate").default, name="*.key"),
    Rule(preset("int4-128").default, name="*.value"),
    Rule(preset("int8").default, name="*.intermediate.dense"),
)
"""Layers over one input whose inputs are quantized in four ways."""


@pytest.mark.parametrize(
    ("recipe", "error"),
    [("int8-accurate", 0.05), ("int4", 0.4), ("int4-128", 0.4), (MIXED, 0.4)],
    ids=["int8-accurate", "int4", "int4-128", "mixed"],
)
def test_recipes_with_groups(recipe: Any, error: float, chains: list[Any]) -> None:
    exact, feed = model(), tokens()
    quantized = quantize_dynamic(exact, recipe=recipe)
    found = hidden(quantized, feed)
    assert len(chains) == 2
    near(found, hidden(apart(quantized), feed))
    near(found, hidden(exact, feed), error)


@pytest.mark.parametrize("part", ["attention.self.key", "output.dense"])
def test_a_layer_with_a_float_part_runs_by_itself(part: str, chains: list[Any]) -> None:
    exact, feed = model(), tokens()
    every = {n for n, m in exact.named_modules() if isinstance(m, nn.Linear)}
    quantized = quantize_dynamic(exact, every - {f"encoder.layer.0.{part}"})
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert len(chains) == 1
    assert reasons(layers(quantized)[0]) == ["a linear layer that stayed float"]


# --- what leaves a call to the layer's own forward ---


PARTS = "attention attention.self attention.self.query output.LayerNorm output.dropout".split()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_see_what_they_did(kind: str, part: str, chains: list[Any]) -> None:
    quantized, feed = quantize_dynamic(model()), tokens()
    before = hidden(quantized, feed)
    seen: list[Any] = []
    handle = getattr(layers(quantized)[1].get_submodule(part), kind)(
        lambda module, *rest: seen.append(rest)
    )
    chains.clear()
    near(hidden(quantized, feed), before)
    assert (len(seen), len(chains)) == (1, 1)
    handle.remove()
    assert torch.equal(hidden(quantized, feed), before)
    assert (len(seen), len(chains)) == (1, 3)


def test_parts_that_are_replaced_are_found(chains: list[Any]) -> None:
    exact = model()
    quantized, feed = quantize_dynamic(exact), tokens()
    quantized(**feed)
    norm = nn.LayerNorm(WIDTH, eps=1e-3).eval()
    norm.weight.fill_(0.5)
    for of in (exact, quantized):
        layers(of)[0].output.LayerNorm = norm
    chains.clear()
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert len(chains) == 2
    norm.weight.fill_(2.0)
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    for of in (exact, quantized):
        layers(of)[0].intermediate.intermediate_act_fn = nn.Softplus()
    chains.clear()
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert len(chains) == 1


def test_a_patched_forward_runs(chains: list[Any]) -> None:
    quantized, feed = quantize_dynamic(model()), tokens()
    inner = layers(quantized)[0].attention.self
    inner.forward = lambda x, **rest: (0 * x, None)
    near(hidden(quantized, feed), hidden(apart(quantized), feed))
    assert len(chains) == 1


def test_dropout_acts_in_training_mode(chains: list[Any]) -> None:
    quantized, feed = quantize_dynamic(model()), tokens()
    quantized.train()
    assert not torch.equal(hidden(quantized, feed), hidden(quantized, feed))
    assert not chains
    quantized.eval()
    layers(quantized)[0].output.dropout.train()
    assert not torch.equal(hidden(quantized, feed), hidden(quantized, feed))
    assert len(chains) == 2  # of the other layer


def test_autocast_reaches_what_stands_between_layers(chains: list[Any]) -> None:
    quantized, feed = quantize_dynamic(model()), tokens()
    plain = hidden(quantized, feed)
    chains.clear()
    with torch.autocast("cpu", torch.bfloat16):
        near(hidden(quantized, feed), plain, 0.05)
    assert not chains


def test_hidden_states_and_attentions_are_collected(chains: list[Any]) -> None:
    exact, feed = model(), tokens(padded=True)
    quantized = quantize_dynamic(exact)
    real = feed["attention_mask"].bool()
    found, wanted = (
        of(**feed, output_hidden_states=True).hidden_states for of in (quantized, exact)
    )
    assert len(chains) == 2
    assert len(found) == len(wanted) == 3
    for one, other in zip(found, wanted, strict=True):
        near(one[real], other[real], 0.1)
    for of in (exact, quantized):
        of.set_attn_implementation("eager")
    chains.clear()
    found, wanted = (of(**feed, output_attentions=True).attentions for of in (quantized, exact))
    assert not chains
    assert len(found) == len(wanted) == 2
    for one, other in zip(found, wanted, strict=True):
        near(one, other, 0.1)
    quantized.set_attn_implementation("sdpa")
    quantized(**feed)
    assert len(chains) == 2


def test_a_step_that_no_program_has_leaves_the_layer_alone(chains: list[Any]) -> None:
    exact, feed = model(hidden_act="relu6"), tokens()
    quantized = quantize_dynamic(exact)
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert not chains
    assert reasons(layers(quantized)[0]) == ["hardtanh is no step of a program"]


def test_layers_of_a_decoder_see_what_came_before(chains: list[Any]) -> None:
    exact, feed = model(is_decoder=True, use_cache=False), tokens()
    quantized = quantize_dynamic(exact)
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert len(chains) == 2


def replaced_class(module: nn.Module) -> None:
    kind = type(module)
    other = type(kind.__name__, (kind,), {"forward": lambda *a, **k: kind.forward(*a, **k) * 3})
    module.__class__ = other


def strided_weight(layer: Any) -> None:
    layer.output.LayerNorm.weight = nn.Parameter(torch.randn(WIDTH, 2)[:, 0])


@dataclass
class Unhashable:
    calls: int = 0

    def __call__(self, *args: Any) -> None:
        self.calls += 1


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class AlwaysDropout(nn.Dropout):
    """Monte Carlo dropout: it drops in eval mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.p, training=True)


CHANGES: dict[str, Callable[[Any], object]] = {
    "dropout": lambda layer: setattr(layer.output, "dropout", Twice().eval()),
    "is_causal": lambda layer: setattr(layer.attention.self, "is_causal", True),
    "a method of its own": lambda layer: setattr(layer, "feed_forward_chunk", lambda h: 0 * h),
    "chunks": lambda layer: setattr(layer, "chunk_size_feed_forward", 3),
    "class of a norm": lambda layer: replaced_class(layer.output.LayerNorm),
    "no bias": lambda layer: setattr(layer.output.LayerNorm, "bias", None),
    "strided weight": strided_weight,
    "parametrized": lambda layer: parametrize.register_parametrization(
        layer.output.LayerNorm, "weight", Twice()
    ),
    "activation": lambda layer: setattr(
        layer.intermediate, "intermediate_act_fn", nn.Softplus().eval()
    ),
}


@pytest.mark.parametrize("when", ["before the first call", "after it"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_in_a_layer_is_seen(name: str, when: str, chains: list[Any]) -> None:
    layer, x = layers(quantize_dynamic(model()))[0], torch.randn(2, 9, WIDTH)
    if when == "after it":
        layer(x)
    CHANGES[name](layer)
    near(layer(x), type_behind(type(layer)).forward(layer, x))


def test_another_scale_is_taken_over(chains: list[Any]) -> None:
    layer, x = layers(quantize_dynamic(model()))[0], torch.randn(2, 9, WIDTH)
    before = layer(x)
    layer.attention.self.scaling *= 4
    near(layer(x), type_behind(type(layer)).forward(layer, x))
    assert (layer(x) - before).norm() > 0.05 * before.norm()


def test_heads_that_were_pruned_keep_their_size() -> None:
    exact, x = model(), torch.randn(2, 9, WIDTH)
    inner = layers(exact)[0].attention.self
    for name in ("query", "key", "value"):
        setattr(inner, name, nn.Linear(WIDTH, 36))
    layers(exact)[0].attention.output.dense = nn.Linear(36, WIDTH)
    layer = layers(quantize_dynamic(exact))[0]
    assert chained(layer)
    near(layer(x), type_behind(type(layer)).forward(layer, x))


def test_dropout_of_ones_own_kind_keeps_dropping() -> None:
    exact = model()
    for layer in layers(exact):
        layer.output.dropout = AlwaysDropout(0.5).eval()
    quantized, feed = quantize_dynamic(exact), tokens()
    assert not torch.equal(hidden(quantized, feed), hidden(quantized, feed))


@pytest.mark.parametrize(
    ("block", "method"),
    [
        *((block, "forward") for block in ("attention.self", "output", "output.LayerNorm", "")),
        ("", "feed_forward_chunk"),
    ],
)
def test_classes_that_are_patched_are_seen(
    block: str, method: str, chains: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = layers(quantize_dynamic(model()))[0], torch.randn(2, 9, WIDTH)
    layer(x)
    chains.clear()
    kind, calls = type_behind(type(layer.get_submodule(block))), []
    forward = getattr(kind, method)

    @functools.wraps(forward)
    def patched(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return forward(*args, **kwargs)

    monkeypatch.setattr(kind, method, patched)
    layer(x)
    assert calls
    assert not chains


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda m: m._replicate_for_data_parallel()],
    ids=["copy", "deepcopy", "replica"],
)
@pytest.mark.parametrize("block", ["attention", "attention.output"])
def test_copies_run_their_own_parts(copied: Any, block: str, chains: list[Any]) -> None:
    layer, other = layers(quantize_dynamic(model()))
    x = torch.randn(2, 9, WIDTH)
    before = layer(x)
    again = copied(layer)
    assert torch.equal(again(x), before)
    if "." in block:  # a part of a part
        again._modules = dict(again._modules) | {"attention": copied(again.attention)}
    parent, _, name = block.rpartition(".")
    holder = again.get_submodule(parent)
    holder._modules = dict(holder._modules) | {name: other.get_submodule(block)}
    exact = type_behind(type(again)).forward(again, x)
    near(again(x), exact)
    assert (before - exact).norm() > 0.1 * exact.norm()
    assert torch.equal(layer(x), before)
    assert len(chains) == 4


def test_another_function_under_the_name_of_sdpa_is_called(
    chains: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_utils import AttentionInterface

    layer, x, calls = layers(quantize_dynamic(model()))[0], torch.randn(2, 9, WIDTH), []

    def mine(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return sdpa_attention_forward(*args, **kwargs)

    layer(x)
    chains.clear()
    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", mine)
    layer(x)
    assert (len(calls), len(chains)) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda norm: norm.to("meta"),
        lambda norm: norm.double(),
        lambda norm: norm.half(),
        lambda norm: setattr(norm, "weight", nn.Parameter(torch.ones(7))),
        lambda norm: setattr(norm.weight, "data", torch.ones(7)),
    ],
    ids=["meta", "float64", "float16", "size", "memory"],
)
def test_norms_that_no_longer_fit_are_not_read(
    change: Callable[[Any], object], chains: list[Any]
) -> None:
    layer, x = layers(quantize_dynamic(model()))[0], torch.randn(2, 9, WIDTH)
    layer(x)
    chains.clear()
    change(layer.output.LayerNorm)
    with pytest.raises((RuntimeError, NotImplementedError)):
        layer(x)
    assert not chains


def test_outputs_that_transformers_records_are_recorded() -> None:
    from transformers.models.bert.modeling_bert import BertIntermediate
    from transformers.utils.output_capturing import OutputRecorder

    class Recorded(transformers.BertModel):  # type: ignore[misc, name-defined]
        _can_record_outputs = {  # noqa: RUF012
            **transformers.BertModel._can_record_outputs,
            "mlp": OutputRecorder(BertIntermediate, index=0),
        }

    config = transformers.BertConfig(**SIZES, vocab_size=VOCABULARY)
    config.output_mlp = True
    quantized = quantize_dynamic(Recorded(config).eval())
    for _ in range(2):
        found = quantized(**tokens(2, 6))
        assert [tuple(t.shape) for t in found.mlp] == [(2, 6, 96)] * 2


def test_hooks_that_are_no_functions_are_called(chains: list[Any]) -> None:
    layer, hook = layers(quantize_dynamic(model()))[0], Unhashable()
    layer.attention.self.register_forward_hook(hook)
    layer(torch.randn(2, 9, WIDTH))
    assert (hook.calls, len(chains)) == (1, 0)


def test_a_forward_keeps_its_layer() -> None:
    x = torch.randn(2, 9, WIDTH)
    assert layers(quantize_dynamic(model()))[0].forward(x).shape == x.shape
    again = pickle.loads(pickle.dumps(layers(quantize_dynamic(model()))[0].forward))
    assert again(x).shape == x.shape


def test_attention_without_a_scale_of_its_own(chains: list[Any]) -> None:
    layer, x = layers(quantize_dynamic(model()))[0], torch.randn(2, 9, WIDTH)
    layer.attention.self.scaling = None  # sdpa's own default
    near(layer(x), type_behind(type(layer)).forward(layer, x))
    assert len(chains) == 1


MASKS: dict[str, Callable[[], Tensor]] = {
    "a float": lambda: torch.zeros(2, 1, 5, 5).masked_fill(torch.rand(2, 1, 5, 5) < 0.3, -1e30),
    "one for all": lambda: torch.rand(1, 1, 1, 5) < 0.7,
    "of heads": lambda: torch.rand(2, HEADS, 5, 5) < 0.7,
    "strided": lambda: (torch.rand(2, 1, 5, 10) < 0.7)[..., ::2],
    "repeated": lambda: (torch.rand(2, 1, 1, 5) < 0.7).expand(2, HEADS, 5, 5),
    "hides all": lambda: torch.zeros(2, 1, 5, 5, dtype=torch.bool),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, chains: list[Any]) -> None:
    layer = layers(quantize_dynamic(model()))[0]
    x, mask = torch.randn(2, 5, WIDTH), MASKS[name]()
    near(layer(x, mask), type_behind(type(layer)).forward(layer, x, mask))
    near(layer(x, attention_mask=mask), type_behind(type(layer)).forward(layer, x, mask))
    assert len(chains) == 2


INPUTS: dict[str, Callable[[], Tensor]] = {
    "one token": lambda: torch.randn(1, 1, WIDTH),
    "strided": lambda: torch.randn(5, 2, WIDTH).transpose(0, 1),
    "float64": lambda: torch.randn(2, 5, WIDTH, dtype=torch.float64),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, chains: list[Any]) -> None:
    quantized, x = quantize_dynamic(model()), INPUTS[name]()
    layer = layers(quantized.to(x.dtype))[0]
    found, own = layer(x), type_behind(type(layer)).forward(layer, x)
    assert (found.shape, found.dtype) == (own.shape, own.dtype)
    near(found, own)
    assert len(chains) == (0 if name == "float64" else 1)


def test_wrong_inputs_are_the_layers_to_refuse() -> None:
    layer = layers(quantize_dynamic(model()))[0]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        layer()
    with pytest.raises((ValueError, RuntimeError), match=f"{WIDTH}"):
        layer(torch.randn(1, 5, WIDTH + 1))
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    with pytest.raises(TypeError, match="multiple values for argument 'attention_mask'"):
        layer(torch.randn(1, 5, WIDTH), mask, attention_mask=mask)
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        layer(torch.randn(1, 5, WIDTH), mask.tolist())
    with pytest.raises(RuntimeError, match="reshape tensor of 0 elements"):
        layer(torch.randn(0, 5, WIDTH))
    with pytest.raises(RuntimeError):
        layer(torch.randn(2, 5, WIDTH), torch.ones(2, 1, 5, 4, dtype=torch.bool))


def test_gradients_are_refused_as_elsewhere() -> None:
    quantized = quantize_dynamic(model())
    with torch.enable_grad():
        for wanted in (True, False):  # the norms' parameters ask for one too
            y = layers(quantized)[0](torch.randn(1, 5, WIDTH, requires_grad=wanted))
            with pytest.raises(NotTrainableError, match="cannot be trained"):
                y.sum().backward()
        quantized.requires_grad_(False)
        assert not layers(quantized)[0](torch.randn(1, 5, WIDTH)).requires_grad


def test_a_first_call_in_grad_mode_decides_nothing(chains: list[Any]) -> None:
    quantized, x = quantize_dynamic(model()), torch.randn(1, 5, WIDTH)
    with torch.enable_grad():
        layers(quantized)[0](x)
    assert not chains
    layers(quantized)[0](x)
    assert len(chains) == 1


# --- copies, files, programs ---


def test_copies_and_files_run_on_their_own_layers(chains: list[Any], tmp_path: Path) -> None:
    quantized, feed = quantize_dynamic(model()), tokens()
    exact = hidden(quantized, feed)
    save(quantized, tmp_path / "model.safetensors")
    copies = [
        copy.deepcopy(quantized),
        pickle.loads(pickle.dumps(quantized)),
        load(tmp_path / "model.safetensors", model),
    ]
    for other in copies:
        chains.clear()
        assert torch.equal(hidden(other, feed), exact)
        assert len(chains) == 2
        dense = layers(other)[0].output.dense
        dense.load_state_dict({k: v * 0 for k, v in dense.state_dict().items()})
        assert not torch.equal(hidden(other, feed), exact)


def test_compiled_and_exported_programs_hold_the_layers() -> None:
    quantized = quantize_dynamic(model())
    layer, x = layers(quantized)[0], torch.randn(2, 5, WIDTH)
    exact = layer(x)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    near(compiled(x), exact)
    program = torch.export.export(layer, (x,))
    near(program.module()(x), exact)
    assert sum("octavo" in str(n.target) for n in program.graph.nodes) == 6
