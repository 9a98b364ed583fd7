"""Pictures take most of a page's time: only tests that look at them draw them."""

from __future__ import annotations

import pytest

from octavo.report.html import pictures


@pytest.fixture(autouse=True)
def without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without pictures, but for tests that take `pictures_drawn`."""
    if "pictures_drawn" not in request.fixturenames:
        monkeypatch.setattr(pictures, "what_is_wrong", lambda module: "time")


@pytest.fixture
def pictures_drawn() -> None:
    """Draws them."""
