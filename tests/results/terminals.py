"""Results as a terminal shows them."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from octavo.report.terminal import show


def on_terminal(shown: Any, verbose: bool = False, width: int = 80, color: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard" if color else None,
        highlight=False,
    )
    show(shown, console, verbose)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
