"""The command line: a thin shell around the front ends, which are imported when a command runs."""

from octavo.cli.commands import app, main

__all__ = ["app", "main"]
