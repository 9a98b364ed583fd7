"""A temporary folder that a model is written to, opened from, and that goes with its context."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType

from octavo.errors import OutputError
from octavo.files.staging import output_error


class Scratch:
    """A place for one model, in the folder that TMPDIR names. Use as a context manager.

    ONNX Runtime has read or mapped a model's files once a session is open: they can go then.
    """

    def __init__(self) -> None:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="octavo-"))
        except OSError as error:
            raise output_error(error, Path(tempfile.gettempdir())) from error
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def out(self) -> Path:
        """What messages call it."""
        return self.folder

    @property
    def model(self) -> Path:
        """Where the model file goes."""
        return self.folder / "model.onnx"

    @property
    def data(self) -> Path:
        """Where the data file goes, if it needs one."""
        return self.folder / "model.onnx.data"

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise output_error(error, self.folder) from error
