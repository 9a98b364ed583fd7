"""Configs with the names and fields of torchao's, which need not be installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch

from octavo.torch.torchao.schemes import Asked, asked


class MappingType(Enum):
    """Whether integers have a zero point (ASYMMETRIC)."""

    SYMMETRIC = auto()
    SYMMETRIC_NO_CLIPPING_ERR = auto()
    ASYMMETRIC = auto()


@dataclass(frozen=True)
class PerTensor:
    """One scale for all."""


@dataclass(frozen=True)
class PerRow:
    """A scale for each output of a weight, and each row of inputs."""

    dim: int = -1


@dataclass(frozen=True)
class PerAxis:
    """A scale for each index of an axis of a weight."""

    axis: int


@dataclass(frozen=True)
class PerGroup:
    """A scale for each `group_size` inputs of an output."""

    group_size: int


class _Config:
    """What all have: a config that Octavo cannot keep to raises OptionError when it is made."""

    def __post_init__(self) -> None:
        self.asked()

    def asked(self) -> Asked:
        """Return the scheme that the config stands for."""
        return asked(self)


@dataclass
class Int8DynamicActivationInt4WeightConfig(_Config):
    """4-bit weights with zero points in groups of `group_size` inputs, activations per row.

    `group_size` is 32, 64 or 128. Rows of inputs have zero points whatever `act_mapping_type` is;
    there is no inductor to configure. Raises OptionError, which names the field.
    """

    group_size: int = 32
    act_mapping_type: MappingType = MappingType.ASYMMETRIC
    set_inductor_config: bool = True


@dataclass
class Int8DynamicActivationInt8WeightConfig(_Config):
    """8-bit weights with a scale for each output, activations per row.

    `granularity` is that of both, or a list of two: of activations, and of weights. Raises
    OptionError, which names the field.
    """

    act_mapping_type: MappingType = MappingType.SYMMETRIC
    weight_only_decode: bool = False
    granularity: Any = field(default_factory=PerRow)
    set_inductor_config: bool = True
    version: int = 2
    reduce_range: bool = False


@dataclass
class Int8DynamicActivationIntxWeightConfig(_Config):
    """Weights of `weight_dtype`, torch.int4 or torch.int8, in groups; activations per row.

    `weight_granularity` is PerGroup of 32, 64 or 128, or for torch.int8 PerAxis(0). Raises
    OptionError, which names the field.
    """

    weight_dtype: torch.dtype = torch.int8
    weight_granularity: Any = field(default_factory=lambda: PerGroup(32))
    weight_mapping_type: MappingType = MappingType.SYMMETRIC
    weight_scale_dtype: torch.dtype | None = None
    act_mapping_type: MappingType = MappingType.ASYMMETRIC
    intx_packing_format: str = "unpacked_to_int8"
    intx_choose_qparams_algorithm: str = "affine"
    version: int = 2


@dataclass
class IntxWeightOnlyConfig(_Config):
    """Weights of torch.int4 or torch.int8, as Int8DynamicActivationIntxWeightConfig has them.

    For embeddings. Linear layers of Octavo quantize their inputs too, per row or group: the report
    says so. Raises OptionError, which names the field.
    """

    weight_dtype: torch.dtype = torch.int8
    granularity: Any = field(default_factory=lambda: PerAxis(0))
    mapping_type: MappingType = MappingType.SYMMETRIC
    scale_dtype: torch.dtype | None = None
    intx_packing_format: str = "unpacked_to_int8"
    intx_choose_qparams_algorithm: str = "affine"
    version: int = 2
