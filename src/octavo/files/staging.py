"""Writes outputs so that they appear whole or not at all.

Everything is written in a hidden folder beside the output and put in place at the end: the data
file first, under a name that no file has, then the model over whatever had its name. The folder is
removed whatever happens; one that a killed process left behind is removed by the next run (it holds
a lock as long as its process lives), and with it what an unfinished commit left outside. A folder
of such a name that this account did not make is left alone: it may have come with an archive.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from octavo.errors import ModelError, OutputError
from octavo.files import locks
from octavo.files.metadata import metadata
from octavo.files.ownership import is_own, own_name

PREFIX = ".octavo-staging-"
_log = logging.getLogger("octavo.files")
DATA_FILE = "octavo.data_file"  # metadata key: the data file that belongs to a model
_JOURNAL = "commit.json"
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Of whatever is written: nobody meets these while reading."""
_T = TypeVar("_T", bound="StagedOutput")
ASIDE = "aside"  # holds the folder that a new one is about to replace


class StagedOutput:
    """What is prepared in `folder`, a hidden one beside `out`. Use as a context manager."""

    folder: Path

    def __init__(self, out: Path) -> None:
        self.out = out

    def __enter__(self: _T) -> _T:
        remove_abandoned(self.out.parent)
        try:
            self.folder = self.out.parent / own_name(PREFIX, self.out.parent)
        except OSError as error:
            raise output_error(error, self.out) from error
        self._lock: list[int] = []
        # A last resort for Ctrl-C on the way in or out of the context.
        self._last_resort = weakref.finalize(self, discard, self.folder, self._lock)
        try:
            make_locked(self.folder, self._lock)
            self._first.mkdir(parents=True)
        except OSError as error:
            self._remove()
            raise output_error(error, self.out) from error
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._remove()
        if isinstance(error, Exception) and (said := self._in_words(error)) is not None:
            raise said from error

    @property
    def files(self) -> Path:
        """Return the folder for the files that are put in place at the end."""
        return self.folder / "files"

    @property
    def _first(self) -> Path:
        """The folder that is made on the way in."""
        return self.files

    def _in_words(self, error: Exception) -> OutputError | None:
        """Return a disk error, of any form, as an OutputError about the output; else None."""
        if isinstance(error, OutputError):
            said = str(error).replace(str(self.files), str(self.out.parent))
            return OutputError(said) if said != str(error) else None
        found = _of_the_disk(error)
        if found is None:
            return None
        if found.filename is None or Path(os.fsdecode(found.filename)).is_relative_to(self.folder):
            return output_error(OSError(found.errno, os.strerror(found.errno or 0)), self.out)
        return output_error(found, Path(os.fsdecode(found.filename)))

    def _remove(self) -> None:
        try:
            discard(self.folder, self._lock)
        except BaseException:
            discard(self.folder, self._lock)
            raise
        self._last_resort.detach()


# docs/notes/reports.md: "Outputs appear whole"
class Staging(StagedOutput):
    """A folder in which the output at `out` is prepared. Use as a context manager.

    `sources` are the files that the input is made of. Nothing is written before the context is
    entered; a place that cannot be written raises OutputError.
    """

    def __init__(self, out: str | Path, sources: Iterable[Path] = ()) -> None:
        given = Path(out)
        # A link at the output's place stays a link: what it names is replaced.
        super().__init__(given.resolve() if os.path.islink(given) else given)  # noqa: PTH114 - no error
        self._sources = tuple(sources)
        try:
            _refuse_place(self.out, self._sources)
            self._data_name = _free_data_name(self.out)
        except OutputError:
            raise
        except OSError as error:
            raise output_error(error, self.out) from error

    @property
    def model(self) -> Path:
        """Return where to write the model file."""
        return self.files / self.out.name

    @property
    def data(self) -> Path:
        """Return where to write the external data; the model refers to it by this file name."""
        return self.files / self._data_name

    def commit(self) -> None:
        """Put what was written in place; remove the data file of a model that is replaced."""
        try:
            _refuse_place(self.out, self._sources)
            old = _data_file_of(self.out, self._sources)
            for path in (self.data, self.model):
                if path.exists():
                    _sync(path)
            data = self._data_name if self.data.exists() else None
            plan = {"model": self.out.name, "data": data, "old": old}
            (self.folder / _JOURNAL).write_text(json.dumps(plan), encoding="utf-8")
            if data is not None:
                _rename_to_free(self.data, self.out.parent / data)
                locks.sync_folder(self.out.parent)
            self.model.replace(self.out)
            locks.sync_folder(self.out.parent)
        except OutputError:
            raise
        except OSError as error:
            raise output_error(error, self.out) from error


def _of_the_disk(error: Exception) -> OSError | None:
    """Return the disk error that `error` is or tells of; None where `error` is of another kind."""
    if isinstance(error, shutil.Error):  # of a copied folder: (source, target, text) of each file
        for _, target, text in error.args[0]:
            for code in _OF_THE_DISK:
                if str(text).startswith(f"[Errno {code}]"):
                    return OSError(code, os.strerror(code), str(target))
        return None
    if isinstance(error, OSError):
        return error if error.errno in _OF_THE_DISK else None
    for code in _OF_THE_DISK:  # libraries in Rust, which have no other way to say it
        if str(error).endswith(f"(os error {code})"):
            return OSError(code, os.strerror(code))
    return None


def remove_abandoned(parent: Path) -> None:
    """Remove this account's staging folders in `parent` whose process is gone.

    Others stay, and a warning says so.
    """
    if not locks.available():
        return
    for folder in parent.glob(f"{PREFIX}*"):
        if not is_own(folder):
            _log.warning(
                "%s is named like what an interrupted run leaves, but was not made here by this "
                "account; it is left alone: remove it if nobody needs it",
                folder,
            )
            continue
        with contextlib.suppress(OSError):
            lock = locks.open_folder(folder, follow=False)
            try:
                locks.lock(lock, wait=False)
                discard(folder, [])
            finally:
                os.close(lock)


def output_error(error: OSError, out: Path) -> OutputError:
    """Build an OutputError that says what the operating system said, and what to do."""
    advice = {
        errno.ENOSPC: "free some space, or write to another disk",
        errno.EDQUOT: "free some of your quota, or write to another disk",
        errno.EACCES: "give a folder that you may write to",
        errno.EPERM: "give a folder that you may write to",
        errno.EROFS: "give a folder on a disk that is not read-only",
        errno.EFBIG: "raise the limit on file sizes, or write to another disk",
        errno.ENAMETOOLONG: "give a shorter name",
    }.get(error.errno or 0, "nothing was written")
    return OutputError(f"{out} cannot be written: {error.strerror or error}; {advice}")


def _refuse_place(out: Path, sources: Iterable[Path]) -> None:
    if out.is_dir():
        raise OutputError(f"the output {out} is a directory; give a file name")
    if not out.parent.is_dir():
        what = "is not a folder" if out.parent.exists() else "does not exist"
        raise OutputError(f"the folder {out.parent} of the output {what}; give one that is there")
    if not _is_text(out.name):
        raise OutputError(f"the output's name {out.name!a} is not UTF-8; give another name")
    if not out.exists():
        return
    if not out.is_file():
        raise OutputError(f"the output {out} is not a regular file; give another name")
    if any(out.samefile(source) for source in sources):
        raise OutputError(f"the output {out} is the input, or part of it; give another name")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _free_data_name(out: Path) -> str:
    name, i = f"{out.name}.data", 0
    while os.path.lexists(out.parent / name):
        i += 1
        name = f"{out.name}.{i}.data"
    return name


def make_locked(folder: Path, lock: list[int]) -> None:
    """Make `folder` and lock it; do it again if another run removed it as abandoned in between."""
    while True:
        folder.mkdir(mode=0o700)
        if not locks.available():
            return
        with contextlib.suppress(FileNotFoundError):
            lock.append(locks.open_folder(folder))
            with contextlib.suppress(OSError):  # a file system without locks: nobody removes it
                locks.lock(lock[0], wait=True)
            if os.path.samestat(folder.stat(), os.fstat(lock[0])):
                return
        while lock:
            os.close(lock.pop())


def _rename_to_free(path: Path, target: Path) -> None:
    """Rename as `Path.rename` does, but never over a file that appeared meanwhile."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise OutputError(
            f"{target} appeared during the conversion and is not overwritten; run it again"
        ) from None
    except OSError:  # a file system without hard links
        path.rename(target)
    else:
        path.unlink()


def _data_file_of(out: Path, sources: Iterable[Path]) -> dict[str, int]:
    """Name and inode of the data file of an Octavo model at `out`: it goes with the model.

    Only a file that an earlier run wrote under a name of this output; never part of the input.
    """
    if not out.exists():
        return {}
    try:
        name = metadata(out).get(DATA_FILE, "")
    except ModelError:  # whatever is being replaced need not be a model
        return {}
    path = out.parent / name
    ours = name.startswith(f"{out.name}.") and name.endswith(".data") and path.name == name
    if not ours or not path.is_file() or any(path.samefile(source) for source in sources):
        return {}
    return {name: path.stat().st_ino}


def discard(folder: Path, lock: list[int]) -> None:
    """Settle what a staging folder's commit, finished or not, left; then remove the folder."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # no plan, or half
        plan = json.loads((folder / _JOURNAL).read_text(encoding="utf-8"))
        _settle(folder, plan)
    aside = folder / ASIDE
    with contextlib.suppress(OSError):
        for old in () if aside.is_symlink() else aside.iterdir():
            if not os.path.lexists(folder.parent / old.name):  # the new one is not in its place
                old.rename(folder.parent / old.name)
    shutil.rmtree(folder, ignore_errors=True)
    while lock:
        os.close(lock.pop())


def _settle(folder: Path, plan: Mapping[str, Any]) -> None:
    """End the commit of `plan`. Raises ValueError where `plan` names a file of another folder."""
    staged = folder / "files"
    named = [plan["model"], *plan["old"], *([] if plan["data"] is None else [plan["data"]])]
    for name in named:
        if Path(name).name != name or name in ("", ".."):
            raise ValueError(f"the plan names {name!r}")
    if not (staged / plan["model"]).exists():  # the new model is in place, the old one is gone
        for name, inode in plan["old"].items():
            path = folder.parent / name
            if os.path.lexists(path) and path.lstat().st_ino == inode:
                path.unlink()
    elif plan["data"] is not None:  # perhaps the new data file is in place already
        data, target = staged / plan["data"], folder.parent / plan["data"]
        if target.exists() and (not data.exists() or data.samefile(target)):
            target.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)  # Windows syncs nothing else
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` in place of what is at `path`. Raises OutputError."""
    with Staging(path) as staging:
        try:
            staging.model.write_bytes(data)
        except OSError as error:
            raise output_error(error, path) from error
        staging.commit()


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 in place of what is at `path`. Raises OutputError."""
    write_bytes(path, text.encode())
