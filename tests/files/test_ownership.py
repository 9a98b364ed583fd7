"""Hidden folders beside an output that other accounts, or archives, planted there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.files import ownership
from octavo.files.staging import ASIDE, PREFIX, remove_abandoned
from tests.graphs import snapshot
from tests.onnx.test_staging import abandoned, names

STRANGER = "0123456789abcdef"


def moved_by_plan(planted: Path, precious: Path) -> None:
    plan = {"model": "m", "data": str(precious / "file"), "old": {}}
    (planted / "commit.json").write_text(json.dumps(plan))


def removed_by_plan(planted: Path, precious: Path) -> None:
    old = {name: (precious / "file").stat().st_ino for name in (str(precious / "file"), "../file")}
    plan = {"model": "gone", "data": None, "old": old}
    (planted / "commit.json").write_text(json.dumps(plan))


def aside_is_a_link(planted: Path, precious: Path) -> None:
    (planted / ASIDE).symlink_to(precious)


def files_is_a_link(planted: Path, precious: Path) -> None:
    shutil.rmtree(planted / "files")
    (planted / "files").symlink_to(precious)


def it_is_a_link(planted: Path, precious: Path) -> None:
    shutil.rmtree(planted)
    planted.symlink_to(precious)


SHAPES = [moved_by_plan, removed_by_plan, aside_is_a_link, files_is_a_link, it_is_a_link]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("of", ["a stranger", "this account", "another folder", "another account"])
def test_a_planted_folder_touches_nothing_elsewhere(
    shape: Callable[[Path, Path], None],
    of: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may come with an archive. Only one of this account's own making is removed."""
    precious, work, other = tmp_path / "precious", tmp_path / "work", tmp_path / "other"
    for folder in (precious, work, other):
        folder.mkdir()
    (precious / "file").write_bytes(b"keep")
    planted = abandoned(other if of == "another folder" else work)
    if of == "another folder":
        planted = planted.rename(work / planted.name)
    if of == "a stranger":
        planted = planted.rename(work / f"{PREFIX}{STRANGER}")
    shape(planted, precious)
    before = snapshot(tmp_path)
    if of == "another account":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    remove_abandoned(work)
    assert (precious / "file").read_bytes() == b"keep" and names(precious) == ["file"]
    left = names(work)
    if of == "this account" and shape is not it_is_a_link:
        assert left == [] and not caplog.records
    else:
        assert left == [planted.name] and snapshot(tmp_path) == before
        assert f"{planted} is named like" in caplog.text and "left alone" in caplog.text


def test_a_folder_that_others_may_write_to_is_left_alone(tmp_path: Path) -> None:
    planted = abandoned(tmp_path)
    planted.chmod(0o777)
    remove_abandoned(tmp_path)
    assert names(tmp_path) == [planted.name]


@pytest.mark.parametrize("spoiled", ["short", "readable by others", "a link", "no folder"])
def test_a_key_that_is_not_private_is_not_used(
    spoiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = ownership._key.__wrapped__
    key = made()
    path = tmp_path / "octavo" / "staging.key"
    assert key == made() == path.read_bytes() and path.stat().st_mode & 0o777 == 0o600
    if spoiled == "short":
        path.write_bytes(b"1")
    elif spoiled == "readable by others":
        path.chmod(0o644)
    else:
        path.rename(path.with_name("moved"))
        if spoiled == "a link":
            path.symlink_to("moved")
        else:
            (path.with_name("moved")).unlink()
            path.parent.rmdir()
            path.parent.write_bytes(b"")
    assert len(made()) == 32 and made() != key
