"""Which hidden folders this account's own runs made.

Its name says so: it ends with a keyed hash (HMAC-SHA256, RFC 2104) of the name's beginning and of
the folder that it is in. The key lies in the account's cache. An archive's author does not know it,
and a copy in another folder does not fit.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import tempfile
from functools import cache
from pathlib import Path

from octavo.files import locks

_BYTES = 32


def own_name(prefix: str, parent: Path) -> str:
    """Make up a name of this account for a folder in `parent`; raises OSError without `parent`."""
    start = f"{prefix}{secrets.token_hex(8)}"
    return f"{start}-{_seal(start, parent)}"


def is_own(folder: Path) -> bool:
    """Tell whether this account made `folder`, there, for itself alone. A link is never its own."""
    try:
        found = folder.lstat()
        start, _, seal = folder.name.rpartition("-")
        sealed = hmac.compare_digest(os.fsencode(seal), _seal(start, folder.parent).encode())
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077 == 0
    return sealed and private and found.st_uid == os.geteuid()


def _seal(start: str, parent: Path) -> str:
    place = parent.stat()
    text = f"{place.st_dev}:{place.st_ino}:{start}"
    return hmac.new(_key(), os.fsencode(text), "sha256").hexdigest()[:32]


@cache
def _key() -> bytes:
    """Return the account's key; one of this process alone where none can be kept, or is needed."""
    if not locks.available():
        return secrets.token_bytes(_BYTES)
    try:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        path = Path(home).expanduser() / "octavo" / "staging.key"
        return _kept(path) or _made(path)
    except (OSError, RuntimeError):  # RuntimeError: nobody knows the home
        return secrets.token_bytes(_BYTES)


def _made(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return _kept(path) or secrets.token_bytes(_BYTES)


def _kept(path: Path) -> bytes | None:
    """Read the key at `path`; None where there is none, or others could have read or written it."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
            return None
        key = file.read(_BYTES + 1)
    return key if len(key) == _BYTES else None
