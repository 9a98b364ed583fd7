"""QuantizedEmbedding: rows out of a table of integers or 16-bit floats."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.core.layer import SMALL_TABLE
from octavo.recipe import Scheme
from octavo.torch import quantize_dynamic, report
from octavo.torch.qconfig import float_qparams_weight_only_qconfig
from octavo.torch.qconfig.observed import observe_weight
from tests.models import assert_bits, relative
from tests.torch.behaviour import FLOATS
from tests.torch.layers.cases import choice_of, every, quantized
from tests.torch.tables import CHOICES, stated

ROWS, DIM = 50, 19


def float_layer(dtype: torch.dtype = torch.float32, **kwargs: Any) -> nn.Embedding:
    torch.manual_seed(0)
    return nn.Embedding(ROWS, DIM, dtype=dtype, **kwargs)


def indices(*shape: int, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return torch.randint(0, ROWS, shape)


@every(CHOICES)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_rows_are_what_the_buffers_say(choice: str, kind: torch.dtype) -> None:
    layer = quantized(float_layer(), choice)
    for shape in ((), (7,), (2, 1, 3, 2), (2, 0, 3)):
        i = indices(*shape)
        y = layer(i.to(kind))
        assert y.shape == (*shape, DIM)
        assert_bits(y, stated(layer)[i])
    with pytest.raises(IndexError):
        layer(torch.tensor([3, ROWS], dtype=kind))
    with pytest.raises(IndexError):
        layer(torch.tensor([3, -1], dtype=kind))


@every(CHOICES)
def test_rows_are_within_half_a_step_of_the_float_ones(choice: str) -> None:
    float_one = float_layer()
    layer, w = quantized(float_one, choice), float_one.weight.detach()
    if layer.scale is None:
        step = w.abs() * 2.0 ** (-7 if choice == "bfloat16" else -10)
    else:
        step = layer.scale[:, None]
    assert ((layer(torch.arange(ROWS)) - w).abs() <= 0.501 * step + 1e-7).all()


def test_float_zero_points_are_kept_to_the_bit() -> None:
    float_one = float_layer()
    layer = quantized(float_one, "float qparams")
    said = observe_weight(float_qparams_weight_only_qconfig, float_one.weight, "e")
    q = torch.from_numpy(said.q)
    scale, zero = torch.from_numpy(said.scale), torch.from_numpy(said.zero_point)
    assert zero.dtype == torch.float32
    assert (zero != zero.round()).any()
    assert torch.equal(layer.table, q)
    every_row = (q.float() - zero[:, None]) * scale[:, None]
    assert_bits(layer(torch.arange(ROWS)), every_row)


STORED = {
    "int8": (torch.int8, None),
    "int8 affine": (torch.int8, torch.int32),
    "uint8": (torch.uint8, torch.int32),
    "uint8 affine": (torch.uint8, torch.int32),
    "uint8 per tensor": (torch.uint8, torch.int32),
    "float qparams": (torch.uint8, torch.float32),
    "qconfig per tensor": (torch.int8, None),
    "float16": (torch.float16, None),
    "bfloat16": (torch.bfloat16, None),
}


@every(CHOICES)
def test_storages_and_outputs_are_what_was_asked_for(choice: str) -> None:
    for dtype in FLOATS:
        layer, i = quantized(float_layer(dtype), choice), indices(3, 4)
        zero = None if layer.zero_point is None else layer.zero_point.dtype
        assert (layer.table.dtype, zero) == STORED[choice]
        assert_bits(layer(i), stated(layer)[i].to(dtype))
        assert layer.weight.dtype == dtype
        assert_bits(layer.weight(), stated(layer).to(dtype))


@every(CHOICES)
def test_padding_rows_and_empty_tables(choice: str) -> None:
    layer = quantized(float_layer(padding_idx=-3), choice)
    assert layer.padding_idx == ROWS - 3
    assert layer(torch.tensor(ROWS - 3)).eq(0).all()
    empty = quantized(nn.Embedding(4, 0), choice)
    assert empty(torch.tensor([[1, 2]])).shape == (1, 2, 0)


@every(["uint8 affine", "float qparams", "float16"])
def test_the_error_names_position_and_index(choice: str) -> None:
    layer = quantized(float_layer(), choice)
    with pytest.raises(IndexError) as caught:
        layer(torch.tensor([3, 7 * ROWS]))
    assert {"indices", "1", f"{7 * ROWS}"} <= set(re.findall(r"\w+", str(caught.value)))
    with pytest.raises(TypeError, match="input: needs int32 or int64"):
        layer(torch.ones(3))


def test_values_beyond_float16() -> None:
    float_one = float_layer()
    with torch.no_grad():
        float_one.weight[3, 4] = 70000
    with pytest.raises(ValueError, match=r"emb: .*beyond float16, the first 70000.0 at \[3, 4\]"):
        quantized(float_one, "float16", name="emb")
    assert quantized(float_one, "bfloat16")(torch.tensor(3))[4] == 70144


@every(["uint8 affine", "float qparams"])
def test_a_half_model_compiles_in_grad_mode(choice: str) -> None:
    torch._dynamo.reset()
    embedding = quantized(float_layer(torch.bfloat16), choice)
    model = nn.Sequential(embedding, nn.Linear(DIM, 3, dtype=torch.bfloat16))
    y = torch.compile(model, fullgraph=True, backend="aot_eager")(indices(2, 3))
    assert_bits(y.detach(), model(indices(2, 3)).detach())
    y.sum().backward()  # the float layer behind the table trains
    assert model[1].weight.grad is not None


def told(*layers: nn.Module, spec: Any = None, **options: Any) -> list[Any]:
    """What the report says of each layer of a model of these."""
    return list(report(quantize_dynamic(nn.ModuleList(layers), spec, **options)).layers)


def test_quint8_takes_embeddings_alone() -> None:
    found = told(float_layer(), nn.EmbeddingBag(5, 4), nn.Linear(3, 3), dtype=torch.quint8)
    table = "uint8 per channel, affine, weights only"
    assert [o.scheme for o in found] == [table, table, "float"]
    assert found[0].bytes_after == ROWS * (DIM + 8)
    assert found[0].sqnr_db > 40


def test_tables_say_what_holds_them() -> None:
    (found,) = told(float_layer(), spec={nn.Embedding: Scheme()})
    assert (found.scheme, found.notes) == ("int8 per channel, weights only", ())
    (found,) = told(float_layer(), spec={nn.Embedding: float_qparams_weight_only_qconfig})
    assert found.scheme == "uint8 per channel, float zero points, weights only"
    (found,) = told(nn.Embedding(300, 16), recipe="int8-block")
    assert (found.scheme, found.notes) == ("int8 per block of 32, weights only", ())


def test_a_recipe_leaves_small_tables_float() -> None:
    few = SMALL_TABLE // 4 // DIM
    tables = nn.Embedding(few, DIM), nn.EmbeddingBag(few, DIM), nn.Embedding(few + 1, DIM)
    for recipe in ("int8", "int8-accurate"):
        *small, large = told(*tables, recipe=recipe)
        assert large.quantized
        assert [(o.quantized, "nothing to win" in o.reason) for o in small] == [(False, True)] * 2
    # Who names their types in qconfig_spec, or takes one scale for a table, gets them.
    assert all(o.quantized for o in told(*tables, spec={nn.Embedding, nn.EmbeddingBag}))
    assert all(o.quantized for o in told(*tables, recipe="int8-per-tensor"))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_max_norm_stays_float_with_a_reason(kind: Any) -> None:
    (found,) = told(kind(ROWS, DIM, max_norm=2.0), spec={kind: Scheme()}, allow_nothing=True)
    assert not found.quantized
    assert "max_norm=2.0" in found.reason


@every(["int8", "float16"])
def test_two_layers_of_one_weight_share_one_table(choice: str) -> None:
    first, second = float_layer(), float_layer()
    second.weight = first.weight
    scheme: Any = choice_of(choice)
    model = quantize_dynamic(nn.ModuleList([first, second]), {nn.Embedding: scheme.scheme})
    assert model[0].table.data_ptr() == model[1].table.data_ptr()
    one, other = report(model).layers
    assert one.sqnr_db is not None
    assert one.sqnr_db == other.sqnr_db
    assert other.bytes_after == 0


def test_a_table_tied_to_a_head() -> None:
    table, head = float_layer(), nn.Linear(DIM, ROWS, bias=False)
    head.weight = table.weight
    model = nn.Sequential(table, head)
    made = quantize_dynamic(model, {nn.Embedding: Scheme(), nn.Linear: Scheme()})
    assert relative(made(indices(4)), model(indices(4))) <= 0.02
