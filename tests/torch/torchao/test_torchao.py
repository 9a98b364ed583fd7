"""`quantize_` and the configs of torchao, ours and its own."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.errors import AlreadyQuantizedError, NothingQuantizedError, OptionError
from octavo.torch import (
    Int8DynamicActivationInt4WeightConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerAxis,
    PerGroup,
    PerRow,
    PerTensor,
    quantize_,
)
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from octavo.torch.torchao.schemes import asked
from tests.models import assert_bits, net


def network() -> Any:
    def forward(m: Any, indices: Tensor) -> Any:
        x = m.down(m.norm(m.up(m.table(indices))))
        return m.attention(x, x, x)[0]

    torch.manual_seed(0)
    parts = {"table": nn.Embedding(200, 64), "up": nn.Linear(64, 96), "norm": nn.LayerNorm(96)}
    attention = nn.MultiheadAttention(64, 4, batch_first=True)
    return net(forward, **parts, down=nn.Linear(96, 64), attention=attention)


PLACES = torch.arange(12).reshape(2, 6)
ROWS = "activations per row"

INT4, INT8 = Int8DynamicActivationInt4WeightConfig, Int8DynamicActivationInt8WeightConfig
INTX = Int8DynamicActivationIntxWeightConfig
AFFINE = INTX(torch.int4, PerGroup(64), MappingType.ASYMMETRIC, torch.float16)
CONFIGS: dict[str, tuple[Any, str]] = {
    "int4": (INT4(), f"int4 per block of 32, affine, {ROWS}"),
    "int4, 128": (INT4(group_size=128), f"int4 per block of 128, affine, {ROWS}"),
    "int8": (INT8(), f"int8 per channel, {ROWS}"),
    "int8, 7 bits": (INT8(reduce_range=True), f"int8 per channel, 7 bits, {ROWS}"),
    "int8 per tensor": (INT8(granularity=[PerRow(), PerTensor()]), f"int8 per tensor, {ROWS}"),
    "intx": (INTX(), f"int8 per block of 32, {ROWS}"),
    "intx, 4 bits": (AFFINE, f"int4 per block of 64, affine, {ROWS}"),
    "intx per axis": (INTX(weight_granularity=PerAxis(0)), f"int8 per channel, {ROWS}"),
    "weights only": (
        IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
        "int4 per block of 32, activations per group of 32",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_linear_layers_become_what_a_config_says(case: str) -> None:
    config, scheme = CONFIGS[case]
    model = network()
    table, out = model.table, model.attention.out_proj
    assert quantize_(model, config) is None  # type: ignore[func-returns-value]
    assert type(model.up) is type(model.down) is QuantizedLinear
    assert model.table is table
    assert model.attention.out_proj is out
    assert not model.training
    report = octavo.torch.report(model)
    said = {o.layer.name: o.scheme for o in report.quantized}
    assert said == {"up": scheme, "down": scheme}
    assert report.recipe["name"] == type(config).__name__
    assert {o.reason for o in report.left_float} == {"filter_fn does not choose it"}
    if case == "int8":  # symmetric, as they ask
        (note,) = {n for o in report.layers for n in o.notes}
        assert "zero points" in note
    model(PLACES)


def test_a_filter_chooses_modules_by_type_and_name() -> None:
    model, asked_of = network(), []

    def choose(module: nn.Module, name: str) -> bool:
        asked_of.append(name)
        return isinstance(module, nn.Embedding) or name in ("down", "attention")

    quantize_(model, IntxWeightOnlyConfig(torch.int4, PerGroup(32)), choose)
    assert asked_of == ["", "table", "up", "norm", "down", "attention"]  # not what is in that
    quantized = [o.layer.name for o in octavo.torch.report(model).quantized]
    assert quantized == ["table", "down", "attention"]
    assert type(model.table) is QuantizedPackedEmbedding
    assert model.attention.q_proj.format == "int4-32"


def test_a_second_call_is_about_what_is_float() -> None:
    model = network()
    quantize_(model, INT4(), lambda m, name: name == "up")
    up = model.up
    quantize_(model, INT8())
    assert model.up is up
    assert model.down.format == "int8"
    assert len(octavo.torch.report(model).quantized) == 2
    with pytest.raises(AlreadyQuantizedError, match="no other layer"):
        quantize_(model, INT8())


def test_a_model_is_as_it_was_where_nothing_can_be_done() -> None:
    model = network()
    before = dict(model.named_modules())
    config = INT4()
    with pytest.raises(NothingQuantizedError, match="filter_fn does not choose it"):
        quantize_(model, config, lambda module, name: False)
    with pytest.raises(OptionError, match=r"chose norm \(LayerNorm\), without a weight"):
        quantize_(model, config, lambda module, name: isinstance(module, nn.LayerNorm))
    with pytest.raises(OptionError, match=r"chose the model \(Net\), without a weight"):
        quantize_(model, config, lambda module, name: name != "up")
    with pytest.raises(OptionError, match="model: is a Linear"):
        quantize_(nn.Linear(64, 64), config)
    with pytest.raises(OptionError, match="device: 'cuda'"):
        quantize_(model, config, device="cuda")
    with torch.no_grad():
        model.down.weight[0, 0] = float("inf")
    with pytest.raises(ValueError, match="down"):
        quantize_(model, config)
    assert dict(model.named_modules()) == before


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (INT4, {"group_size": 256}, "group_size: 256 .*32, 64"),
        (IntxWeightOnlyConfig, {"weight_dtype": torch.int3}, "weight_dtype: 'int3' .*int4, int8"),
        (INT8, {"weight_only_decode": True}, "decode: True"),
        (IntxWeightOnlyConfig, {"version": 1}, "version: 1 .*2 alone"),
        (IntxWeightOnlyConfig, {"weight_dtype": torch.int4}, "granularity: PerAxis.*PerGroup"),
        (INT8, {"granularity": PerGroup(32)}, "PerGroup.*PerRow"),
        (INTX, {"weight_scale_dtype": torch.bfloat16},
         "weight_scale_dtype: torch.bfloat16"),
        (IntxWeightOnlyConfig, {"intx_packing_format": "no"}, "intx_packing_format: 'no'"),
    ],
)  # fmt: skip
def test_a_field_that_octavo_has_not_is_named(kind: Any, given: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        kind(**given)


def test_what_is_no_config_is_named() -> None:
    with pytest.raises(OptionError, match=r"builtins\.str"):
        quantize_(network(), "int4")


class TheirMapping(Enum):
    SYMMETRIC = 1
    ASYMMETRIC = 2


class TheirFormat(str, Enum):
    UNPACKED_TO_INT8 = "unpacked_to_int8"


@dataclass(frozen=True)
class TheirPerGroup:
    group_size: int


TheirPerGroup.__name__ = "PerGroup"


def theirs(name: str, *fields: Any, home: str = "torchao.quantization.quant_api") -> Any:
    return make_dataclass(name, fields, namespace={"__module__": home})


def their_weight_only(**extra: Any) -> Any:
    others = [(key, Any, field(default=value)) for key, value in extra.items()]
    return theirs(
        "IntxWeightOnlyConfig",
        ("weight_dtype", Any, torch.int4),
        ("granularity", Any, TheirPerGroup(64)),
        ("mapping_type", Any, TheirMapping.ASYMMETRIC),
        ("scale_dtype", Any, None),
        ("intx_packing_format", Any, TheirFormat.UNPACKED_TO_INT8),
        ("version", int, 2),
        *others,
    )


def test_their_configs_mean_what_ours_do() -> None:
    ours = IntxWeightOnlyConfig(torch.int4, PerGroup(64), MappingType.ASYMMETRIC)
    assert asked(their_weight_only()()) == ours.asked()
    models = [network(), network()]
    for model, config in zip(models, (ours, their_weight_only()()), strict=True):
        quantize_(model, config)
    assert_bits(models[0](PLACES), models[1](PLACES))


def test_a_field_that_they_will_have_is_refused_but_by_its_default() -> None:
    made = their_weight_only(rounding="nearest")
    assert asked(made()) == asked(their_weight_only()())
    with pytest.raises(OptionError, match="rounding: 'stochastic'"):
        asked(made(rounding="stochastic"))


def test_configs_that_octavo_has_not_are_refused() -> None:
    with pytest.raises(OptionError, match=r"quant_api\.Float8WeightOnlyConfig"):
        quantize_(network(), theirs("Float8WeightOnlyConfig")())
    with pytest.raises(OptionError, match=r"mine\.IntxWeightOnlyConfig"):
        quantize_(network(), theirs("IntxWeightOnlyConfig", home="mine")())
