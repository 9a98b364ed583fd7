"""`octavo.torch.compare`: the ranges of what each float layer multiplies, and outliers in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import octavo
from octavo.results.comparison import OUTLIERS, Comparison, LayerDifference, Range
from octavo.torch import compare, quantize_dynamic
from tests.models import net

SPIKE = 1e4


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def same(found: Range | None, *tensors: Tensor) -> bool:
    """Whether it is the range of these numbers, by hand in float64."""
    whole = torch.cat([t.detach().double().flatten() for t in tensors]).numpy()
    rms = float(np.sqrt((whole**2).mean()))
    assert found is not None
    assert (found.low, found.high) == (whole.min(), whole.max())
    assert found.rms == pytest.approx(rms, rel=1e-12)
    assert found.values == whole.size
    assert found.outliers == (np.abs(whole) > OUTLIERS * rms).sum()
    return True


def by_name(found: Comparison) -> dict[str, LayerDifference]:
    return {layer.name: layer for layer in found.layers}


def ranges(model: nn.Module, *inputs: object) -> dict[str, LayerDifference]:
    return by_name(compare(model, quantize_dynamic(model), *inputs))


def test_planted_outliers_are_found_where_they_are() -> None:
    """One huge activation before the second layer, whose activation it has taken in; one weight."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 64))
    x = torch.randn(64, 64)
    x[:, 0] = 0
    x[3, 0] = 1
    with torch.no_grad():
        model[0].weight[:, 0] = 0
        model[0].weight[7, 0] = SPIKE
        model[3].weight[5, 6] = -SPIKE
    layers = ranges(model, x)
    given = {"0": x, "2": model[:2](x), "3": model[:3](x)}
    for name, expected in given.items():
        assert same(layers[name].inputs, expected)
        assert same(layers[name].weights, model[int(name)].weight)
    assert [layers[n].inputs.stretched for n in given] == [False, True, False]
    assert [layers[n].weights.stretched for n in given] == [True, False, True]
    assert layers["2"].inputs.outliers == layers["3"].weights.outliers == 1


def test_a_stack_is_seen_layer_by_layer() -> None:
    model = nn.LSTM(16, 20, num_layers=2, bidirectional=True)
    x = torch.randn(7, 2, 16)
    first = nn.LSTM(16, 20, bidirectional=True)
    first.load_state_dict({k: v for k, v in model.state_dict().items() if "_l0" in k})
    layers = ranges(model, x)
    assert same(layers["l0"].inputs, x)
    with torch.inference_mode():
        assert same(layers["l1"].inputs, first(x)[0])
    for name in ("l0", "l1"):
        held = [w for k, w in model.named_parameters() if "weight" in k and f"_{name}" in k]
        assert len(held) == 4
        assert same(layers[name].weights, *held)


def test_packed_sequences_and_keywords() -> None:
    x = torch.randn(7, 2, 16)
    packed = pack_padded_sequence(x, [7, 4])
    layer, above = ranges(nn.GRU(16, 20, num_layers=2), packed).values()
    assert same(layer.inputs, packed.data)
    assert above.alone.values == 11 * 20 + 2 * 20  # outputs and last states
    assert above.alone.sqnr_db > 38
    cell = nn.LSTMCell(16, 20)
    (layer,) = compare(cell, quantize_dynamic(cell), input=x[0]).layers
    assert same(layer.inputs, x[0])


def test_attention_is_seen_in_two_parts() -> None:
    model = nn.MultiheadAttention(32, 4, kdim=24, vdim=16)
    query, key, value = torch.randn(7, 2, 32), torch.randn(5, 2, 24), torch.randn(5, 2, 16)
    key[1, 1, 1] = SPIKE
    layers = ranges(model, query, key, value)
    assert same(layers["(model)"].inputs, key)
    held = (model.q_proj_weight, model.k_proj_weight, model.v_proj_weight)
    assert same(layers["(model)"].weights, *held)
    assert same(layers["out_proj"].weights, model.out_proj.weight)
    inner = layers["out_proj"].inputs
    assert inner is not None and inner.values == 7 * 2 * 32
    one = nn.MultiheadAttention(32, 4)
    assert same(ranges(one, query, query, query)["(model)"].inputs, query)


def test_lookups_have_no_activations_and_calls_count_as_one() -> None:
    """A layer that is called twice, and another never."""
    parts = {"table": nn.Embedding(50, 16), "twice": nn.Linear(16, 16), "spare": nn.Linear(4, 4)}
    model: Any = net(lambda m, i: m.twice(m.twice(m.table(i))), **parts)
    i = torch.arange(10)
    asked = {kind: octavo.Scheme() for kind in (nn.Embedding, nn.Linear)}
    layers = by_name(compare(model, quantize_dynamic(model, asked), i))
    assert layers["table"].inputs is None
    assert same(layers["table"].weights, model.table.weight)
    x = model.table(i)
    assert same(layers["twice"].inputs, x, model.twice(x))
    assert layers["spare"].inputs is None
    assert same(layers["spare"].weights, model.spare.weight)


def test_weights_that_are_computed_and_other_types() -> None:
    normed = nn.Sequential(parametrizations.weight_norm(nn.Linear(16, 16)))
    assert same(ranges(normed, torch.randn(3, 16))["0"].weights, normed[0].weight)
    half = nn.Sequential(nn.Linear(16, 16)).to(torch.bfloat16)
    x = torch.randn(3, 16, dtype=torch.bfloat16)
    (layer,) = ranges(half, x).values()
    assert same(layer.inputs, x)
    assert same(layer.weights, half[0].weight)
