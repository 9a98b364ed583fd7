"""Weights in groups as layers: what checkpoints store becomes packed buffers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.kernels import GroupedWeight, WeightFormat
from octavo.core.qparams import QType
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from octavo.torch.memory import tensor_of


def holds_groups(module: nn.Module) -> bool:
    """Tell whether `module` has a form with weights in groups here."""
    return type(module) in (nn.Linear, nn.Embedding) or table_factor(module) is not None


def table_factor(module: nn.Module) -> float | None:
    """Return the factor by which a table of Gemma multiplies its rows; None for other modules.

    A quantized table has the factor in its scales, so that it is a plain table.
    """
    factor = getattr(module, "scalar_embed_scale", None)
    return factor if isinstance(module, nn.Embedding) else None


def buffers_of(weight: GroupedWeight) -> dict[str, Tensor | None]:
    """Return a layer's buffers for `weight`; inputs of a row have a scale for each group."""
    return {
        "packed": tensor_of(weight.pack()),
        "scale": tensor_of(weight.channel_scale),
        "zero_point": None,
    }


def empty_layer(module: Any, weight_format: WeightFormat, dtype: torch.dtype) -> QuantizedModule:
    """Build the layer, on device meta, that replaces the float `module`; tables give `dtype`."""
    with torch.device("meta"):
        if type(module) is nn.Linear:
            return QuantizedLinear(
                module.in_features,
                module.out_features,
                module.bias is not None,
                group=weight_format.group,
                format=weight_format.value,
            )
        return QuantizedPackedEmbedding(
            module.num_embeddings,
            module.embedding_dim,
            module.padding_idx,
            format=weight_format.value,
            dtype=str(dtype).removeprefix("torch."),
        )


def scheme_of(weight_format: WeightFormat, *, group: int | None = None) -> Scheme:
    """Return how a layer is held, in the words of recipes.

    Inputs have a scale for each `group`, or for each row where `group` is 0; the inputs of a table
    have none, and `group` is None.
    """
    weight = WeightScheme(
        QType.INT4 if weight_format.bits == 4 else QType.INT8,
        Granularity.BLOCK,
        symmetric=not weight_format.affine,
        observer="search",
        block=weight_format.group,
    )
    if group is None:
        return Scheme(weight, None)
    if not group:
        return Scheme(weight, ActivationScheme())
    return Scheme(weight, ActivationScheme(granularity=Granularity.GROUP, group=group))
