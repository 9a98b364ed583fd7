"""What PyTorch keeps in a process is dropped between files of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def nothing_is_compiled_yet() -> Iterator[None]:
    """Dynamo counts what it compiles of one function in a process, and refuses the ninth."""
    yield
    torch._dynamo.reset()
