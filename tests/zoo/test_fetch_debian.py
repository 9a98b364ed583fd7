"""The zoo's fetcher and Debian packages: apt-get without lists, without rights, or not there."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from benchmarks.zoo.artifacts import ARTIFACTS, Deb
from benchmarks.zoo.fetch import FetchError, fetch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cache")]
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Debian package of one wanted and one other file, pinned as ``little-data``."""
    source = tmp_path / "source"
    for name in ("usr/share/little/data.txt", "usr/share/doc/little/copyright"):
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text("little")
    control = "Package: little-data\nVersion: 1:2-1\nArchitecture: all\n"
    control += "Maintainer: Nobody <nobody@example.invalid>\nDescription: little\n"
    (source / "DEBIAN").mkdir()
    (source / "DEBIAN" / "control").write_text(control)
    path = tmp_path / "little-data_1%3a2-1_all.deb"
    subprocess.run(["dpkg-deb", "--build", source, path], check=True, stdout=subprocess.DEVNULL)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    pin = Deb("little-data", "1:2-1", digest, ("usr/share/little/",))
    monkeypatch.setitem(ARTIFACTS, pin.name, pin)
    return path


@pytest.fixture
def apt_log(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for apt-get that knows ``package`` only after ``update``; answers its log."""
    log, lists = tmp_path / "apt.log", tmp_path / "lists"
    script = tmp_path / "bin" / "apt-get"
    script.parent.mkdir()
    script.write_text(
        f"""#!/bin/sh
echo "$@" >> {log}
if [ "$*" = update ]; then touch {lists}; exit; fi
if [ -e {lists} ]; then cp {package} .; exit; fi
echo "E: Unable to locate package little-data" >&2
exit 100
"""
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return log


@needs_dpkg
def test_root_without_package_lists_updates_them_once(
    apt_log: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tree = fetch("little-data")
    files = [str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()]
    assert files == ["usr/share/little/data.txt"]
    download = "-o APT::Sandbox::User=root download little-data=1:2-1"
    assert apt_log.read_text().splitlines() == [download, "update", download]


@needs_dpkg
def test_without_package_lists_a_plain_user_is_told_to_update(
    apt_log: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(FetchError, match=r"apt-get update.* as root") as caught:
        fetch("little-data")
    assert "Unable to locate package" in str(caught.value)
    assert str(cache / "archives" / "little-data_1%3a2-1_all.deb") in str(caught.value)
    assert len(apt_log.read_text().splitlines()) == 1


def test_a_machine_without_apt_is_told_so(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match=r"apt-get(.|\n)*No such file(.|\n)*by hand"):
        fetch("dataset-fashion-mnist")
