"""A digest of a module: equal where the module computes the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import octavo
from octavo.torch.files.tensors import module_names, tensors_of

_PLAIN = (bool, int, float, str, type(None))


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over the types of the modules, their plain settings and all tensors, in hexadecimal.

    Beside them over the versions of Octavo and PyTorch, whose kernels compute. Reads the weights
    once, at the speed of the digest.
    """
    digest = hashlib.sha256(f"octavo {octavo.__version__}, torch {torch.__version__}\n".encode())
    found = module_names(model)
    for line in _structure(found.modules):
        digest.update(f"{line}\n".encode())
    digest.update(repr(sorted(found.again.items())).encode())
    first: dict[int, str] = {}
    for item in tensors_of(found.modules):
        tensor, name = item.tensor, item.name
        known = first.setdefault(id(tensor), name)
        digest.update(f"{name} {known} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if known == name:
            digest.update(_bytes(tensor))
    return digest.hexdigest()


def _structure(modules: dict[str, nn.Module]) -> Iterator[str]:
    for name, module in modules.items():
        kind = type(module)
        settings = {
            key: value
            for key, value in module.__dict__.items()
            if not key.startswith("_") and key != "training" and _is_plain(value)
        }
        yield f"{name}: {kind.__module__}.{kind.__qualname__} {sorted(settings.items())}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return isinstance(value, _PLAIN)


def _bytes(tensor: Tensor) -> Any:
    """The tensor's memory, row by row."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data
