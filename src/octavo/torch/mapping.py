"""Which quantized layer takes the place of which float one."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from functools import cache
from inspect import getattr_static
from typing import Any

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils.parametrize import type_before_parametrizations

from octavo.errors import OptionError
from octavo.torch.modules._fused_experts import FusedExperts, is_fused_experts
from octavo.torch.modules.conv import QuantizedConv1d, QuantizedConv2d
from octavo.torch.modules.embedding import QuantizedEmbedding
from octavo.torch.modules.embedding_bag import QuantizedEmbeddingBag
from octavo.torch.modules.experts import QuantizedExperts
from octavo.torch.modules.gru import QuantizedGRU
from octavo.torch.modules.gru_cell import QuantizedGRUCell
from octavo.torch.modules.hf_conv1d import QuantizedTransformersConv1D
from octavo.torch.modules.linear import QuantizedLinear
from octavo.torch.modules.lstm import QuantizedLSTM
from octavo.torch.modules.lstm_cell import QuantizedLSTMCell
from octavo.torch.modules.multihead_attention import QuantizedMultiheadAttention
from octavo.torch.modules.rnn import QuantizedRNN
from octavo.torch.modules.rnn_cell import QuantizedRNNCell
from octavo.torch.stand_ins import type_behind

_CALL = ("__call__", "_wrapped_call_impl", "_call_impl", "_slow_forward", "forward")
"""What calling any module runs, in this order."""


def default_mapping() -> dict[type, type]:
    """Float layer types and what they become; a new dict, to extend and to pass as `mapping`."""
    found: dict[type, type] = {
        nn.Linear: QuantizedLinear,
        NonDynamicallyQuantizableLinear: QuantizedLinear,
        nn.LSTM: QuantizedLSTM,
        nn.GRU: QuantizedGRU,
        nn.RNN: QuantizedRNN,
        nn.LSTMCell: QuantizedLSTMCell,
        nn.GRUCell: QuantizedGRUCell,
        nn.RNNCell: QuantizedRNNCell,
        nn.MultiheadAttention: QuantizedMultiheadAttention,
        nn.Embedding: QuantizedEmbedding,
        nn.EmbeddingBag: QuantizedEmbeddingBag,
        nn.Conv1d: QuantizedConv1d,
        nn.Conv2d: QuantizedConv2d,
        FusedExperts: QuantizedExperts,
    }
    transformers = sys.modules.get("transformers.pytorch_utils")
    if transformers is not None:  # where it is not loaded, no model has its layers
        found[transformers.Conv1D] = QuantizedTransformersConv1D
    return found


def checked_mapping(given: Any) -> dict[type, type]:
    """A user's `mapping`, or the default one for None. Raises OptionError."""
    if given is None:
        return default_mapping()
    needs = "needs a dict from float module types to quantized ones, as default_mapping() returns"
    if not isinstance(given, Mapping):
        raise OptionError(f"mapping: {given!r} is a {type(given).__name__}; {needs}")
    for key, value in given.items():
        if not (isinstance(key, type) and issubclass(key, nn.Module)):
            raise OptionError(f"mapping: the key {key!r} is no module type; {needs}")
        if not isinstance(value, type):
            raise OptionError(
                f"mapping: the value for {key.__name__} is {value!r}; needs a type with a "
                "classmethod from_float(module)"
            )
    return dict(given)


def own_type(module: nn.Module) -> type:
    """The module's type, before torch.nn.utils.parametrize or Octavo gave it another."""
    return type_behind(type_before_parametrizations(module))


def mapped_type(module: nn.Module, mapping: Mapping[type, type]) -> type | None:
    """The key of `mapping` that `module` falls under: its type, or the nearest one it inherits.

    It counts only if the module computes as that type does: another forward may do anything with
    the weight.
    """
    base = inherited(module, mapping)
    return None if base is None or overrides(own_type(module), base, module.__dict__) else base


def inherited(module: nn.Module, types: Collection[Any]) -> type | None:
    """The module's type if it is among `types`, else the nearest that it inherits from.

    FusedExperts, where it is among them, is what every module of such experts inherits from.
    """
    found = next((t for t in own_type(module).__mro__ if t in types), None)
    if found is None and FusedExperts in types and is_fused_experts(module):
        return FusedExperts
    return found


def overrides(kind: type, base: type, own: Collection[str] = ()) -> tuple[str, ...]:
    """What modules of type `kind` compute otherwise than those of `base`: names of methods.

    They are those that a call of `base` runs, as far as its code names them: overridden by a
    subclass, or replaced on a module itself, which has the attributes `own`.
    """
    if base is FusedExperts:  # what such a module computes is tried
        return ("forward",) if "forward" in own else ()
    return tuple(
        name
        for name in _runs(base)
        if getattr_static(kind, name, None) is not getattr_static(base, name, None)
        or (name in own and name != "__call__")  # Python looks that one up on the type alone
    )


def not_alike(module: nn.Module, base: type) -> str:
    """The reason to leave `module` float, in whose place a quantized `base` cannot stand."""
    names = overrides(own_type(module), base, module.__dict__)
    whose, name = f"so {base.__name__}'s cannot stand for it", own_type(module).__name__
    patched = [  # as accelerate does with forward
        n for n in names if n in module.__dict__
    ]
    if patched:
        return (
            f"its {', '.join(patched)} was replaced on the module itself, {whose}; undo that "
            "before quantizing"
        )
    others = [n for n in names if n != "forward"]
    said = f" ({', '.join(names)})" if others else ""
    return f"{name} has a forward of its own{said}, {whose}; give it an entry in `mapping`"


@cache
def _runs(base: type) -> tuple[str, ...]:
    """Names of the methods that calling a module of this type runs."""
    names = list(_CALL)
    for name in names:  # grows while it is walked
        code = getattr(getattr(base, name, None), "__code__", None)
        if name in _CALL[:-1] or code is None:  # what nn.Module's own call runs is all in _CALL
            continue
        for used in code.co_names:
            ours = callable(getattr(base, used, None)) and not hasattr(nn.Module, used)
            if ours and used not in names:
                names.append(used)
    return tuple(names)
