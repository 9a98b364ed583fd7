"""The command line: a thin shell around the front ends, which are imported when a command runs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.core.lazy import lazy as _lazy
from octavo.errors import INTERRUPTED, SOMETHING_MISSING

if TYPE_CHECKING:
    from octavo.cli.commands import app as app

__all__, __getattr__ = _lazy(__name__, {"octavo.cli.commands": "app"}, "main")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit; `argv` defaults to the process's arguments."""
    try:  # Ctrl-C while the program is loaded is one line too
        from octavo.cli.commands import run

        run(argv)
    except ModuleNotFoundError as error:
        missing = _missing()
        if (error.name or "").partition(".")[0] not in {module for _, module in missing}:
            raise
        named = ", ".join(module for _, module in missing)
        asked = shlex.join(requirement for requirement, _ in missing)
        print(  # noqa: T201
            f"error: the command octavo needs packages that are not installed ({named}), as Octavo "
            f"was installed without them: {sys.executable} -m pip install {asked}",
            file=sys.stderr,
        )
        raise SystemExit(SOMETHING_MISSING) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        raise SystemExit(INTERRUPTED) from None


def _missing() -> list[tuple[str, str]]:
    """List the packages that Octavo requires and lacks: each for pip, and as it is imported."""
    found: list[tuple[str, str]] = []
    try:
        required = importlib.metadata.requires("octavo") or ()
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return found
    for line in required:
        requirement, _, marker = line.partition(";")
        module = re.split(r"[^\w.-]", requirement.strip())[0].replace("-", "_")
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:  # of ruamel.yaml, where there is no ruamel
            there = False
        if "extra" not in marker and not there:
            found.append((requirement.strip().replace(" ", ""), module))
    return found
