"""What runs a layer follows its buffers, whichever way they change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.errors import NotTrainableError
from octavo.torch import quantize_dynamic


def layers() -> tuple[nn.Module, nn.Module, Tensor]:
    torch.manual_seed(0)
    first, second = (quantize_dynamic(nn.Linear(16, 8)) for _ in range(2))
    return first, second, torch.randn(3, 16)


@torch.inference_mode()
def test_a_buffer_that_is_replaced_is_seen() -> None:
    layer, _, x = layers()
    before = layer(x)
    layer.bias = layer.bias + 100
    torch.testing.assert_close(layer(x), before + 100)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


@pytest.mark.parametrize("called", [False, True])
def test_functional_call_uses_the_state_it_is_given(called: bool) -> None:
    layer, other, x = layers()
    with torch.no_grad():
        if called:
            layer(x)
        borrowed = torch.func.functional_call(layer, dict(other.named_buffers()), (x,))
        assert torch.equal(borrowed, other(x))
        assert torch.equal(layer(x), copy.deepcopy(layer)(x))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_loaded_state_is_seen_by_all_who_share_it(compiled: bool, inference: bool) -> None:
    torch.manual_seed(0)
    with torch.inference_mode(inference):
        tied = nn.ModuleList([nn.Linear(16, 8), nn.Linear(16, 8)])
        tied[1].weight = tied[0].weight
        model, other = quantize_dynamic(tied), quantize_dynamic(nn.Linear(16, 8))
    assert model[0].packed is model[1].packed
    calls: Any = list(model)
    if compiled:
        calls = [torch.compile(m, backend="aot_eager", fullgraph=True) for m in model]
    x = torch.randn(3, 16)
    with torch.inference_mode():
        before = [call(x) for call in calls]
        state = {k: v for k, v in other.state_dict().items() if k != "bias"}
        model[0].load_state_dict(state, strict=False)
        for call, layer, old in zip(calls, model, before, strict=True):
            assert torch.equal(call(x), copy.deepcopy(layer)(x))
            assert not torch.equal(call(x), old)


def test_projections_of_attention_are_seen() -> None:
    torch.manual_seed(0)
    quantized = quantize_dynamic(nn.MultiheadAttention(16, 2))
    x = torch.randn(4, 2, 16)
    with torch.inference_mode():
        before = quantized(x, x, x)[0]
        quantized.v_proj.bias = quantized.v_proj.bias + 10
        assert (quantized(x, x, x)[0] - before).abs().max() > 1


def test_the_weight_can_be_read_and_not_replaced() -> None:
    layer, _, _ = layers()
    weight = layer.weight
    assert weight.numpy().shape == (8, 16) and len(weight.tolist()) == 8
    assert torch.equal(copy.deepcopy(weight), weight())
    with pytest.raises(AttributeError, match="cannot be set; change the float model"):
        layer.weight = nn.Parameter(torch.zeros(8, 16))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func's own
def test_functional_gradients_say_why_there_are_none() -> None:
    layer, _, x = layers()
    for ask in (
        lambda: torch.func.jvp(layer, (x,), (torch.ones_like(x),)),
        lambda: torch.func.grad(lambda v: layer(v).sum())(x),
    ):
        with pytest.raises(NotTrainableError, match="cannot be trained"):
            ask()
    import torch.autograd.forward_ad as forward_ad

    with forward_ad.dual_level(), pytest.raises(NotTrainableError, match="forward-mode"):
        layer(forward_ad.make_dual(x, torch.ones_like(x)))
    torch.testing.assert_close(layer(x), copy.deepcopy(layer)(x))
