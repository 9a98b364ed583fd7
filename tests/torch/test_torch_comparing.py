"""`octavo.torch.compare`: outputs, each layer alone and accumulated, and what is refused."""

from __future__ import annotations

import math
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.errors import AlreadyQuantizedError, InputDataError, ModelError, OptionError
from octavo.results.comparison import Comparison, LayerDifference
from octavo.torch import compare, quantize_dynamic
from octavo.torch.dynamic_type import has_dynamic_type
from octavo.torch.layers.base import QuantizedModule
from tests.models import net

SOUND = 38.0  # dB: rounding to 8 bits leaves 42 and more
BROKEN = 15.0


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def mlp() -> Any:
    widths = (32, 64), (64, 48), (48, 10)
    first, second, last = (nn.Linear(*each) for each in widths)
    return nn.Sequential(first, nn.GELU(), second, nn.ReLU(), last)


def by_name(found: Comparison) -> dict[str, LayerDifference]:
    return {layer.name: layer for layer in found.layers}


def break_scale(module: Any, name: str = "scale") -> None:
    """Doubles a quantized layer's scales, as a file that was tampered with has them."""
    module._fill(**{name: getattr(module, name) * 2})


X, STATE = torch.randn(7, 2, 16), torch.randn(6, 2, 20)
KEYS = torch.randn(7, 2, 32), torch.randn(5, 2, 24), torch.randn(5, 2, 16)
PADDED = torch.randn(2, 7, 32), None, torch.arange(7) >= torch.tensor([[7], [4]])
MODELS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "fused activations": (mlp, (torch.randn(5, 32),), "0 2 4"),
    "lstm stack": (lambda: nn.LSTM(16, 20, 3, bidirectional=True), (X, (STATE,) * 2), "l0 l1 l2"),
    "gru": (lambda: nn.GRU(16, 20, batch_first=True), (X,), "(model)"),
    "projected lstm": (lambda: nn.LSTM(16, 20, 2, proj_size=8, bias=False), (X,), "l0 l1"),
    "rnn stack": (lambda: nn.RNN(16, 20, 2, nonlinearity="relu"), (X,), "l0 l1"),
    "attention": (lambda: nn.MultiheadAttention(32, 4, kdim=24, vdim=16), KEYS, "(model) out_proj"),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        PADDED,
        "linear1 linear2 self_attn self_attn.out_proj",
    ),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", MODELS)
def test_every_quantized_layer_is_compared_and_sound(name: str) -> None:
    make, inputs, layers = MODELS[name]
    model = make().eval()
    found = compare(model, quantize_dynamic(model), *inputs)
    assert sorted(by_name(found)) == layers.split()
    assert (found.target, found.inputs, found.runs, found.left_float) == ("torch", "given", 1, 0)
    for layer in found.layers:
        assert layer.alone.sqnr_db > SOUND, layer
        assert layer.accumulated.sqnr_db > SOUND - 4, layer
        assert layer.alone.values == layer.accumulated.values > 0
        assert layer.notes == ()
    assert all(o.difference.sqnr_db > SOUND - 4 for o in found.outputs)


@pytest.mark.parametrize("name", ["fused activations", "encoder"])
def test_a_broken_layer_comes_first(name: str) -> None:
    make, inputs, layers = MODELS[name]
    model = make().eval()
    for layer in layers.split():
        broken = quantize_dynamic(model)
        module = broken.get_submodule(layer)
        for part in [module.v_proj] if hasattr(module, "v_proj") else [module]:
            break_scale(part)
        first, *others = compare(model, broken, *inputs).layers
        assert first.name == layer
        assert first.alone.sqnr_db < BROKEN
        assert all(o.alone.sqnr_db > SOUND for o in others)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_broken_layer_of_a_stack_comes_first(layer: int) -> None:
    make, inputs, _ = MODELS["lstm stack"]
    model = make()
    broken = quantize_dynamic(model)
    break_scale(broken, f"scale_ih_l{layer}_reverse")
    first, *others = compare(model, broken, *inputs).layers
    assert first.name == f"l{layer}"
    assert first.alone.sqnr_db < 25 < SOUND  # what saturates hides a part of it
    assert all(o.alone.sqnr_db > SOUND for o in others)
    for other in others:  # the error goes on from there, and only there
        assert (other.accumulated.sqnr_db < SOUND - 4) == (other.name > first.name)


def test_layers_of_a_stack_return_what_the_stack_does() -> None:
    make, inputs, _ = MODELS["lstm stack"]
    model = make()
    found = compare(model, quantize_dynamic(model), *inputs)
    outputs = {o.name: o.difference for o in found.outputs}
    last = by_name(found)["l2"].accumulated
    assert last.max_error >= outputs["0"].max_error
    # Signals add up: those of (y, h, c) of the last layer are y's and a third of the states'.
    assert last.values == outputs["0"].values + (outputs["1.0"].values + outputs["1.1"].values) // 3


def test_the_numbers_are_those_of_the_definition() -> None:
    """The second of three layers in NumPy by hand, from the integers that are held."""
    model = mlp()
    quantized = quantize_dynamic(model)
    x = torch.randn(5, 32)
    layer = by_name(compare(model, quantized, x))["2"]
    with torch.inference_mode():
        given = model[1](model[0](x)).double().numpy()
        expected = model[2](torch.from_numpy(given).float()).double().numpy()
    low, high = np.minimum(given.min(1), 0)[:, None], np.maximum(given.max(1), 0)[:, None]
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    rows = (np.rint(given / scale) + zero).clip(0, 255) - zero
    weight = quantized[2].weight().double().numpy()
    noise = rows * scale @ weight.T + model[2].bias.detach().double().numpy() - expected
    signal = (expected**2).sum()
    assert layer.alone.sqnr_db == pytest.approx(
        10 * math.log10(signal / (noise**2).sum()), abs=0.05
    )
    assert layer.alone.max_error == pytest.approx(np.abs(noise).max(), rel=1e-2)


def test_neither_module_is_changed() -> None:
    model = nn.Sequential(*mlp(), nn.Dropout(0.5)).train()
    quantized = quantize_dynamic(model)
    fused = [m for m in quantized.modules() if has_dynamic_type(m)]
    assert fused
    before = {k: v.clone() for k, v in quantized.state_dict().items()}
    x = torch.randn(5, 32)
    expected = quantized(x)
    found = compare(model, quantized, x)  # in eval mode
    assert found.outputs[0].difference.sqnr_db > SOUND - 4
    assert model.training and not quantized.training
    for module in (*model.modules(), *quantized.modules()):
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert all(torch.equal(v, before[k]) for k, v in quantized.state_dict().items())
    assert [m for m in quantized.modules() if has_dynamic_type(m)] == fused
    assert torch.equal(quantized(x), expected)


def twice(m: Any, x: Tensor, bias: float = 0.0) -> dict[str, Tensor]:
    """One layer called twice, one never; outputs by name, and the inputs written into."""
    x += bias
    h = m.twice(m.twice(x).relu_())
    return {"hidden": h, "label": h.argmax(-1)}


def test_calls_of_a_layer_count_as_one_and_layers_may_not_be_called() -> None:
    model = net(twice, twice=nn.Linear(16, 16), spare=nn.Linear(16, 16))
    x = torch.randn(5, 16)
    kept = x.clone()
    found = compare(model, quantize_dynamic(model), x, bias=0.5)
    assert torch.equal(x, kept)
    layers = by_name(found)
    assert layers["twice"].alone.values == 2 * 5 * 16
    assert layers["twice"].alone.sqnr_db > SOUND
    assert layers["spare"].alone is None
    assert len(layers["spare"].notes) == 1
    assert [layer.name for layer in found.layers] == ["twice", "spare"]
    outputs = {o.name: o for o in found.outputs}
    assert outputs["hidden"].top1 == outputs["label"].top1


def test_layers_left_float_are_none() -> None:
    model = mlp()
    found = compare(model, quantize_dynamic(model, {"0", "4"}), torch.randn(5, 32))
    assert sorted(by_name(found)) == ["0", "4"]
    assert found.left_float == 1
    attention = nn.MultiheadAttention(32, 4)
    half = quantize_dynamic(attention, {"out_proj": None, nn.MultiheadAttention: octavo.Scheme()})
    x = torch.randn(5, 2, 32)
    found = compare(attention, half, x, x, x)
    assert isinstance(half.q_proj, QuantizedModule) and type(half.out_proj) is type(
        attention.out_proj
    )
    assert sorted(by_name(found)) == ["(model)"]


def test_float_models_fused_layers_are_not_used() -> None:
    """PyTorch's fused encoder calls no layer, and writes zeros where the padding is."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    found = compare(
        model, quantize_dynamic(model), torch.randn(2, 7, 32), src_key_padding_mask=padding
    )
    assert len(found.layers) == 8
    assert found.outputs[0].difference.sqnr_db > SOUND - 4
    assert torch.backends.mha.get_fastpath_enabled()


def test_numbers_that_are_not_finite_are_shown() -> None:
    model = mlp()
    broken = quantize_dynamic(model)
    scale = broken[4].scale.clone()
    scale[3] = math.inf
    broken[4]._fill(scale=scale)
    found = compare(model, broken, torch.randn(5, 32))
    assert found.layers[0].name == "4"
    assert found.layers[0].alone.non_finite == found.outputs[0].difference.non_finite == 5
    assert "not finite" in str(found)


class Odd(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        raise AttributeError


OTHER = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (lambda m, q: (m, quantize_dynamic(nn.LSTM(16, 20))), ModelError, r"layer '0' \(3 of 3"),
        (lambda m, q: (q, m), AlreadyQuantizedError, "the float model comes first"),
        (lambda m, q: (m, "model.safetensors"), OptionError, "quantized_module is a str"),
        (lambda m, q: (m, q, torch.randn(5, 31)), InputDataError, "the float model .Sequential."),
        (lambda m, q: (m, quantize_dynamic(OTHER)), ModelError, "the quantized model .Sequential."),
        (lambda m, q: (Odd(*m), quantize_dynamic(Odd(*m))), InputDataError, ": AttributeError;"),
    ],
    ids=["apart", "swapped", "path", "inputs", "sizes", "no text"],
)
def test_what_cannot_be_compared_is_refused(given: Any, error: type, words: str) -> None:
    model, quantized, *x = given(mlp(), quantize_dynamic(mlp()))
    with pytest.raises(error, match=words):
        compare(model, quantized, *(x or [torch.randn(5, 32)]))


def masked(m: Any, x: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
    """Tokens of which a mask hides some: y [b, t, 16] and pooled [b, 8]."""
    y = m.up(x)
    return {"y": y, "pooled": m.pooler(y[:, 0])}


def of_features(m: Any, features: dict[str, Tensor], x: None = None) -> dict[str, Tensor]:
    return masked(m, features["x"], features["attention_mask"])


def pooling(forward: Any) -> Any:
    return net(forward, up=nn.Linear(24, 16), pooler=nn.Linear(16, 8)).eval()


def test_a_mapping_that_forward_takes_stays_one() -> None:
    model = pooling(of_features)
    batch = {"x": torch.randn(2, 8, 24), "attention_mask": torch.ones(2, 8)}
    assert len(compare(model, quantize_dynamic(model), batch).outputs) == 2
    with pytest.raises(InputDataError, match=r"TypeError: .*unexpected keyword argument 'z'"):
        compare(pooling(masked), quantize_dynamic(pooling(masked)), {**batch, "z": batch["x"]})


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_counts_for_nothing(left: bool) -> None:
    model, mask = pooling(masked), torch.tensor([[1] * 8, [0] * 5 + [1] * 3])
    mask = mask if left else mask.flip(1)
    with torch.no_grad():
        model.up.weight[:, 0] = 0
    x = torch.randn(2, 8, 24)
    x[..., 0] = torch.where(mask.bool(), 0, 1e3)  # all that is quantized of a hidden row
    x[:, 0] = torch.randn(2, 24)  # which is pooled
    quantized = quantize_dynamic(model)
    whole = compare(model, quantized, x, torch.ones_like(mask))
    found = compare(model, quantized, x, attention_mask=mask)
    assert compare(model, quantized, UserDict(x=x, attention_mask=mask)) == found
    hidden = int((mask == 0).sum())
    assert (whole.padding, found.padding) == (0, hidden)
    before, layer = by_name(whole)["up"], by_name(found)["up"]
    for theirs, ours in (
        (whole.outputs[0].difference, found.outputs[0].difference),
        (before.alone, layer.alone),
        (before.accumulated, layer.accumulated),
    ):
        assert theirs is not None and ours is not None
        assert theirs.error > 0.01 > 1e-4 > ours.error
        assert theirs.values - ours.values == 16 * hidden
    assert layer.inputs is not None and layer.inputs.largest < 10
    assert found.outputs[1] == whole.outputs[1]  # pooled
    assert f"1 run on inputs given, without {hidden} rows of padding" in str(found)
