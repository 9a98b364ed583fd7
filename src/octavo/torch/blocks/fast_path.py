"""Transformer layers of torch.nn that hold quantized layers, kept off their fused float paths."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from octavo.torch.layers.base import QuantizedModule

ENCODERS = (nn.TransformerEncoderLayer, nn.TransformerEncoder)


def leave_fast_paths(model: nn.Module, replaced: Collection[nn.Module] = ()) -> list[str]:
    """Make encoders in `model` call their layers, where some are quantized or in `replaced`.

    nn.TransformerEncoderLayer's fused path reads the weights of the layers in it, and
    nn.TransformerEncoder turns a padded batch into a nested tensor which only that path can take.
    Returns what a user may notice, in words.
    """
    ids = {id(module) for module in replaced}
    notes = []
    for name, module in model.named_modules():
        if not isinstance(module, ENCODERS):
            continue
        if not any(isinstance(m, QuantizedModule) or id(m) in ids for m in module.modules()):
            continue
        if leave_fast_path(module):
            notes.append(
                f"{name or 'the model'}: outputs at positions that src_key_padding_mask hides are "
                "not zeros, as in training mode and unlike the float encoder's fast path"
            )
    return notes


def leave_fast_path(module: nn.Module) -> bool:
    """Make an encoder or its layer call its parts; tell if outputs at hidden positions change."""
    if isinstance(module, nn.TransformerEncoderLayer):
        module.activation_relu_or_gelu = 0  # neither relu (1) nor gelu (2): no such path
        return False
    nested = bool(module.use_nested_tensor)
    module.use_nested_tensor = False
    return nested
