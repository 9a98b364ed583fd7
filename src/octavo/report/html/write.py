"""Puts a page in place, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from octavo.errors import OutputError


def write_html(text: str, path: str | os.PathLike[str]) -> None:
    """Writes `text` to `path` in UTF-8: beside it first, then renamed over it.

    A place that cannot be written raises OutputError, and leaves what was there.
    """
    out = Path(os.path.realpath(path))  # a link stays a link: what it names is replaced
    if out.is_dir():
        raise OutputError(f"the report {path} is a folder; name a file in it")
    beside = out.with_name(f".octavo-report-{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(out)
    except OSError as error:
        raise OutputError(
            f"the report {path} cannot be written: {error.strerror or error}; "
            "name a file in a folder that exists and can be written to"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
