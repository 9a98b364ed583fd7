"""What tests of PyTorch models share."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest


@pytest.fixture(scope="session")
def one_registry() -> Iterator[None]:
    """PyTorch's exporter compiles its translations once, not a second or two before each export."""
    from torch.onnx._internal.exporter import _registration

    kind = _registration.ONNXRegistry
    whole = cache(kind.from_torchlib)

    def from_torchlib(*args: Any, **kwargs: Any) -> Any:
        registry = copy.copy(whole(*args, **kwargs))
        registry.functions = {op: [*found] for op, found in registry.functions.items()}
        return registry

    with patch.object(kind, "from_torchlib", staticmethod(from_torchlib)):
        yield
