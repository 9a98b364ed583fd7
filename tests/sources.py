"""Octavo's modules, as tests of its sources read them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
FILES = sorted(SRC.glob("octavo/**/*.py"))


@cache
def parsed(source: str) -> ast.Module:
    """The tree; no garbage is collected meanwhile, which would take most of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was:
            gc.enable()
