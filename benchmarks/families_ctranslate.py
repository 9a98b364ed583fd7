"""Whisper's encoder in CTranslate2, int8, of the zoo's random weights."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.zoo.export import versions
from benchmarks.zoo.family import Family, Size
from benchmarks.zoo.fetch import cache_dir
from benchmarks.zoo.sessions import Feed

SUFFIX = ".ctranslate2"


def encoder_folder(family: Family) -> Path:
    """The converted model, a folder whose name ends in SUFFIX, made if the cache lacks it."""
    name = f"family-whisper-{versions('ctranslate2', 'torch', 'transformers')}{SUFFIX}"
    path = cache_dir() / "models" / name
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as work:
            made = Path(work, "made")
            _convert(family, made)
            shutil.move(made, path)
    return path


def _convert(family: Family, folder: Path) -> None:
    from ctranslate2.converters.transformers import WhisperLoader

    from benchmarks.zoo import family_models
    from benchmarks.zoo.families import FAMILIES

    whole = family_models.model(
        FAMILIES["Whisper decoder"], Size.PUBLISHED, family.spellings[-1], head=True
    )
    spec = WhisperLoader().get_model_spec(whole)
    spec.register_vocabulary([f"<{i}>" for i in range(whole.config.vocab_size)])
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir()
    spec.save(str(folder))


def bound(folder: Path, threads: int) -> Callable[[Feed], Callable[[], object]]:
    """What binds a feed of `input_features` to the encoder."""
    import ctranslate2

    model = ctranslate2.models.Whisper(
        str(folder), device="cpu", compute_type="int8_float32", intra_threads=threads
    )

    def bind(feed: Feed) -> Callable[[], object]:
        features = np.ascontiguousarray(feed["input_features"])
        given = ctranslate2.StorageView.from_array(features)
        return lambda: model.encode(given)

    return bind
