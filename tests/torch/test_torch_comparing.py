"""`octavo.torch.compare`: outputs, each layer alone and accumulated, and what is refused."""

from __future__ import annotations

import math
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import octavo.torch
from octavo.errors import AlreadyQuantizedError, InputDataError, ModelError, OptionError
from octavo.results.comparison import Comparison, LayerDifference
from octavo.torch import compare, quantize_dynamic
from octavo.torch.blocks.dynamic_type import has_dynamic_type
from octavo.torch.layers.base import QuantizedModule

SOUND = 38.0  # dB: rounding to 8 bits leaves 42 and more
BROKEN = 15.0


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)
    )


def by_name(found: Comparison) -> dict[str, LayerDifference]:
    return {layer.name: layer for layer in found.layers}


def break_scale(module: Any, name: str = "scale") -> None:
    """Doubles a quantized layer's scales, as a file that was tampered with has them."""
    module._fill(**{name: getattr(module, name) * 2})


MODELS: dict[str, tuple[Any, tuple[Any, ...], list[str]]] = {
    "fused activations": (mlp, (torch.randn(5, 32),), ["0", "2", "4"]),
    "lstm stack": (
        lambda: nn.LSTM(16, 20, num_layers=3, bidirectional=True),
        (torch.randn(7, 2, 16), (torch.randn(6, 2, 20), torch.randn(6, 2, 20))),
        ["l0", "l1", "l2"],
    ),
    "gru": (lambda: nn.GRU(16, 20, batch_first=True), (torch.randn(2, 7, 16),), ["(model)"]),
    "projected lstm": (
        lambda: nn.LSTM(16, 20, num_layers=2, proj_size=8, bias=False),
        (torch.randn(7, 2, 16),),
        ["l0", "l1"],
    ),
    "rnn stack": (
        lambda: nn.RNN(16, 20, num_layers=2, nonlinearity="relu"),
        (torch.randn(7, 2, 16),),
        ["l0", "l1"],
    ),
    "attention": (
        lambda: nn.MultiheadAttention(32, 4, kdim=24, vdim=16),
        (torch.randn(7, 2, 32), torch.randn(5, 2, 24), torch.randn(5, 2, 16)),
        ["(model)", "out_proj"],
    ),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        (torch.randn(2, 7, 32), None, torch.tensor([[False] * 7, [False] * 4 + [True] * 3])),
        ["linear1", "linear2", "self_attn", "self_attn.out_proj"],
    ),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", MODELS)
def test_every_quantized_layer_is_compared_and_sound(name: str) -> None:
    make, inputs, layers = MODELS[name]
    model = make().eval()
    found = compare(model, quantize_dynamic(model), *inputs)
    assert sorted(by_name(found)) == layers
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
    for layer in layers:
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


def test_packed_sequences_pass_through_a_stack() -> None:
    model = nn.GRU(16, 20, num_layers=2)
    x = pack_padded_sequence(torch.randn(7, 2, 16), [7, 4])
    found = compare(model, quantize_dynamic(model), x)
    assert all(layer.alone.sqnr_db > SOUND for layer in found.layers)
    assert found.layers[0].alone.values == 11 * 20 + 2 * 20  # outputs and last states


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
    model = mlp().train()
    quantized = quantize_dynamic(model)
    fused = [m for m in quantized.modules() if has_dynamic_type(m)]
    assert fused
    before = {k: v.clone() for k, v in quantized.state_dict().items()}
    x = torch.randn(5, 32)
    expected = quantized(x)
    compare(model, quantized, x)
    assert model.training and not quantized.training
    for module in (*model.modules(), *quantized.modules()):
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert all(torch.equal(v, before[k]) for k, v in quantized.state_dict().items())
    assert [m for m in quantized.modules() if has_dynamic_type(m)] == fused
    assert torch.equal(quantized(x), expected)


def test_a_model_that_drops_out_in_training_is_compared_in_eval_mode() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.5), nn.Linear(64, 10)).train()
    found = compare(model, quantize_dynamic(model), torch.randn(5, 32))
    assert found.outputs[0].difference.sqnr_db > SOUND - 4


class Shared(nn.Module):
    """One layer called twice, one never; outputs by name, and the inputs written into."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.spare = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor, bias: float = 0.0) -> dict[str, Tensor]:
        x += bias
        h = self.twice(self.twice(x).relu_())
        return {"hidden": h, "label": h.argmax(-1)}


def test_calls_of_a_layer_count_as_one_and_layers_may_not_be_called() -> None:
    model = Shared()
    x = torch.randn(5, 16)
    kept = x.clone()
    found = compare(model, quantize_dynamic(model), x, bias=0.5)
    assert torch.equal(x, kept)
    layers = by_name(found)
    assert layers["twice"].alone.values == 2 * 5 * 16
    assert layers["twice"].alone.sqnr_db > SOUND
    assert layers["spare"].alone is None
    assert layers["spare"].notes == ("the float model does not call it on these inputs",)
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


# --- what is refused -----------------------------------------------------------------------------


def test_modules_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ModelError, match=r"no layer '0' \(3 of 3 .* do not belong together"):
        compare(mlp(), quantize_dynamic(nn.LSTM(16, 20)), torch.randn(5, 32))


def test_swapped_modules_are_refused() -> None:
    model = mlp()
    with pytest.raises(AlreadyQuantizedError, match="the float model comes first"):
        compare(quantize_dynamic(model), model, torch.randn(5, 32))


def test_a_model_without_quantized_layers_is_refused() -> None:
    with pytest.raises(ModelError, match=r"Sequential.* holds no quantized layers"):
        compare(mlp(), mlp(), torch.randn(5, 32))
    with pytest.raises(OptionError, match=r"quantized_module is a str, no torch\.nn\.Module"):
        compare(mlp(), "model.safetensors", torch.randn(5, 32))  # type: ignore[arg-type]


def test_inputs_that_do_not_fit_are_refused() -> None:
    model = mlp()
    with pytest.raises(InputDataError, match=r"the float model .Sequential. fails on these inputs"):
        compare(model, quantize_dynamic(model), torch.randn(5, 31))


def test_a_model_of_other_sizes_is_refused() -> None:
    other = nn.Sequential(*[nn.Linear(16, 16) if isinstance(m, nn.Linear) else m for m in mlp()])
    with pytest.raises(ModelError, match=r"the quantized model .Sequential. fails on these inputs"):
        compare(mlp(), quantize_dynamic(other), torch.randn(5, 32))


def test_an_error_without_a_text_is_named() -> None:
    class Odd(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            raise AttributeError

    with pytest.raises(InputDataError, match="on these inputs: AttributeError; give inputs that"):
        compare(Odd(*mlp()), quantize_dynamic(Odd(*mlp())), torch.randn(5, 32))


class Masked(nn.Module):
    """Tokens of which a mask hides some: y [b, t, 16] and pooled [b, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.pooler = nn.Linear(24, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        y = self.up(x)
        return {"y": y, "pooled": self.pooler(y[:, 0])}


class OfFeatures(Masked):
    """As a model of sentence-transformers, which takes a mapping."""

    def forward(self, features: dict[str, Tensor], x: None = None) -> dict[str, Tensor]:  # type: ignore[override]
        return super().forward(features["x"], features["attention_mask"])


def test_a_mapping_that_forward_takes_stays_one() -> None:
    model = OfFeatures().eval()
    batch = {"x": torch.randn(2, 8, 24), "attention_mask": torch.ones(2, 8)}
    assert len(compare(model, quantize_dynamic(model), batch).outputs) == 2
    with pytest.raises(InputDataError, match=r"TypeError: .*unexpected keyword argument 'z'"):
        compare(Masked(), quantize_dynamic(Masked().eval()), {**batch, "z": batch["x"]})


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_counts_for_nothing(left: bool) -> None:
    model, mask = Masked().eval(), torch.tensor([[1] * 8, [0] * 5 + [1] * 3])
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
