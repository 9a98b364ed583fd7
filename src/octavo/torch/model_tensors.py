"""Where a model holds modules and tensors: each once, under its first name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_OWN = frozenset(nn.Module().__dict__) | {"_flat_weights"}  # nn.RNNBase lists its parameters there
_DEPTH = 3  # of lists and dicts in one another

PLAIN = frozenset((bool, int, float, str, type(None)))
"""Types of most attributes of modules: neither they nor their attributes are tensors."""


@dataclass(frozen=True)
class ModelTensor:
    """One tensor of a model. `role`: "parameter", "buffer", or "attribute" (of the module, or in a
    list, tuple or dict that is one). `unclear`: a part of the key holds a dot itself, so that
    `set_tensor` would not find the place again."""

    module: nn.Module
    module_name: str
    key: str
    tensor: Tensor
    role: str
    unclear: bool = False

    @property
    def name(self) -> str:
        """Dotted, from the model."""
        return dotted(self.module_name, self.key)


@dataclass(frozen=True)
class ModuleNames:
    """The modules of a model by name, each under its first; `again`: its other names to that."""

    modules: dict[str, nn.Module] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)


def dotted(*parts: str) -> str:
    """Join the parts that are not empty by dots."""
    return ".".join(filter(None, parts))


def module_names(model: nn.Module) -> ModuleNames:
    """List every module, in the model's order. Below a further name nothing is listed again."""
    found = ModuleNames()
    first: dict[int, str] = {}

    def visit(name: str, module: nn.Module) -> None:
        known = first.setdefault(id(module), name)
        if name in found.modules or known != name:
            found.again[name] = known
            return
        found.modules[name] = module
        for child_name, child in module._modules.items():
            if child is not None:
                visit(dotted(name, child_name), child)

    visit("", model)
    return found


def places_of(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Return, by the id of each module in `model`, its parents and its name in each."""
    places: dict[int, list[tuple[nn.Module, str]]] = defaultdict(list)
    for module in model.modules():
        for name, child in module._modules.items():
            if child is not None:
                places[id(child)].append((module, name))
    return places


def tensors_of(modules: dict[str, nn.Module]) -> Iterator[ModelTensor]:
    """Yield every tensor of the modules; one that several modules hold comes as often."""
    for name, module in modules.items():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                yield ModelTensor(module, name, key, parameter, "parameter")
        for key, buffer in module._buffers.items():
            if buffer is not None:
                yield ModelTensor(module, name, key, buffer, "buffer")
        for key, value in module.__dict__.items():
            if type(value) not in PLAIN and key not in _OWN:
                for path, tensor in _inside((key,), value, _DEPTH):
                    unclear = any("." in part for part in path)
                    yield ModelTensor(module, name, ".".join(path), tensor, "attribute", unclear)


def unreached_tensors(modules: dict[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors that `tensors_of` does not reach, by name.

    They are in attributes of objects that are no modules, and under keys of dicts that are neither
    text nor integers; not deeper.
    """
    for name, module in modules.items():
        for key, value in module.__dict__.items():
            if type(value) in PLAIN or key in _OWN:
                continue
            if isinstance(value, (nn.Module, Tensor, type, ModuleType)):
                continue
            further = dict(getattr(value, "__dict__", {}))
            if isinstance(value, dict):
                further |= {k: v for k, v in value.items() if not isinstance(k, (str, int))}
            for inner, item in further.items():
                for path, tensor in _inside((key, str(inner)), item, _DEPTH):
                    yield dotted(name, *path), tensor


def _inside(
    path: tuple[str, ...], value: Any, depth: int
) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, (list, tuple, dict)) and depth:
        for inner, item in _items(value):
            yield from _inside((*path, str(inner)), item, depth - 1)


def _items(value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from ((key, item) for key, item in value.items() if isinstance(key, (str, int)))
    else:
        yield from enumerate(value)


def set_tensor(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Put `tensor` where `tensors_of` found one of this key, or where the module has None.

    In the place of a parameter it is to be one. A key that the module lacks becomes an attribute,
    unless it lies in a list, tuple or dict: then nothing is done. Returns whether it has its place.
    """
    if key in module._parameters:
        setattr(module, key, tensor)  # nn.RNNBase keeps its list of them up to date so
    elif key in module._buffers:
        module._buffers[key] = tensor
    elif "." not in key:
        module.__dict__[key] = tensor
    else:
        attribute, *path = key.split(".")
        return _put_inside(module.__dict__, attribute, path, tensor)
    return True


def _put_inside(holder: Any, key: Any, path: list[str], tensor: Tensor) -> bool:
    if not path:
        holder[key] = tensor
        return True
    value = holder.get(key) if isinstance(holder, dict) else holder[key]
    if not isinstance(value, (list, tuple, dict)):
        return False
    inner = next((k for k, _ in _items(value) if str(k) == path[0]), None)
    if inner is None:
        return False
    editable = list(value) if isinstance(value, tuple) else value
    done = _put_inside(editable, inner, path[1:], tensor)
    if isinstance(value, tuple):
        holder[key] = type(value)(editable) if type(value) is tuple else type(value)(*editable)
    return done


def is_dense(tensor: Tensor) -> bool:
    """Tell whether a tensor is row-major but for the order of its axes."""
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    return bool(tensor.permute(order).is_contiguous())


def is_plain(tensor: Tensor) -> bool:
    """Tell whether a tensor is strided memory of torch's own tensor types."""
    own = (Tensor, nn.Parameter, nn.Buffer)
    return bool(type(tensor) in own and tensor.layout is torch.strided and not tensor.is_quantized)
