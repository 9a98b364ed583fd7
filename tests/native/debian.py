"""Packages of Debian for another processor or of another release, unpacked beside the system."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.native.building import BUILD, run

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
OLDER_SOURCES = Path("/etc/apt/sources.list")


def available() -> bool:
    """Whether packages can be fetched and unpacked here."""
    return bool(shutil.which("apt-get") and shutil.which("dpkg-deb"))


def unpack(
    folder: Path,
    packages: Sequence[str],
    *,
    architecture: str,
    suite: str = "",
    alone: Sequence[str] = (),
) -> None:
    """`packages` with all that they need, and those `alone` without, as files below `folder`.

    They are those of the Debian release `suite`, or of the system's own sources.
    """
    state = BUILD / "apt" / f"{folder.name}-{architecture}{suite and '-'}{suite}"
    shutil.rmtree(state, ignore_errors=True)
    apt = ["apt-get", "-qy", *_options(state, architecture, suite)]
    run(*apt, "update")
    run(*apt, "install", "--download-only", "--no-install-recommends", *packages)
    archives = state / "cache" / "archives"
    if alone:
        run(*apt, "download", *alone, cwd=archives)
    for package in sorted(archives.glob("*.deb")):
        run("dpkg-deb", "-x", package, folder)
    for name in ("lib", "lib64"):  # newer releases have them below /usr alone
        if (folder / "usr" / name).exists() and not (folder / name).exists():
            (folder / name).symlink_to(f"usr/{name}")
    shutil.rmtree(state)


def _options(state: Path, architecture: str, suite: str) -> list[str]:
    for part in ("state/lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "installed").touch()  # nothing is, so that every dependency is fetched
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures::": architecture,
        "APT::Sandbox::User": "",
        "Dir::State": f"{state}/state",
        "Dir::State::status": f"{state}/installed",
        "Dir::Cache": f"{state}/cache",
    }
    sources = _of_suite(state, suite) if suite else SOURCES
    if sources.exists():  # without the repositories of others, which may lack the architecture
        options |= {"Dir::Etc::SourceList": str(sources), "Dir::Etc::SourceParts": "-"}
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _of_suite(state: Path, suite: str) -> Path:
    """A file of sources that has that release alone, from where the system gets its own."""
    said = SOURCES if SOURCES.exists() else OLDER_SOURCES
    (address, *_) = re.findall(r"^(?:URIs:|deb(?: \[.*\])?) *(\S+)", said.read_text(), re.MULTILINE)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    sources = state / "sources.list"
    sources.write_text(f"deb [signed-by={keys}] {address} {suite} main\n")
    return sources
