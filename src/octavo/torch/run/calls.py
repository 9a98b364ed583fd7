"""Calls of a model with NumPy arrays: inputs by name, outputs as a list."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from octavo.errors import InputDataError, ModelError, did_you_mean
from octavo.results.target import Feed

_P = inspect.Parameter
_FLOATS = (np.float16, np.float32, np.float64)


def takes(model: nn.Module, name: str) -> bool:
    """Tell whether the model's forward has a parameter of this name."""
    return name in inspect.signature(model.forward).parameters


class Caller:
    """Calls the model, or a quantized form of it, as the float model's forward wants it.

    Inputs go by the names of forward's parameters, or by "0", "1", ... Floating-point arrays become
    tensors of the dtype that the float model's own floating-point tensors have, if it is one.
    """

    def __init__(self, model: nn.Module) -> None:
        parameters = inspect.signature(model.forward).parameters.values()
        self._positional = [
            p.name for p in parameters if p.kind in (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)
        ]
        self._required = [
            p.name
            for p in parameters
            if p.default is _P.empty and p.kind not in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
        ]
        self.names = [
            p.name for p in parameters if p.kind not in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
        ]
        self._any_position = any(p.kind is _P.VAR_POSITIONAL for p in parameters)
        self._any_name = any(p.kind is _P.VAR_KEYWORD for p in parameters)
        held = (*model.parameters(), *model.buffers())
        dtypes = {t.dtype for t in held if t.is_floating_point()}
        self._dtype = dtypes.pop() if len(dtypes) == 1 else None

    @property
    def required(self) -> list[str]:
        """Inputs that have no default."""
        return list(self._required)

    def name(self, given: str) -> str:
        """Return the parameter called `given` or at that position.

        Raises InputDataError where there is none.
        """
        if given.isdecimal():
            position = int(given)
            if position < len(self._positional):
                return self._positional[position]
            if self._any_position:
                return given
        elif given in self.names or self._any_name:
            return given
        known = [*self.names, *(str(i) for i in range(len(self._positional)))]
        raise InputDataError(f"forward has no input {given!r}.{did_you_mean(given, known)}")

    def arguments(self, feed: Feed) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of the call, with tensors of their own memory."""
        values = {self.name(key): tree_map(self._tensor, value) for key, value in feed.items()}
        positional = []
        for name in self._positional:
            if name not in values:
                break
            positional.append(values.pop(name))
        for position in range(len(self._positional), len(self._positional) + len(values)):
            if str(position) not in values:
                break
            positional.append(values.pop(str(position)))
        return positional, values

    def run(self, model: nn.Module, feed: Feed) -> list[npt.NDArray[Any]]:
        """Return `model`'s outputs, those in tuples, lists, mappings and dataclasses one by one.

        Raises InputDataError for an unknown input, ModelError where no output is a tensor.
        """
        with torch.inference_mode():
            positional, keywords = self.arguments(feed)
            outputs = [_array(t) for _, t in named_tensors(model(*positional, **keywords))]
        if not outputs:
            raise ModelError(f"{type(model).__name__} returned no tensor")
        return outputs

    def _tensor(self, value: Any) -> Any:
        """Copy an array or tensor, as forward may write into its inputs; return others as is."""
        if isinstance(value, Tensor):
            return value.clone()
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        try:
            made = torch.tensor(np.asarray(value))
        except TypeError:
            raise InputDataError(
                f"an input is an array of {value.dtype}; PyTorch has no such tensors"
            ) from None
        return made.to(self._dtype) if self._dtype and value.dtype.type in _FLOATS else made


def named_tensors(
    value: Any, name: str = "", *, packed_data_only: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors in `value`, by where they are: `last_hidden_state`, `1.0`, or "".

    With `packed_data_only` lengths and orders of a PackedSequence are left out: they are the
    inputs' own.
    """
    items: Any = ()
    if isinstance(value, Tensor):
        yield name, value
    elif packed_data_only and isinstance(value, PackedSequence):
        yield name, value.data
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        items = ((field.name, getattr(value, field.name)) for field in fields(value))
    for key, item in items:
        inner = f"{name}.{key}".removeprefix(".")
        yield from named_tensors(item, inner, packed_data_only=packed_data_only)


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    found: npt.NDArray[Any] = tensor.resolve_conj().resolve_neg().numpy()
    return found
