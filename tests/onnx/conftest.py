"""Tests of how layers are quantized take small ones, which are float by default in portable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octavo.onnx.plan import selection


@pytest.fixture(autouse=True, scope="module")
def small_layers_are_quantized() -> Iterator[None]:
    """Take the border away; tests of what is float by default put another in this one's place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "SMALL", 0)
        yield
