"""The command line: a thin shell around the front ends, which are imported when a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octavo.errors import INTERRUPTED

if TYPE_CHECKING:
    from octavo.cli.commands import app

__all__ = ["app", "main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits; `argv` defaults to the process's arguments."""
    try:  # Ctrl-C while the program is loaded is one line too
        from octavo.cli.commands import run

        run(argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        raise SystemExit(INTERRUPTED) from None


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'octavo.cli' has no attribute {name!r}; it has {__all__}")
    from octavo.cli.commands import app

    return app
