"""Text files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

from octavo.files.staging import Staging, output_error


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8 in place of what is at `path`. Raises OutputError."""
    with Staging(path) as staging:
        try:
            staging.model.write_text(text, encoding="utf-8")
        except OSError as error:
            raise output_error(error, path) from error
        staging.commit()
