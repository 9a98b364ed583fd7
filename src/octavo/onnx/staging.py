"""Writes outputs so that they appear whole or not at all.

Everything is written in a hidden folder beside the output and renamed into place at the end: the
data file first, under a name that no file has, then the model over whatever had its name. The
folder is removed whatever happens; one that a killed process left behind is removed by the next run
(it holds a lock as long as its process lives).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import onnx

from octavo.errors import OutputError

PREFIX = ".octavo-"


class Staging:
    """A folder in which the output at `out` is prepared. Use as a context manager."""

    def __init__(self, out: str | Path, source: Path | None) -> None:
        self.out = Path(out)
        if self.out.is_dir():
            raise OutputError(f"{self.out} is a directory; give a file name")
        if not self.out.parent.is_dir():
            raise OutputError(f"the folder {self.out.parent} of the output does not exist")
        if source is not None and self.out.exists() and self.out.samefile(source):
            raise OutputError(f"the output {self.out} is the input; give another name")
        self._data_name = self._free_data_name()

    def __enter__(self) -> Staging:
        parent = self.out.parent
        remove_abandoned(parent)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = os.open(self.folder, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise output_error(error, self.out) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    @property
    def model(self) -> Path:
        """Where to write the model file."""
        return self.folder / self.out.name

    @property
    def data(self) -> Path:
        """Where to write the external data; the model refers to it by this file name."""
        return self.folder / self._data_name

    def commit(self) -> None:
        """Puts what was written in place, and removes the data file of a model it replaces."""
        try:
            old = _data_files_of(self.out)
            for path in (self.data, self.model):
                if path.exists():
                    _sync(path)
            if self.data.exists():
                self.data.rename(self.out.parent / self._data_name)
            self.model.replace(self.out)
            for path in old - {self.out.parent / self._data_name}:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise output_error(error, self.out) from error

    def _free_data_name(self) -> str:
        name, i = f"{self.out.name}.data", 0
        while (self.out.parent / name).exists():
            i += 1
            name = f"{self.out.name}.{i}.data"
        return name


def remove_abandoned(parent: Path) -> None:
    """Removes staging folders in `parent` whose process is gone."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def output_error(error: OSError, out: Path) -> OutputError:
    """An OutputError that says what the operating system said, and what to do."""
    advice = {
        errno.ENOSPC: "free some space, or write to another disk",
        errno.EDQUOT: "free some of your quota, or write to another disk",
        errno.EACCES: "give a folder that you may write to",
        errno.EPERM: "give a folder that you may write to",
        errno.EROFS: "give a folder on a disk that is not read-only",
        errno.EFBIG: "raise the limit on file sizes, or write to another disk",
    }.get(error.errno or 0, "nothing was written")
    return OutputError(f"{out} cannot be written: {error.strerror or error}; {advice}")


def _data_files_of(path: Path) -> set[Path]:
    """Data files that an existing Octavo model at `path` refers to; they go when it is replaced."""
    if not path.exists() or not any(path.parent.glob(f"{glob.escape(path.name)}*.data")):
        return set()
    try:
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except Exception:  # noqa: BLE001 - whatever is being replaced need not be a model
        return set()
    if not any(p.key.startswith("octavo.") for p in model.metadata_props):
        return set()
    names = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return {path.parent / n for n in names if n.startswith(path.name) and n.endswith(".data")}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
