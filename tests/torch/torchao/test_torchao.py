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
from tests.torch.behaviour import assert_bits


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(200, 64)
        self.up, self.norm, self.down = nn.Linear(64, 96), nn.LayerNorm(96), nn.Linear(96, 64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, indices: Tensor) -> Tensor:
        x = self.down(self.norm(self.up(self.table(indices))))
        return self.attention(x, x, x)[0]


PLACES = torch.arange(12).reshape(2, 6)
ROWS = "activations per row"

CONFIGS: dict[str, tuple[Any, str]] = {
    "int4": (Int8DynamicActivationInt4WeightConfig(), f"int4 per block of 32, affine, {ROWS}"),
    "int4, 128": (
        Int8DynamicActivationInt4WeightConfig(group_size=128),
        f"int4 per block of 128, affine, {ROWS}",
    ),
    "int8": (Int8DynamicActivationInt8WeightConfig(), f"int8 per channel, {ROWS}"),
    "int8, 7 bits": (
        Int8DynamicActivationInt8WeightConfig(reduce_range=True),
        f"int8 per channel, 7 bits, {ROWS}",
    ),
    "int8 per tensor": (
        Int8DynamicActivationInt8WeightConfig(granularity=[PerRow(), PerTensor()]),
        f"int8 per tensor, {ROWS}",
    ),
    "intx": (Int8DynamicActivationIntxWeightConfig(), f"int8 per block of 32, {ROWS}"),
    "intx, 4 bits": (
        Int8DynamicActivationIntxWeightConfig(
            torch.int4, PerGroup(64), MappingType.ASYMMETRIC, torch.float16
        ),
        f"int4 per block of 64, affine, {ROWS}",
    ),
    "intx per axis": (
        Int8DynamicActivationIntxWeightConfig(weight_granularity=PerAxis(0)),
        f"int8 per channel, {ROWS}",
    ),
    "weights only": (
        IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
        "int4 per block of 32, activations per group of 32",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_linear_layers_become_what_a_config_says(case: str) -> None:
    config, scheme = CONFIGS[case]
    model = Model()
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
    model(PLACES)


def test_a_filter_chooses_modules_by_type_and_name() -> None:
    model, asked_of = Model(), []

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
    model = Model()
    quantize_(model, Int8DynamicActivationInt4WeightConfig(), lambda m, name: name == "up")
    up = model.up
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    assert model.up is up
    assert model.down.format == "int8"
    assert len(octavo.torch.report(model).quantized) == 2
    with pytest.raises(AlreadyQuantizedError, match="no other layer would be quantized"):
        quantize_(model, Int8DynamicActivationInt8WeightConfig())


def test_a_model_is_as_it_was_where_nothing_can_be_done() -> None:
    model = Model()
    before = dict(model.named_modules())
    config = Int8DynamicActivationInt4WeightConfig()
    with pytest.raises(NothingQuantizedError, match="filter_fn does not choose it"):
        quantize_(model, config, lambda module, name: False)
    with pytest.raises(OptionError, match=r"chose norm \(LayerNorm\), without a weight"):
        quantize_(model, config, lambda module, name: isinstance(module, nn.LayerNorm))
    with pytest.raises(OptionError, match=r"chose the model \(Model\), without a weight"):
        quantize_(model, config, lambda module, name: name != "up")
    with pytest.raises(OptionError, match="model: is a Linear that is a layer itself"):
        quantize_(nn.Linear(64, 64), config)
    with pytest.raises(OptionError, match="device: 'cuda'; quantized layers run on the CPU"):
        quantize_(model, config, device="cuda")
    with torch.no_grad():
        model.down.weight[0, 0] = float("inf")
    with pytest.raises(ValueError, match="down"):
        quantize_(model, config)
    assert dict(model.named_modules()) == before


def test_symmetric_activations_are_noted() -> None:
    model = Model()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    (note,) = {n for o in octavo.torch.report(model).layers for n in o.notes}
    assert note == "activations have zero points too"


REFUSED: dict[str, Any] = {
    "group_size: 256 .*groups of 32, 64, 128": lambda: Int8DynamicActivationInt4WeightConfig(256),
    "weight_dtype: 'int3' .*int4, int8": lambda: IntxWeightOnlyConfig(torch.int3),
    "weight_only_decode: True .*False alone": lambda: Int8DynamicActivationInt8WeightConfig(
        weight_only_decode=True
    ),
    "version: 1 .*2 alone": lambda: IntxWeightOnlyConfig(version=1),
    r"granularity: PerAxis\(axis=0\) .*torch.int4 PerGroup\(32\)": lambda: IntxWeightOnlyConfig(
        torch.int4
    ),
    r"granularity: PerGroup\(group_size=32\) .*PerRow": lambda: (
        Int8DynamicActivationInt8WeightConfig(granularity=PerGroup(32))
    ),
    "weight_scale_dtype: torch.bfloat16 .*float16": lambda: Int8DynamicActivationIntxWeightConfig(
        weight_scale_dtype=torch.bfloat16
    ),
    "intx_packing_format: 'no' .*unpacked_to_int8": lambda: IntxWeightOnlyConfig(
        intx_packing_format="no"
    ),
}


@pytest.mark.parametrize("match", REFUSED)
def test_a_field_that_octavo_has_not_is_named(match: str) -> None:
    with pytest.raises(OptionError, match=match):
        REFUSED[match]()


def test_what_is_no_config_is_named() -> None:
    with pytest.raises(OptionError, match=r"builtins\.str is none that Octavo knows: use Int8Dyn"):
        quantize_(Model(), "int4")


# --- torchao's own, which are known by their names: it is not installed here ---


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
    models = [Model(), Model()]
    for model, config in zip(models, (ours, their_weight_only()()), strict=True):
        quantize_(model, config)
    assert_bits(models[0](PLACES), models[1](PLACES))


def test_a_field_that_they_will_have_is_refused_but_by_its_default() -> None:
    made = their_weight_only(rounding="nearest")
    assert asked(made()) == asked(their_weight_only()())
    with pytest.raises(
        OptionError, match=r"IntxWeightOnlyConfig.rounding: 'stochastic' .*'nearest' alone"
    ):
        asked(made(rounding="stochastic"))


def test_configs_that_octavo_has_not_are_refused() -> None:
    with pytest.raises(OptionError, match=r"quant_api\.Float8WeightOnlyConfig is none that Octavo"):
        quantize_(Model(), theirs("Float8WeightOnlyConfig")())
    with pytest.raises(OptionError, match=r"mine\.IntxWeightOnlyConfig is none that Octavo"):
        quantize_(Model(), theirs("IntxWeightOnlyConfig", home="mine")())
