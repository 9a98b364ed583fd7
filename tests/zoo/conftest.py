"""What the tests of the zoo share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache instead of the user's."""
    root = tmp_path / "cache"
    monkeypatch.setenv("OCTAVO_CACHE", str(root))
    return root
