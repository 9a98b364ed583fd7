"""Writes a folder so that it appears whole or not at all.

It is prepared in a hidden staging folder beside its place, and renamed into it at the end. What
stood there is put aside by another rename first, and back where the second one fails.
"""

from __future__ import annotations

import os
from pathlib import Path

from octavo.errors import OutputError
from octavo.files.staging import ASIDE, StagedOutput, output_error

MARK = "octavo_report.json"
"""A file of every folder that Octavo writes: only such a folder is replaced."""


class StagedFolder(StagedOutput):
    """A folder that will be `out`. Use as a context manager; what is in `path` at `commit` counts.

    Raises OutputError for a place that cannot be written, or is taken: by a file, or by a folder
    that is not empty, unless `replace` is true and Octavo wrote it.
    """

    def __init__(self, out: str | Path, *, replace: bool = False) -> None:
        super().__init__(Path(os.path.abspath(out)))  # noqa: PTH100 - links stay
        self._replace = replace
        self._refuse_place()

    @property
    def path(self) -> Path:
        """Return where to write what the folder shall hold."""
        return self.files / self.out.name

    @property
    def _first(self) -> Path:
        return self.path

    def commit(self) -> None:
        """Move the folder to `out`, after moving aside what was there."""
        self._refuse_place()
        aside = self.folder / ASIDE / self.out.name
        try:
            if self.out.exists():
                aside.parent.mkdir()
                self.out.rename(aside)
            self.path.rename(self.out)
        except OSError as error:
            raise output_error(error, self.out) from error  # `discard` puts back what is aside

    def _refuse_place(self) -> None:
        out = self.out
        if not out.parent.is_dir():
            what = "is not a folder" if out.parent.exists() else "does not exist"
            raise OutputError(
                f"the folder {out.parent} of the output {what}; give one that is there"
            )
        if not os.path.lexists(out):
            return
        if not out.is_dir() or out.is_symlink():
            raise OutputError(f"the output {out} is no folder; give another name")
        if not any(out.iterdir()):
            return
        if not (out / MARK).is_file():
            raise OutputError(f"the folder {out} is not empty; give another name, or empty it")
        if not self._replace:
            raise OutputError(
                f"the folder {out} holds what an earlier run wrote; give another name, or --force "
                "(overwrite=True) to replace it"
            )
