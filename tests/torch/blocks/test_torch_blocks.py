"""Encoder layers of transformers that run as one call into C++, and when they do not."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from octavo.errors import NotTrainableError
from octavo.recipe import Rule, preset
from octavo.torch import quantize_dynamic, report
from octavo.torch.blocks import build as under_test
from octavo.torch.blocks.calls import BLOCK
from octavo.torch.blocks.plan.plans import Plan
from octavo.torch.dynamic_type import has_dynamic_type, type_behind
from tests.models import Doubled, transformer
from tests.torch.blocks.one_call import apart, bert, near, own, quantized_bert, tokens

transformers = pytest.importorskip("transformers")

WIDTH, HEADS = 48, 4


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A plan for each layer that ran as one call."""
    ran: list[Any] = []
    run = Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, *given: ran.append(plan) or run(plan, *given))
    return ran


def layers(of: Any) -> Any:
    return of.encoder.layer


def one_layer() -> tuple[Any, Tensor]:
    """A quantized layer and what it may be called with."""
    return layers(quantized_bert())[0], torch.randn(2, 9, WIDTH)


def reasons(layer: nn.Module) -> list[str]:
    """Why calls were left to the layer's own forward."""
    return list(layer.__dict__[BLOCK].reasons.values())


def hidden(of: Any, feed: dict[str, Tensor]) -> Tensor:
    """The hidden states of real tokens."""
    found: Tensor = of(**feed).last_hidden_state
    return found[feed["attention_mask"].bool()]


def test_it_is_as_exact_as_the_layers_apart(chains: list[Any]) -> None:
    exact, feed = bert(), tokens(8, 20, padded=True)
    quantized = quantize_dynamic(exact)
    wanted, found, alone = (hidden(q, feed) for q in (exact, quantized, apart(quantized)))
    assert len(chains) == 2
    near(found, alone)
    assert (found - wanted).norm() < 1.1 * (alone - wanted).norm()
    assert "encoder.layer.0, encoder.layer.1" in "\n".join(report(quantized).notes)


@pytest.mark.parametrize(
    "change",
    [lambda y: 0.9 * y, lambda y: None, lambda y: y[:1], lambda y: y.missing],
    ids=["values", "none", "shape", "error"],
)
def test_a_layer_that_computes_something_else_keeps_its_forward(
    change: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    agrees, verdicts = under_test.agrees, []

    def otherwise(forward: Any, *rest: Any) -> bool:
        verdicts.append(agrees(lambda given: [change(y) for y in forward(given)], *rest))
        return verdicts[-1]

    monkeypatch.setattr(under_test, "agrees", otherwise)
    layer, x = one_layer()
    for _ in range(2):
        assert torch.equal(layer(x), own(layer, x))
    assert verdicts == [False]
    assert reasons(layer) == ["its program computes something else"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_defaults_of_the_process_do_not_reach_the_trial(dtype: torch.dtype) -> None:
    layer, x = one_layer()
    again = copy.deepcopy(layer)
    try:
        torch.set_default_dtype(dtype)
        with torch.device("meta"):
            found = again(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, layer(x))
    assert has_dynamic_type(again)


def test_an_item_does_not_depend_on_its_batch(chains: list[Any]) -> None:
    quantized, feed = quantized_bert(), tokens(4, 11, padded=True)
    whole = quantized(**feed).last_hidden_state
    for i in range(4):
        one = quantized(**{n: t[i : i + 1] for n, t in feed.items()}).last_hidden_state
        mask = feed["attention_mask"][i].bool()
        assert torch.equal(one[0][mask], whole[i][mask])
    assert len(chains) == 10


def test_long_inputs_lie_in_large_pages(chains: list[Any]) -> None:
    quantized, feed = quantized_bert(), tokens(300, 40)
    few = quantized(feed["input_ids"][7:9]).last_hidden_state
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert torch.equal(quantized(**feed).last_hidden_state[7:9], few)
    finally:
        torch.set_num_threads(before)
    assert len(chains) == 6


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
    exact, feed = bert(), tokens()
    quantized = quantize_dynamic(exact, recipe=recipe)
    found = hidden(quantized, feed)
    assert len(chains) == 2
    near(found, hidden(apart(quantized), feed))
    near(found, hidden(exact, feed), error)


@pytest.mark.parametrize("part", ["attention.self.key", "output.dense"])
def test_a_layer_with_a_float_part_runs_by_itself(part: str, chains: list[Any]) -> None:
    exact, feed = bert(), tokens()
    every = {n for n, m in exact.named_modules() if isinstance(m, nn.Linear)}
    quantized = quantize_dynamic(exact, every - {f"encoder.layer.0.{part}"})
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert len(chains) == 1
    assert reasons(layers(quantized)[0]) == ["a linear layer that stayed float"]


PARTS = "attention attention.self attention.self.query output.LayerNorm output.dropout".split()


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_see_what_they_did(kind: str, chains: list[Any]) -> None:
    quantized, feed = quantized_bert(), tokens()
    before = hidden(quantized, feed)
    for part in PARTS:
        seen: list[Any] = []
        register = getattr(layers(quantized)[1].get_submodule(part), kind)
        handle = register(lambda module, *rest, seen=seen: seen.append(rest))
        chains.clear()
        near(hidden(quantized, feed), before)
        assert (len(seen), len(chains)) == (1, 1)
        handle.remove()
        assert torch.equal(hidden(quantized, feed), before)
        assert (len(seen), len(chains)) == (1, 3)


class Hook:
    """No function, and not hashable."""

    calls, __hash__ = 0, None  # type: ignore[assignment]

    def __call__(self, *args: Any) -> None:
        self.calls += 1


class AlwaysDropout(nn.Dropout):
    """Monte Carlo dropout: it drops in eval mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.p, training=True)


def test_dropout_acts_where_it_would(chains: list[Any]) -> None:
    quantized, feed = quantized_bert(), tokens()

    def drops() -> bool:
        chains.clear()
        return not torch.equal(hidden(quantized, feed), hidden(quantized, feed))

    assert drops() is False and len(chains) == 4
    quantized.train()
    assert drops() and not chains
    quantized.eval()
    layers(quantized)[0].output.dropout.train()
    assert drops() and len(chains) == 2  # of the other layer
    layers(quantized)[0].output.dropout = AlwaysDropout(0.5).eval()
    assert drops() and len(chains) == 2


def test_autocast_reaches_what_stands_between_layers(chains: list[Any]) -> None:
    quantized, feed = quantized_bert(), tokens()
    plain = hidden(quantized, feed)
    chains.clear()
    with torch.autocast("cpu", torch.bfloat16):
        near(hidden(quantized, feed).float(), plain, 0.05)
    assert not chains


def test_hidden_states_and_attentions_are_collected(chains: list[Any]) -> None:
    exact, feed = bert(), tokens(padded=True)
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


@pytest.mark.parametrize(
    ("options", "calls"),
    [({"hidden_act": "relu6"}, 0), ({"is_decoder": True, "use_cache": False}, 2)],
    ids=["a step that no program has", "a decoder"],
)
def test_other_configurations(options: dict[str, Any], calls: int, chains: list[Any]) -> None:
    exact, feed = bert(**options), tokens()
    quantized = quantize_dynamic(exact)
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert len(chains) == calls
    if not calls:
        assert reasons(layers(quantized)[0]) == ["hardtanh is no step of a program"]


def replaced_class(module: nn.Module) -> None:
    kind = type(module)
    other = type(kind.__name__, (kind,), {"forward": lambda *a, **k: kind.forward(*a, **k) * 3})
    module.__class__ = other


CHANGES: dict[str, Callable[[Any], object]] = {
    "dropout": lambda layer: setattr(layer.output, "dropout", Doubled().eval()),
    "is_causal": lambda layer: setattr(layer.attention.self, "is_causal", True),
    "scale": lambda layer: setattr(layer.attention.self, "scaling", 2.0),
    "scale of sdpa": lambda layer: setattr(layer.attention.self, "scaling", None),
    "norm": lambda layer: setattr(layer.output, "LayerNorm", nn.LayerNorm(WIDTH, eps=1e-3).eval()),
    "weight of a norm": lambda layer: layer.output.LayerNorm.weight.mul_(2),
    "hook": lambda layer: layer.attention.self.register_forward_hook(Hook()),
    "a forward of its own": lambda layer: setattr(
        layer.attention.self, "forward", lambda x, **rest: (0 * x, None)
    ),
    "a method of its own": lambda layer: setattr(layer, "feed_forward_chunk", lambda h: 0 * h),
    "chunks": lambda layer: setattr(layer, "chunk_size_feed_forward", 3),
    "class of a norm": lambda layer: replaced_class(layer.output.LayerNorm),
    "no bias": lambda layer: setattr(layer.output.LayerNorm, "bias", None),
    "strided weight": lambda layer: setattr(
        layer.output.LayerNorm, "weight", nn.Parameter(torch.randn(WIDTH, 2)[:, 0])
    ),
    "parametrized": lambda layer: parametrize.register_parametrization(
        layer.output.LayerNorm, "weight", Doubled()
    ),
    "activation": lambda layer: setattr(
        layer.intermediate, "intermediate_act_fn", nn.Softplus().eval()
    ),
}
ONE_CALL = dict.fromkeys(["scale", "scale of sdpa", "weight of a norm", "norm"], 1)
ONE_CALL |= dict.fromkeys(["hook", "a forward of its own"], 0)
"""Programs that run in the call that follows, where that is certain."""


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_in_a_layer_is_seen(name: str, chains: list[Any]) -> None:
    layer, x = one_layer()
    layer(x)
    chains.clear()
    CHANGES[name](layer)
    near(layer(x), own(layer, x))
    assert len(chains) == ONE_CALL.get(name, len(chains))


def test_heads_that_were_pruned_keep_their_size() -> None:
    exact, x = bert(), torch.randn(2, 9, WIDTH)
    inner = layers(exact)[0].attention.self
    for name in ("query", "key", "value"):
        setattr(inner, name, nn.Linear(WIDTH, 36))
    layers(exact)[0].attention.output.dense = nn.Linear(36, WIDTH)
    layer = layers(quantize_dynamic(exact))[0]
    assert has_dynamic_type(layer)
    near(layer(x), own(layer, x))


PATCHED = ["attention.self.forward", "output.forward", "output.LayerNorm.forward", "forward"]


@pytest.mark.parametrize("name", [*PATCHED, "feed_forward_chunk", "sdpa"])
def test_code_that_is_patched_is_called(
    name: str, chains: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.modeling_utils import AttentionInterface

    (layer, x), calls = one_layer(), []
    layer(x)
    chains.clear()
    block, _, method = name.rpartition(".")
    kind = type_behind(type(layer.get_submodule(block)))
    functions = AttentionInterface._global_mapping
    code = functions["sdpa"] if name == "sdpa" else getattr(kind, method)

    @functools.wraps(code)
    def patched(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return code(*args, **kwargs)

    if name == "sdpa":
        monkeypatch.setitem(functions, "sdpa", patched)
    else:
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
    layer, other = layers(quantized_bert())
    x = torch.randn(2, 9, WIDTH)
    before = layer(x)
    again = copied(layer)
    assert torch.equal(again(x), before)
    if "." in block:  # a part of a part
        again._modules = dict(again._modules) | {"attention": copied(again.attention)}
    parent, _, name = block.rpartition(".")
    holder = again.get_submodule(parent)
    holder._modules = dict(holder._modules) | {name: other.get_submodule(block)}
    exact = own(again, x)
    near(again(x), exact)
    assert (before - exact).norm() > 0.1 * exact.norm()
    assert torch.equal(layer(x), before)
    assert len(chains) == 4


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
    layer, x = one_layer()
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

    config = bert().config
    config.output_mlp = True
    quantized = quantize_dynamic(Recorded(config).eval())
    for _ in range(2):
        found = quantized(**tokens(2, 6))
        assert [tuple(t.shape) for t in found.mlp] == [(2, 6, 96)] * 2


def test_a_forward_keeps_its_layer() -> None:
    layer, x = one_layer()
    again = pickle.loads(pickle.dumps(layer.forward))
    assert torch.equal(again(x), layer.forward(x))


MASKS: dict[str, Callable[[], Tensor]] = {
    "a float": lambda: torch.zeros(2, 1, 5, 5).masked_fill(torch.rand(2, 1, 5, 5) < 0.3, -1e30),
    "one for all": lambda: torch.rand(1, 1, 1, 5) < 0.7,
    "of heads": lambda: torch.rand(2, HEADS, 5, 5) < 0.7,
    "strided": lambda: (torch.rand(2, 1, 5, 10) < 0.7)[..., ::2],
    "repeated": lambda: (torch.rand(2, 1, 1, 5) < 0.7).expand(2, HEADS, 5, 5),
    "hides all": lambda: torch.zeros(2, 1, 5, 5, dtype=torch.bool),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, chains: list[Any]) -> None:
    layer, _ = one_layer()
    x, mask = torch.randn(2, 5, WIDTH), MASKS[name]()
    wanted = own(layer, x, mask)
    near(layer(x, mask), wanted)
    near(layer(x, attention_mask=mask), wanted)
    assert len(chains) == 2


INPUTS: dict[str, Callable[[], Tensor]] = {
    "one token": lambda: torch.randn(1, 1, WIDTH),
    "strided": lambda: torch.randn(5, 2, WIDTH).transpose(0, 1),
    "float64": lambda: torch.randn(2, 5, WIDTH, dtype=torch.float64),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, chains: list[Any]) -> None:
    x = INPUTS[name]()
    layer = one_layer()[0].to(x.dtype)
    found, wanted = layer(x), own(layer, x)
    assert found.dtype is wanted.dtype
    near(found, wanted)
    assert len(chains) == (0 if name == "float64" else 1)


def test_wrong_inputs_are_the_layers_to_refuse() -> None:
    layer, x = one_layer()
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        layer()
    with pytest.raises((ValueError, RuntimeError), match=f"{WIDTH}"):
        layer(torch.randn(1, 5, WIDTH + 1))
    with pytest.raises(TypeError, match="multiple values for argument 'attention_mask'"):
        layer(x, mask, attention_mask=mask)
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        layer(x, mask.tolist())
    with pytest.raises(RuntimeError, match="reshape tensor of 0 elements"):
        layer(torch.randn(0, 5, WIDTH))
    with pytest.raises(RuntimeError):
        layer(torch.randn(2, 5, WIDTH), torch.ones(2, 1, 5, 4, dtype=torch.bool))


def test_gradients_are_refused_and_decide_nothing(chains: list[Any]) -> None:
    layer, x = one_layer()
    with torch.enable_grad():
        for wanted in (True, False):  # the norms' parameters ask for one too
            y = layer(x.clone().requires_grad_(wanted))
            with pytest.raises(NotTrainableError, match="cannot be trained"):
                y.sum().backward()
        assert not chains
        layer.requires_grad_(False)
        assert not layer(x).requires_grad
    layer.requires_grad_(True)
    chains.clear()
    layer(x)
    assert len(chains) == 1


KINDS = {
    "BertModel": {},
    "DistilBertModel": {"n_layers": 1, "dim": 48, "n_heads": 4, "hidden_dim": 64},
    "GPT2Model": {"n_layer": 1},
    "LlamaModel": {"num_hidden_layers": 1},
    "Qwen3Model": {"num_hidden_layers": 1},
}


@pytest.mark.parametrize("kind", [*KINDS, "nn"])
def test_gradients_that_are_asked_for_later_are_not_dropped(kind: str, chains: list[Any]) -> None:
    given: Any = torch.arange(2, 11)[None]
    if kind == "nn":
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True).eval()
        model: Any = quantize_dynamic(layer)
        given = torch.randn(1, 9, WIDTH)
    else:
        model = quantize_dynamic(transformer(kind, **KINDS[kind]))
    parameters = list(model.parameters())

    def result() -> Tensor:
        made = model(given)
        found: Tensor = made if isinstance(made, Tensor) else made[0]
        return found

    with torch.enable_grad():
        for _ in range(2):
            model.requires_grad_(False)
            assert not result().requires_grad
            assert chains or kind in ("GPT2Model", "LlamaModel", "Qwen3Model")  # other plans
            for parameter in parameters:  # each alone
                parameter.requires_grad_(True)
                with contextlib.suppress(NotTrainableError):
                    assert result().requires_grad
                parameter.requires_grad_(False)
            chains.clear()


@pytest.mark.parametrize("norm", ["attention.output", "output"])
def test_one_parameter_that_trains_leaves_gradients_to_the_forward(
    norm: str, chains: list[Any]
) -> None:
    layer, x = one_layer()
    layer.requires_grad_(False).get_parameter(f"{norm}.LayerNorm.bias").requires_grad_(True)
    layer(x)
    assert chains
    with torch.enable_grad():
        assert layer(x).requires_grad
