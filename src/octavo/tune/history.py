"""The workspace: everything that was measured, a line of JSON each, safe from a kill at any time.

`history.jsonl` starts with what the search is about; every other line is one measurement. A line is
written and synced before the search goes on, so that a search that is resumed finds all of it. What
a kill left of a line that was being written is cut off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from reprlib import repr as short
from typing import Any

from octavo.core import versions
from octavo.core.data import fitted
from octavo.errors import HistoryError, OutputError
from octavo.files import locks

FILE = "history.jsonl"
_SHOWN = 3  # differences in a message


def digest(data: Any) -> str:
    """Return a short name for plain data: equal for equal data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# docs/notes/tuning.md: "Resuming is replaying"
class History:
    """The measurements of one search, by kind and key; in a folder, or in memory for None.

    `subject` is plain data about what is searched: a search can be resumed only with an equal one.
    Without `resume` a history that is there is kept under another name. Raises HistoryError where
    it cannot be resumed or another process uses it, OutputError where it cannot be written.
    """

    def __init__(
        self, folder: Path | None, subject: Mapping[str, Any], *, resume: bool = False
    ) -> None:
        self._found: dict[tuple[str, str], Any] = {}
        self._file: FileIO | None = None
        self.elapsed = 0.0
        """Seconds that the search had taken when its last line was written."""
        self.resumed = 0
        """Measurements that were there already."""
        if folder is not None:
            self._path = folder / FILE
            try:
                with _writing(self._path):
                    self._open(folder, subject, resume)
            except BaseException:
                self.close()
                raise

    def _open(self, folder: Path, subject: Mapping[str, Any], resume: bool) -> None:
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"the workspace {folder} is not a folder; name another one")
        folder.mkdir(parents=True, exist_ok=True)
        self._lock()
        assert self._file is not None
        lines = list(_lines(self._file, self._path))
        if lines and not resume:
            self._put_aside(folder)
            lines = []
        if not lines:
            self._append({"kind": "start", "version": versions.HISTORY, "subject": dict(subject)})
            locks.sync_folder(folder)
            return
        _refuse_other(self._path, lines[0], subject)
        for line in lines[1:]:
            self._found[line["kind"], line["key"]] = line["value"]
            self.elapsed = max(self.elapsed, float(line["elapsed"]))
        self.resumed = len(lines) - 1

    def _lock(self) -> None:
        """Open the file, for this process alone."""
        while True:
            # Unbuffered: what a full disk refused must not be tried again when the file is closed.
            self._file = self._path.open("a+b", buffering=0)
            try:
                locks.lock(self._file.fileno(), wait=False)
                if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                    return
            except BlockingIOError:
                raise HistoryError(
                    f"{self._path}: another search is writing it; wait for that one, or name "
                    "another workspace"
                ) from None
            except FileNotFoundError:  # another search that begins has put it aside
                pass
            self._file.close()

    def _put_aside(self, folder: Path) -> None:
        """Rename the history that is there, and begin a new one."""
        assert self._file is not None
        stamp = time.strftime("%Y%m%d-%H%M%S")
        names = (f"history-{stamp}{more}.jsonl" for more in ("", *(f"-{i}" for i in range(1, 99))))
        new = next(folder / name for name in names if not (folder / name).exists())
        self._path.rename(new)
        self._file.close()
        self._lock()

    def get(self, kind: str, key: str) -> Any:
        """Return what `put` was given under this kind and key, or None."""
        return self._found.get((kind, key))

    def put(self, kind: str, key: str, value: Any, elapsed: float) -> None:
        """Keep `value` (plain data), which is on disk when this returns."""
        self._found[kind, key] = value
        if self._file is not None:
            with _writing(self._path):
                self._append({"kind": kind, "key": key, "value": value, "elapsed": elapsed})

    def _append(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        left = memoryview(json.dumps(line).encode() + b"\n")
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, which lets another search use the folder."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (HistoryError, OutputError):
        raise
    except OSError as error:
        raise OutputError(
            f"{path}: the history cannot be written: {error.strerror}. Free or name another "
            "workspace; what it holds can be resumed"
        ) from error


def _lines(file: FileIO, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of the file; cut off a last one that was not finished."""
    file.seek(0)
    data = file.read()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        file.truncate(whole)
    for number, text in enumerate(data[:whole].splitlines(), 1):
        try:
            line = json.loads(text)
            expected = (
                ("subject", "version") if number == 1 else ("kind", "key", "value", "elapsed")
            )
            if not isinstance(line, dict) or any(key not in line for key in expected):
                raise ValueError(f"it has no {' or '.join(expected)}")
            for key, kind in (("kind", str), ("key", str), ("elapsed", float)):
                if number > 1:
                    fitted(kind, line[key], key)
        except (ValueError, TypeError, RecursionError) as error:
            raise HistoryError(
                f"{path}:{number}: not a line of a history: {error}. Move the file away to start "
                "anew"
            ) from None
        yield line


def _refuse_other(path: Path, start: Mapping[str, Any], subject: Mapping[str, Any]) -> None:
    if start["version"] != versions.HISTORY:
        raise HistoryError(
            f"{path}: history version {start['version']}; this Octavo writes "
            f"{versions.HISTORY}: start anew without resuming"
        )
    was, now = start["subject"], json.loads(json.dumps(dict(subject)))
    differ = sorted(_differences(was, now), key=lambda said: said.partition(" ")[0].count("."))
    if differ:
        more = f"; and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
        said = "; ".join(differ[:_SHOWN]) + more
        raise HistoryError(
            f"{path}: it is another search's and cannot be resumed: {said}. Give what it was "
            "started with, or leave resuming out to start anew (the old history is kept)"
        )


def _differences(was: Any, now: Any, name: str = "") -> Iterator[str]:
    """Yield what differs, as deep as mappings go: `recipe.name was 'int8', is 'float16'`."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            inner = f"{name}.{key}".removeprefix(".")
            yield from _differences(was.get(key), now.get(key), inner)
    elif was != now:
        yield f"{name} was {short(was)}, is {short(now)}"
