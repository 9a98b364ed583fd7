"""The folder that documents speak of, made once and copied for each of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.commands import quick
from tests.docs.folder import prepare


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and data, never written to."""
    return prepare(tmp_path_factory.mktemp("documents") / "stock")


@pytest.fixture
def folder(stock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a copy of all that documents name; modules in it are forgotten."""
    copy = Path(shutil.copytree(stock, tmp_path / "folder"))
    monkeypatch.chdir(copy)
    monkeypatch.syspath_prepend(copy)
    monkeypatch.setenv("COLUMNS", "100")
    before = list(sys.path)
    with quick():
        yield copy
    sys.path[:] = before
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{copy}{os.sep}"):
            del sys.modules[name]
