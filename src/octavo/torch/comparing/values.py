"""Tensors in what modules return, as arrays that nothing else writes into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Array = npt.NDArray[Any]


def arrays(value: Any) -> list[Array]:
    """All tensors in `value`, copied."""
    return list(named_arrays(value).values())


def named_arrays(value: Any) -> dict[str, Array]:
    """All tensors in `value`, copied, by where they are: `output`, `last_hidden_state`, `1.0`."""
    return {name or "output": _array(tensor) for name, tensor in _tensors(value, "")}


def floats(value: Any) -> dict[str, Array]:
    """All floating-point tensors in `value` by where they are, not copied where they can be read
    as they lie."""
    found = {name: tensor for name, tensor in _tensors(value, "") if tensor.is_floating_point()}
    return {name: _readable(tensor).numpy() for name, tensor in found.items()}


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    items: Any = ()
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, PackedSequence):  # lengths and orders are the inputs' own
        yield name, value.data
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        items = ((field.name, getattr(value, field.name)) for field in fields(value))
    for key, item in items:
        yield from _tensors(item, f"{name}.{key}".removeprefix("."))


def _array(tensor: Tensor) -> Array:
    found: Array = _readable(tensor).clone(memory_format=torch.contiguous_format).numpy()
    return found


def _readable(tensor: Tensor) -> Tensor:
    """What NumPy can take."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    return tensor
