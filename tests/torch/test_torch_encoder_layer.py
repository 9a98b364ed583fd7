"""Encoder layers of transformers that run as one chain of kernels, and when they do not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.errors import NotTrainableError
from octavo.torch import encoder_layer as under_test
from octavo.torch import load, quantize_dynamic, report, save
from octavo.torch.encoder_layer import run_layer
from octavo.torch.encoder_plan import TYPES, Plan

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, VOCABULARY = 48, 4, 97
MODELS = {name.removesuffix("Layer"): f"{name.removesuffix('Layer')}Model" for name in TYPES} | {
    "BertGeneration": "BertGenerationEncoder"
}


def model(family: str = "Bert", **options: Any) -> Any:
    """Two layers with weights large enough that every part of them shows."""
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=96,
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
    """A plan for each layer that ran as a chain."""
    ran: list[Any] = []
    run = Plan.run

    def counted(plan: Any, x: Tensor, mask: Tensor | None) -> Tensor:
        ran.append(plan)
        return run(plan, x, mask)

    monkeypatch.setattr(Plan, "run", counted)
    monkeypatch.setattr(under_test, "_agreeing", {}.fromkeys(layer_types(), True))
    return ran


def layer_types() -> list[type]:
    return [type(layers(model(family))[0]) for family in MODELS]


def layers(of: Any) -> Any:
    return of.encoder.layer


def chained(layer: nn.Module) -> bool:
    return getattr(layer.__dict__.get("forward"), "func", None) is run_layer


def apart(of: Any) -> Any:
    """The quantized model whose layers run their own forward."""
    of = copy.deepcopy(of)
    for layer in layers(of):
        del layer.__dict__["forward"]
    return of


def hidden(of: Any, feed: dict[str, Tensor]) -> Tensor:
    """The hidden states of real tokens."""
    found: Tensor = of(**feed).last_hidden_state
    return found[feed["attention_mask"].bool()]


def near(found: Tensor, exact: Tensor, share: float = 0.02) -> None:
    assert (found - exact).norm() < share * exact.norm()


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


def test_the_types_are_looked_at_before_they_run() -> None:
    quantized = quantize_dynamic(model())
    kind = type(layers(quantized)[0])
    under_test._agreeing.pop(kind, None)
    quantized(**tokens())
    assert under_test._agreeing[kind] is True


def test_a_type_that_computes_something_else_keeps_its_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quantized, feed = quantize_dynamic(model()), tokens()
    kind = type(layers(quantized)[0])
    forward = kind.forward
    monkeypatch.setattr(under_test, "_agreeing", {})
    monkeypatch.setattr(kind, "forward", lambda *a, **k: 0.9 * forward(*a, **k))
    assert torch.equal(hidden(quantized, feed), hidden(apart(quantized), feed))
    assert under_test._agreeing == {kind: False}


@pytest.mark.parametrize("change", [lambda y: (y,), lambda y: y[:1]], ids=["tuple", "shape"])
def test_a_type_that_returns_something_else_keeps_its_forward(
    change: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    quantized = quantize_dynamic(model())
    layer = layers(quantized)[0]
    forward = type(layer).forward
    monkeypatch.setattr(under_test, "_agreeing", {})
    monkeypatch.setattr(type(layer), "forward", lambda *a, **k: change(forward(*a, **k)))
    x = torch.randn(2, 5, WIDTH)
    assert type(layer(x)) is type(change(x))
    assert under_test._agreeing == {type(layer): False}


def test_it_is_as_exact_as_the_layers_apart(chains: list[Any]) -> None:
    exact, feed = model(), tokens(8, 12, padded=True)
    quantized = quantize_dynamic(exact)
    wanted = hidden(exact, feed)
    errors = [(hidden(q, feed) - wanted).norm() for q in (quantized, apart(quantized))]
    assert errors[0] < 1.1 * errors[1]
    assert "encoder layers run as one chain of kernels: encoder.layer.0, encoder.layer.1" in (
        "\n".join(report(quantized).notes)
    )


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


def test_recipes_with_groups(chains: list[Any]) -> None:
    exact, feed = model(), tokens()
    quantized = quantize_dynamic(exact, recipe="int8-accurate")
    found = hidden(quantized, feed)
    assert len(chains) == 2
    near(found, hidden(apart(quantized), feed))
    near(found, hidden(exact, feed), 0.05)


@pytest.mark.parametrize("part", ["attention.self.key", "output.dense"])
def test_a_layer_with_a_float_part_runs_by_itself(part: str, chains: list[Any]) -> None:
    exact, feed = model(), tokens()
    every = {n for n, m in exact.named_modules() if isinstance(m, nn.Linear)}
    quantized = quantize_dynamic(exact, every - {f"encoder.layer.0.{part}"})
    assert [chained(layer) for layer in layers(quantized)] == [False, True]
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)
    assert len(chains) == 1


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


@pytest.mark.parametrize("options", [{"is_decoder": True}, {"hidden_act": "relu6"}], ids=str)
def test_what_is_no_plain_encoder_stays(options: dict[str, Any], chains: list[Any]) -> None:
    exact, feed = model(**options), tokens()
    quantized = quantize_dynamic(exact)
    assert not any(map(chained, layers(quantized)))
    near(hidden(quantized, feed), hidden(exact, feed), 0.1)


def test_lookalikes_stay() -> None:
    class BertLayer(nn.Module):
        def __init__(self, of: Any) -> None:
            super().__init__()
            self.__dict__.update(of.__dict__)

        def forward(self, x: Tensor) -> Tensor:
            return x

    quantized = quantize_dynamic(model())
    assert under_test.fuse_encoder_layers(BertLayer(layers(quantized)[0])) == []


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
    near(layer(x, mask), type(layer).forward(layer, x, mask))
    near(layer(x, attention_mask=mask), type(layer).forward(layer, x, mask))
    assert len(chains) == (0 if name == "a float" else 2)


INPUTS: dict[str, Callable[[], Tensor]] = {
    "one token": lambda: torch.randn(1, 1, WIDTH),
    "strided": lambda: torch.randn(5, 2, WIDTH).transpose(0, 1),
    "float64": lambda: torch.randn(2, 5, WIDTH, dtype=torch.float64),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, chains: list[Any]) -> None:
    quantized, x = quantize_dynamic(model()), INPUTS[name]()
    layer = layers(quantized.to(x.dtype))[0]
    found, own = layer(x), type(layer).forward(layer, x)
    assert (found.shape, found.dtype) == (own.shape, own.dtype)
    near(found, own)
    assert len(chains) == (0 if name == "float64" else 1)


def test_wrong_inputs_are_the_layers_to_refuse() -> None:
    layer = layers(quantize_dynamic(model()))[0]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        layer()
    with pytest.raises((ValueError, RuntimeError), match=f"{WIDTH}"):
        layer(torch.randn(1, 5, WIDTH + 1))
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
