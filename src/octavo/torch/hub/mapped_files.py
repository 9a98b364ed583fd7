"""Lets go of the pages of mapped checkpoint files that were read: they would count as memory used.

`transformers` maps a checkpoint's files until the model is loaded. What was read of them stays in
the process's memory as long as there is room, so that a checkpoint of 4 GB takes 4 GB.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from octavo.torch.memory import advise

_MAPS = Path("/proc/self/maps")
_PAGE_OUT = 21  # MADV_PAGEOUT, of Linux 5.4: written pages are kept, others read again when used
_OFTEN = 64 << 20
"""Bytes read between two times."""


class MappedFiles:
    """The files of one checkpoint; on systems without such advice nothing is done."""

    def __init__(self, files: Collection[str]) -> None:
        self._files = {os.path.realpath(file) for file in files}
        self._read = 0

    def used(self, size: int) -> None:
        """Take note of `size` bytes read; let go of pages now and then."""
        self._read += size
        if self._read >= _OFTEN:
            self.release()

    def release(self) -> None:
        """Lets go of all pages."""
        self._read = 0
        for start, end in self._ranges():
            advise(start, end - start, _PAGE_OUT)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        if not self._files or not _MAPS.exists():
            return
        for line in _MAPS.read_text(errors="replace").splitlines():
            where, *_, path = line.split(maxsplit=5)
            if path in self._files:
                first, _, last = where.partition("-")
                yield int(first, 16), int(last, 16)
