"""A second `quantize_dynamic` for the layers that the first left float."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.errors import AlreadyQuantizedError, ModelError
from octavo.torch import load, quantize_dynamic, report, save
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.qconfig import float_qparams_weight_only_qconfig, per_channel_dynamic_qconfig
from tests.models import net


def network() -> Any:
    def forward(m: Any, ids: Tensor) -> Any:
        x = m.body(m.table(ids))
        return m.head(m.attention(x, x, x, need_weights=False)[0])

    body = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh())
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    parts = {"body": body, "attention": attention, "head": nn.Linear(16, 4)}
    return net(forward, table=nn.Embedding(5000, 16), **parts)


IDS = torch.arange(12).reshape(2, 6)


def kinds(model: nn.Module) -> dict[str, str]:
    return {n: type(m).__name__ for n, m in model.named_modules() if isinstance(m, QuantizedModule)}


@pytest.mark.parametrize("inplace", [False, True])
def test_two_calls_are_one_call_for_both(inplace: bool, tmp_path: Any) -> None:
    float_model = network()
    one = {nn.MultiheadAttention: per_channel_dynamic_qconfig, "body": per_channel_dynamic_qconfig}
    other = {nn.Embedding: float_qparams_weight_only_qconfig}
    whole = quantize_dynamic(float_model, {**one, **other})
    first = quantize_dynamic(float_model, one)
    second = quantize_dynamic(first, other, inplace=inplace)
    assert (second is first) == inplace
    assert kinds(second) == kinds(whole)
    assert torch.equal(second(IDS), whole(IDS))
    told = {o.layer.name: (o.quantized, o.scheme, o.bytes_after) for o in report(second).layers}
    expected = {o.layer.name: (o.quantized, o.scheme, o.bytes_after) for o in report(whole).layers}
    assert told == expected
    assert list(told) == list(expected), "in the model's order"
    assert report(second).model_bytes_before == report(whole).model_bytes_before
    assert report(second).model_bytes_after == report(whole).model_bytes_after
    save(second, tmp_path / "model")
    again = load(tmp_path / "model", network)
    assert torch.equal(again(IDS), second(IDS))
    assert report(again).layers == report(second).layers


def test_by_default_what_is_float_is_quantized() -> None:
    model = network()
    first = quantize_dynamic(model, {"body.0"})
    second = quantize_dynamic(first)
    whole = quantize_dynamic(model)
    assert kinds(second) == kinds(whole)
    assert second.body[0] is not first.body[0]
    assert torch.equal(second.body[0].packed, first.body[0].packed)
    assert torch.equal(second(IDS), whole(IDS))
    assert kinds(first) == {"body.0": "QuantizedLinear"}, "the first is as it was"
    by_recipe = quantize_dynamic(first, recipe="int8")
    assert set(kinds(by_recipe)) >= set(kinds(whole))


def test_parts_that_were_quantized_are_reported_under_their_names() -> None:
    model = network()
    model.body = quantize_dynamic(model.body)
    second = quantize_dynamic(model)
    told = {o.layer.name: o.quantized for o in report(second).layers}
    assert told["body.0"] and told["body.2"] and told["head"]
    assert report(second).model_bytes_before == sum(p.nbytes for p in network().parameters())


def test_what_is_quantized_is_not_quantized_again() -> None:
    quantized = quantize_dynamic(network())
    with pytest.raises(AlreadyQuantizedError, match=r"body\.0 is a QuantizedLinear already.*float"):
        quantize_dynamic(quantized)
    with pytest.raises(AlreadyQuantizedError, match="head is a QuantizedLinear already"):
        quantize_dynamic(quantized, {"head", "table"}, dtype=torch.quint8)
    with pytest.raises(AlreadyQuantizedError, match="is a QuantizedLinear already"):
        quantize_dynamic(quantize_dynamic(nn.Linear(4, 4)))
    theirs = type("Linear", (nn.Module,), {})()
    type(theirs).__module__ = "torch.ao.nn.quantized.dynamic.modules.linear"
    with pytest.raises(AlreadyQuantizedError, match=r"1 was quantized by torch\.ao"):
        quantize_dynamic(nn.Sequential(nn.Linear(4, 4), theirs))
    with pytest.raises(ModelError, match="no report"):
        report(network())
