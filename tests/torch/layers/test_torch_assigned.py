"""Weights of recurrent layers that a parent assigns, as weight dropout does in each call."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from octavo.torch import load, quantize_dynamic, report, save

I, H = 6, 20  # noqa: E741
LAYERS = pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {}),
        (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (nn.LSTM, {"proj_size": 5}),
        (nn.GRU, {"bidirectional": True}),
        (nn.RNN, {"num_layers": 2}),
        (nn.LSTMCell, {}),
        (nn.GRUCell, {}),
        (nn.RNNCell, {}),
    ],
    ids=lambda x: x.__name__ if isinstance(x, type) else ",".join(x) or "plain",
)


def inputs(kind: Any) -> Tensor:
    return torch.randn(3, I) if issubclass(kind, nn.RNNCellBase) else torch.randn(4, 3, I)


@LAYERS
@pytest.mark.parametrize(
    ("dtype", "wrap"), [("int8", nn.Parameter), ("float16", torch.clone), ("int8", torch.clone)]
)
def test_every_weight_and_bias_can_be_assigned(
    kind: Any, options: dict[str, Any], dtype: str, wrap: Any
) -> None:
    other, x = kind(I, H, **options), inputs(kind)
    layer = quantize_dynamic(kind(I, H, **options), dtype=dtype)
    expected = quantize_dynamic(other, dtype=dtype)
    with torch.no_grad():
        layer(x)
        for name, value in other.named_parameters():
            setattr(layer, name, wrap(value.detach()))
        for y, wanted in zip(tree_leaves(layer(x)), tree_leaves(expected(x)), strict=True):
            assert torch.equal(y, wanted)
    assert list(layer.state_dict()) == list(expected.state_dict())
    assert not list(layer.parameters())


def test_what_does_not_fit_is_refused_by_name() -> None:
    layer = quantize_dynamic(nn.Sequential(nn.LSTM(I, H, bias=False)))[0]
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    with pytest.raises(ValueError, match=r"weight_hh_l0: needs shape \[80, 20\], not \[80, 6\]"):
        layer.weight_hh_l0 = torch.zeros(4 * H, I)
    with pytest.raises(AttributeError, match="has no bias_hh_l0"):
        layer.bias_hh_l0 = torch.zeros(4 * H)
    with pytest.raises(AttributeError, match="has no weight_hr_l0"):
        layer.weight_hr_l0 = torch.zeros(5, H)
    with pytest.raises(ValueError, match=r"weight_hh_l0.*NaN"):
        layer.weight_hh_l0 = torch.full((4 * H, H), torch.nan)
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())


class WeightDropout(nn.Module):
    """AWD-LSTM's: the raw weight is the parent's, and is dropped and assigned in each call."""

    def __init__(self, module: nn.Module, p: float) -> None:
        super().__init__()
        self.module, self.p = module, p
        raw = module.weight_hh_l0
        del module._parameters["weight_hh_l0"]
        self.weight_hh_l0_raw = nn.Parameter(raw.data)
        self._assign()

    def _assign(self) -> None:
        raw = self.weight_hh_l0_raw
        dropped = functional.dropout(raw, self.p) if self.training else raw.clone()
        self.module.weight_hh_l0 = dropped

    def forward(self, x: Tensor) -> Any:
        self._assign()
        return self.module(x)[0]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_weight_dropout_around_a_layer(kind: Any, tmp_path: Any) -> None:
    x = torch.randn(4, 3, I)
    model = WeightDropout(kind(I, H), 0.5).eval()
    quantized = quantize_dynamic(model)
    (inner,) = (o for o in report(quantized).layers if o.layer.name == "module")
    assert inner.quantized
    assert len(inner.layer.weights) == 2, "the assigned weight counts"
    with torch.no_grad():
        y = quantized(x)
        assert torch.allclose(y, model(x), atol=0.02)
        quantized.weight_hh_l0_raw += 0.3
        model.weight_hh_l0_raw += 0.3
        changed = quantized(x)
        assert torch.allclose(changed, model(x), atol=0.02)
        assert not torch.allclose(changed, y, atol=0.02)
        compiled = torch.compile(quantized, backend="aot_eager")
        assert torch.equal(compiled(x), changed)
        save(quantized, tmp_path / "model")
        again = load(tmp_path / "model", lambda: WeightDropout(kind(I, H), 0.5))
        assert torch.equal(again(x), changed)
        quantized.train()
        assert not torch.equal(quantized(x), quantized(x)), "other weights are dropped each time"


def test_a_layer_that_holds_the_raw_weight_itself_stays_float() -> None:
    class Inside(WeightDropout):
        def __init__(self, module: nn.Module) -> None:
            super().__init__(module, 0.5)
            module.weight_hh_l0_raw = self.weight_hh_l0_raw
            del self.weight_hh_l0_raw

        def _assign(self) -> None:
            held = self._parameters.get("weight_hh_l0_raw", None)
            raw = self.module.weight_hh_l0_raw if held is None else held
            self.module.weight_hh_l0 = raw * 2

    model = nn.Sequential(Inside(nn.LSTM(I, H)), nn.Linear(H, 3)).eval()
    quantized, x = quantize_dynamic(model), torch.randn(4, 3, I)
    outcome = next(o for o in report(quantized).layers if o.layer.name == "0.module")
    assert "weight_hh_l0_raw" in outcome.reason
    with torch.no_grad():
        assert torch.equal(quantized[0](x), model[0](x))
