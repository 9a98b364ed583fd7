"""Experts with weights of three axes, as transformers fuses them: int8 for each expert."""

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.integrations.moe import use_experts_implementation

from octavo.errors import ModelError
from octavo.recipe import Scheme
from octavo.torch import compare, export_onnx, inspect, load, quantize_dynamic, save
from octavo.torch.layers.experts import QuantizedExperts
from octavo.torch.qconfig import default_dynamic_qconfig
from tests.models import outcomes, relative, transformer

pytestmark = pytest.mark.usefixtures("one_registry")

E, H, I, K = 5, 64, 48, 2  # noqa: E741


def clamped(self: Any, x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate.clamp(max=self.limit)) * up.clamp(-self.limit, self.limit)


def oss(self: Any, x: Tensor) -> Tensor:
    gate, up = (x[..., ::2], x[..., 1::2]) if not self.is_concatenated else x.chunk(2, dim=-1)
    gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
    return (up + 1) * gate * torch.sigmoid(gate * self.alpha)


def interleaved(self: Any, x: Tensor) -> Tensor:
    return self.act_fn(x[..., ::2]) * x[..., 1::2]


def made(apply_gate: Any = None, act: Any = nn.SiLU, **options: bool) -> nn.Module:
    """A module of experts as transformers' own are; `options` are the decorator's."""

    @use_experts_implementation(**options)
    class Experts(nn.Module):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            super().__init__()
            has_gate, bias = options.get("has_gate", True), options.get("has_bias", False)
            self.num_experts, self.limit, self.alpha, self.act_fn = E, 0.5, 1.7, act()
            first = "gate_up_proj" if has_gate else "up_proj"
            for name, n, k in ((first, I * (1 + has_gate), H), ("down_proj", H, I)):
                shape = (E, k, n) if options.get("is_transposed") else (E, n, k)
                setattr(self, name, nn.Parameter(torch.randn(shape) * 0.15))
                if bias:
                    setattr(self, f"{name}_bias", nn.Parameter(torch.randn(E, n) * 0.1))

        def forward(self, hidden_states: Tensor, index: Tensor, weights: Tensor) -> Tensor:
            return torch.stack(
                [
                    sum(self._one(row, e) * w for e, w in zip(some.tolist(), shares, strict=True))
                    for row, some, shares in zip(hidden_states, index, weights, strict=True)
                ]
            )

        def _one(self, x: Tensor, e: int) -> Any:
            if e == E:
                return torch.zeros(H)
            y = self._multiply(x, "gate_up_proj" if self.has_gate else "up_proj", e)
            y = self._apply_gate(y) if self.has_gate else self.act_fn(y)
            return self._multiply(y, "down_proj", e)

        def _multiply(self, x: Tensor, name: str, e: int) -> Tensor:
            weight = getattr(self, name)[e]
            y = x @ (weight if self.is_transposed else weight.t())
            return y + getattr(self, f"{name}_bias")[e] if self.has_bias else y

    if apply_gate is not None:
        Experts._apply_gate = apply_gate
    return Experts(SimpleNamespace(_experts_implementation="eager")).eval()


class Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x) ** 2


FORMS: dict[str, Callable[[], nn.Module]] = {
    "silu": made,
    "gelu": lambda: made(act=nn.GELU),
    "gelu-tanh": lambda: made(act=lambda: nn.GELU(approximate="tanh")),
    "transposed": lambda: made(is_transposed=True),
    "bias": lambda: made(has_bias=True),
    "interleaved": lambda: made(interleaved, is_concatenated=False, has_bias=True),
    "clamped": lambda: made(clamped),
    "oss": lambda: made(oss, is_concatenated=False, is_transposed=True, has_bias=True),
    "oss-concatenated": lambda: made(oss, is_transposed=True, has_bias=True),
    "ungated": lambda: made(act=Squared, has_gate=False),
}


def routed(tokens: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    scores, index = torch.randn(tokens, E).topk(K)
    return torch.randn(tokens, H), index, scores.softmax(-1)


def quantized(module: nn.Module) -> Any:
    return quantize_dynamic(nn.ModuleList([module]))[0]


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_outputs_are_those_of_the_float_experts(form: str) -> None:
    module = FORMS[form]()
    experts = quantized(module)
    assert isinstance(experts, QuantizedExperts)
    x, index, weights = routed()
    found = experts(x, index, weights)
    assert relative(found, module(x, index, weights)) < 0.03
    for i in range(len(x)):  # whatever else is in the batch
        one = slice(i, i + 1)
        assert torch.equal(experts(x[one], index[one], weights[one])[0], found[i])
    none = index.clone()
    none[:, 1] = E
    assert relative(experts(x, none, weights), module(x, none, weights)) < 0.03
    assert experts(x[:0], index[:0], weights[:0]).shape == (0, H)
    assert experts(x.bfloat16(), index, weights).dtype is torch.bfloat16


@pytest.mark.parametrize("form", ["silu", "oss", "ungated"])
def test_each_experts_matrix_has_its_own_channels(form: str) -> None:
    module = FORMS[form]()
    experts = quantized(module)
    names = ["gate_up_proj" if module.has_gate else "up_proj", "down_proj"]
    for name in names:
        weight = getattr(module, name).detach()
        weight = weight.transpose(1, 2) if module.is_transposed else weight
        if name == "gate_up_proj" and not module.is_concatenated:
            weight = torch.cat([weight[:, ::2], weight[:, 1::2]], 1)
        scale = experts.scale_down if name == "down_proj" else experts.scale_up
        assert torch.allclose(scale, weight.abs().amax(-1) / 127)
        assert (getattr(experts, name)() - weight).abs().max() <= scale.max() / 2 * 1.001


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4}),
    "olmoe": ("OlmoeForCausalLM", {"num_experts": 4, "num_experts_per_tok": 2}),
    "gpt-oss": (
        "GptOssForCausalLM",
        {"num_local_experts": 4, "layer_types": ["full_attention", "sliding_attention"]},
    ),
}
SIZES = {"hidden_size": 64, "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 96}
SIZES |= {"vocab_size": 99}  # with these weights int8 chooses no token another expert
IDS = torch.arange(14).reshape(2, 7) * 7


def model_of(name: str) -> nn.Module:
    kind, options = MODELS[name]
    return transformer(kind, **(SIZES | options))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_whole_models(name: str, tmp_path: Any) -> None:
    model = model_of(name)
    for parameter in model.parameters():
        if parameter.dim() == 3:
            parameter.normal_(0, 0.05)
    whole = quantize_dynamic(model)
    found = whole(IDS).logits
    assert relative(found, model(IDS).logits) < 0.1
    outcome = next(o for n, o in outcomes(whole).items() if n.endswith("0.mlp.experts"))
    assert outcome.quantized
    assert outcome.scheme == "int8 per channel, activations per row"
    assert [n.rpartition(".")[2] for n, _ in outcome.layer.weights] == ["gate_up_proj", "down_proj"]
    assert outcome.bytes_after < 0.3 * outcome.bytes_before
    assert outcome.sqnr_db is not None and outcome.sqnr_db > 35
    save(whole, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model", lambda: model_of(name))(IDS).logits, found)
    assert torch.equal(quantize_dynamic(model, inplace=True)(IDS).logits, found)


@torch.no_grad()
def test_whole_models_in_groups(tmp_path: Any) -> None:
    model = model_of("gpt-oss")  # transposed, interleaved, with biases
    whole = quantize_dynamic(model, recipe="int4")
    layers = [m for m in whole.modules() if isinstance(m, QuantizedExperts)]
    assert {m.format for m in layers} == {"int4-32"}
    found = whole(IDS).logits
    assert relative(found, model(IDS).logits) < 0.5
    experts, x = layers[0], torch.randn(7, layers[0].in_features)
    index, weights = torch.randint(0, experts.num_experts, (7, 2)), torch.rand(7, 2)
    y = experts(x, index, weights)
    assert torch.equal(torch.compile(experts, backend="aot_eager")(x, index, weights), y)
    up, down = experts.integers().values()
    assert up.dtype is down.dtype is torch.uint8
    save(whole, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model", lambda: model_of("gpt-oss"))(IDS).logits, found)
    outcome = next(o for n, o in outcomes(whole).items() if n.endswith("0.mlp.experts"))
    assert outcome.scheme == "int4 per block of 32, activations per group of 32"
    assert outcome.bytes_after < 0.2 * outcome.bytes_before  # 48 inputs are padded to 64


def test_compare_and_inspect_know_the_layer() -> None:
    model = model_of("mixtral")
    decisions = {d.layer.name: d for d in inspect(model).decisions}
    name = next(n for n in decisions if n.endswith("0.mlp.experts"))
    assert not decisions[name].scheme.is_float
    assert decisions[name].layer.macs_per_row == 64 * 96 * 3
    found = compare(model, quantize_dynamic(model), IDS)
    alone = next(d for d in found.layers if d.name == name)
    assert alone.alone.sqnr_db > 30


def test_other_ways_to_run() -> None:
    experts = quantized(FORMS["oss"]())
    given = x, index, weights = routed()
    expected = experts(*given)
    torch._dynamo.reset()
    for run in (
        torch.compile(experts, backend="aot_eager", fullgraph=True),
        torch.export.export(experts, given).module(),
        copy.deepcopy(experts),
        pickle.loads(pickle.dumps(experts)),
    ):
        assert torch.equal(run(*given), expected)
    by_name = experts(x, router_indices=index, routing_weights=weights)
    assert torch.equal(by_name, expected)


def test_what_cannot_be_held_stays_float_with_a_reason() -> None:
    def reason(module: nn.Module, **how: Any) -> str:
        outcome = outcomes(quantize_dynamic(nn.ModuleList([module, nn.Linear(4, 4)]), **how))["0"]
        assert not outcome.quantized
        return outcome.reason

    assert "its gate is none" in reason(made(lambda self, x: x.chunk(2, -1)[0].cos()))
    assert "experts of float16" in reason(made(), dtype=torch.float16)
    normed = made()
    normed.has_post_expert_norm = True
    assert "norm behind" in reason(normed)
    other = made()
    type(other)._one = lambda self, x, e: x * 3
    assert "its forward is not that of experts" in reason(other)
    patched = made()
    patched.forward = patched.forward
    assert "forward" in reason(patched)


def test_experts_can_be_asked_for_by_their_type() -> None:
    module = made()
    model = nn.ModuleList([module, nn.Linear(4, 4)])
    found = quantize_dynamic(model, {type(module): default_dynamic_qconfig})
    assert type(found[0]) is QuantizedExperts
    assert len(set(found[0].scale_up[0].tolist())) == 1, "one scale for an expert's matrix"
    assert type(quantize_dynamic(model, {"0": Scheme()})[0]) is QuantizedExperts
    assert type(quantize_dynamic(model, {nn.Linear})[0]) is type(module)


def test_wrong_calls_name_the_argument(tmp_path: Any) -> None:
    experts = quantized(made())
    x, index, weights = routed()
    for name, given in {
        r"hidden_states: needs shape \[tokens, 64\]": (x[:, 1:], index, weights),
        "top_k_index: needs shape": (x, index[1:], weights),
        "top_k_weights: needs shape": (x, index, weights[:, 1:]),
        "both are needed": (x, index),
    }.items():
        with pytest.raises(ValueError, match=name):
            experts(*given)
    with pytest.raises(IndexError, match=r"top_k_index: 6 is not in 0\.\.4"):
        experts(x, torch.full_like(index, E + 1), weights)
    bad = made()
    bad.down_proj.data[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"0: .*NaN"):
        quantized(bad)
    with pytest.raises(ModelError, match="no ONNX form"):
        export_onnx(experts, routed(), tmp_path / "model.onnx")
