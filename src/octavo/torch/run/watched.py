"""How the layers in one pair of modules are fed the same, and what they return.

A pair is mostly one layer. A stack of RNN layers is run layer by layer, and attention in two parts:
what its projections make of query, key and value, and the output layer.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from octavo.torch.layers.recurrent import QuantizedRecurrent
from octavo.torch.run.calls import named_tensors

Array = npt.NDArray[Any]
Args = tuple[Any, ...]
Keywords = Mapping[str, Any]
Returned = list[Array]


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer of the float module: what it was given, and what it returned.

    `given` are the tensors that it multiplies, by names; `other` is what the quantized layer
    returned when it was fed the same.
    """

    given: Mapping[str, Array]
    reference: Returned
    other: Returned


class Watched(ABC):
    """One pair of modules."""

    @abstractmethod
    def alone(self, args: Args, keywords: Keywords, output: Any) -> list[LayerCall]:
        """Return one call of each layer.

        `args` and `keywords` are those of a call of the float module, `output` what it returned.
        """

    @abstractmethod
    def outputs_in_model(self, args: Args, keywords: Keywords, output: Any) -> list[Returned]:
        """Return what each layer of the quantized module returned in a call of that module."""


class WatchedLayer(Watched):
    """One layer."""

    def __init__(self, quantized: nn.Module) -> None:
        self._quantized = quantized

    def alone(self, args: Args, keywords: Keywords, output: Any) -> list[LayerCall]:
        x = next(iter((*args, *keywords.values())), None)
        return [
            LayerCall(float_arrays(x), arrays(output), arrays(self._quantized(*args, **keywords)))
        ]

    def outputs_in_model(self, args: Args, keywords: Keywords, output: Any) -> list[Returned]:
        return [arrays(output)]


class WatchedAttention(Watched):
    """The projections with the attention between them, then `out_proj`.

    The first part's outputs are what the module returns where its output layer does nothing.
    """

    def __init__(self, floating: nn.MultiheadAttention, quantized: nn.Module) -> None:
        self._floating = _with_output(floating, _unit(floating))
        self._quantized = _with_output(quantized, nn.Identity())
        self._out_proj: Any = quantized.out_proj

    def alone(self, args: Args, keywords: Keywords, output: Any) -> list[LayerCall]:
        found = self._floating(*args, **keywords)
        projected = float_arrays(_projected(*args, **keywords))
        inner = LayerCall(projected, arrays(found), arrays(self._quantized(*args, **keywords)))
        last = LayerCall(
            float_arrays(found[0]), arrays(output[0]), arrays(self._out_proj(found[0]))
        )
        return [inner, last]

    def outputs_in_model(self, args: Args, keywords: Keywords, output: Any) -> list[Returned]:
        return [arrays(self._quantized(*args, **keywords)), arrays(output[0])]


def _projected(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> dict[str, Any]:
    """Return what the projections take, each tensor once: mostly all three are one."""
    found: dict[str, Any] = {}
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not any(x is other for other in found.values()):
            found[name] = x
    return found


def _unit(floating: nn.MultiheadAttention) -> nn.Module:
    """Build an output layer that changes nothing, for code that reads the layer's weight."""
    weight = floating.out_proj.weight
    made = nn.Linear(1, 1, bias=False, device="meta")
    made.weight = nn.Parameter(torch.eye(floating.embed_dim, dtype=weight.dtype), False)
    return made


def _with_output(module: nn.Module, out_proj: nn.Module) -> nn.Module:
    """Copy the module shallowly, without hooks and with another output layer."""
    made = copy.copy(module)
    made._modules = {**module._modules, "out_proj": out_proj}
    made._forward_hooks = type(module._forward_hooks)()
    return made


class WatchedStack(Watched):
    """RNN layers in a row, each as a module of one layer over the same weights."""

    def __init__(self, floating: nn.RNNBase, quantized: QuantizedRecurrent) -> None:
        self._floating = [_float_layer(floating, i) for i in range(floating.num_layers)]
        self._quantized = [quantized_layer(quantized, i) for i in range(quantized.num_layers)]

    def alone(self, args: Args, keywords: Keywords, output: Any) -> list[LayerCall]:
        x, states = _called(*args, **keywords)
        found = []
        for i, layer in enumerate(self._floating):
            state = _of_layer(states, i, len(self._floating))
            result = layer(x, state)
            other = self._quantized[i](x, state)
            found.append(LayerCall(float_arrays(x), arrays(result), arrays(other)))
            x = result[0]
        return found

    def outputs_in_model(self, args: Args, keywords: Keywords, output: Any) -> list[Returned]:
        x, states = _called(*args, **keywords)
        found = []
        for i, layer in enumerate(self._quantized):
            result = layer(x, _of_layer(states, i, len(self._quantized)))
            found.append(arrays(result))
            x = result[0]
        return found


def _called(input: Any, hx: Any = None) -> tuple[Any, Any]:  # noqa: A002 - torch's name
    return input, hx


def _of_layer(states: Any, index: int, layers: int) -> Any:
    """Return the part of (h0, c0), or of h0, that is one layer's; None for None."""
    if states is None:
        return None
    if isinstance(states, tuple):
        return tuple(_of_layer(state, index, layers) for state in states)
    return states.chunk(layers)[index]


def _float_layer(stack: nn.RNNBase, index: int) -> nn.Module:
    kind: Any = type(stack)
    options = {"nonlinearity": stack.nonlinearity} if isinstance(stack, nn.RNN) else {}
    if stack.proj_size:
        options["proj_size"] = stack.proj_size
    with torch.device("meta"):
        made: nn.Module = kind(
            _inputs(stack, index),
            stack.hidden_size,
            bias=stack.bias,
            batch_first=stack.batch_first,
            bidirectional=stack.bidirectional,
            **options,
        )
    for name in list(made._parameters):
        held = getattr(stack, _renumbered(name, 0, index))
        setattr(made, name, nn.Parameter(held.detach(), False))
    return made.eval()


def quantized_layer(stack: QuantizedRecurrent, index: int) -> nn.Module:
    """Layer `index` of the stack, over the same buffers."""
    options = stack.config()
    options |= {"num_layers": 1, "input_size": _inputs(stack, index), "dropout": 0.0}
    kind: Any = type(stack)
    with torch.device("meta"):
        made: QuantizedRecurrent = kind(**{**options, "storage": [stack.storage[index]]})
    held = {name: getattr(stack, _renumbered(name, 0, index)) for name in made._buffers}
    made._fill(**held)
    return made


def _inputs(stack: Any, index: int) -> int:
    outputs: int = (stack.proj_size or stack.hidden_size) * (2 if stack.bidirectional else 1)
    return outputs if index else stack.input_size


def _renumbered(name: str, old: int, new: int) -> str:
    """Return `weight_ih_l0_reverse` as `weight_ih_l1_reverse`, or another name likewise."""
    base, _, way = name.rpartition(f"_l{old}")
    return f"{base}_l{new}{way}"


# --- tensors in what modules return, as arrays that nothing else writes into ---


def arrays(value: Any) -> list[Array]:
    """Return copies of all tensors in `value`."""
    return list(named_arrays(value).values())


def named_arrays(value: Any) -> dict[str, Array]:
    """Copy all tensors in `value`, by where they are: `output`, `last_hidden_state`, `1.0`."""
    return {
        name or "output": _readable(tensor).clone(memory_format=torch.contiguous_format).numpy()
        for name, tensor in named_tensors(value, packed_data_only=True)
    }


def float_arrays(value: Any) -> dict[str, Array]:
    """Return all floating-point tensors in `value` by where they are.

    Tensors are not copied where they can be read as they lie.
    """
    return {
        name: _readable(tensor).numpy()
        for name, tensor in named_tensors(value, packed_data_only=True)
        if tensor.is_floating_point()
    }


def _readable(tensor: Tensor) -> Tensor:
    """Return the tensor in a form that NumPy can take: complex as real, bfloat16 as float32."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    return tensor
