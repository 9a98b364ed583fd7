"""Families of transformers by name as ONNX files of both exporters, in target native.

`make test` has one export of each family that differs from others in more than its sizes, and two
by PyTorch's newer exporter, which takes ten times as long; the rest is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from benchmarks.zoo import family_exports, family_models
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family, Size
from benchmarks.zoo.family_exports import Export, ExportError
from benchmarks.zoo.sessions import Array, Feed, open_session
from octavo.graph.rewrite.attention import LEFT
from octavo.onnx import quantize_dynamic
from tests.native_target.more_families import MORE

pytest.importorskip("transformers")

ALIKE = (
    "BART encoder",
    "CLIP vision",
    "DINOv2",
    "DeiT",
    "DistilBERT",
    "ELECTRA",
    "Mistral",
    "Qwen2",
    "RoBERTa",
)
"""Families whose graphs are those of others."""
ALSO = {"BERT": "torchscript eager", "Llama": "dynamo sdpa", "ViT": "dynamo eager"}
"""Exports beside the one that `make test` has of each family."""
MOST_ERROR = 0.05
"""Norm of the difference from float as a share of float's: of two layers in 8 bits. A wrong mask is
off by 0.4."""
CANNOT = {
    ("Whisper decoder", "torchscript"): "aten::diff",
    ("Cohere", "torchscript"): "Expand input shape constraint",
    ("XLNet", "dynamo"): "Failed to decompose",
}
"""What an exporter cannot write, with a part of its reason."""

APART = {
    "BLOOM": "the size of batch and heads, which are one axis, is a product",
    "Funnel": "products are Einsums over other axes",
    "XLNet": "products are Einsums over other axes",
}
"""Families whose attention stays as it is, and why; the report says it of each."""


def cases() -> list[Any]:
    """Every export of every family; slow but for a few."""
    found = []
    for family in (*FAMILIES.values(), *MORE):
        chosen = {f"torchscript {family.spellings[-1]}", ALSO.get(family.name, "")}
        for export in family_exports.exports(family):
            left_out = family in MORE or family.name in ALIKE or str(export) not in chosen
            marks = (pytest.mark.slow,) if left_out else ()
            found.append(pytest.param(family, export, id=f"{family.name}, {export}", marks=marks))
    return found


@dataclass(frozen=True)
class Converted:
    """A float file, and what became of it."""

    source: Path
    path: Path
    attentions: int
    left: int
    """Softmaxes between two products that are none, as the report lists them."""


class Files:
    """Each is converted once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Converted] = {}

    def converted(self, family: Family, export: Export) -> Converted:
        """Skips what the exporter cannot write."""
        try:
            source = family_exports.onnx_path(family, Size.SMALL, export)
        except ExportError as error:
            reason = CANNOT.get((family.name, export.exporter))
            assert reason is not None and reason in str(error), error
            pytest.skip(f"the exporter cannot write it: {reason}")
        if source.name not in self._made:
            path = self._folder / f"{len(self._made)}.onnx"
            report = quantize_dynamic(source, path, target="native", verify=False)
            nodes = onnx.load(path).graph.node
            count = sum(n.op_type == "Attention" and n.domain == "ai.octavo" for n in nodes)
            left = [note for note in report.notes if note.startswith(LEFT)]
            listed = sum(len(note.rpartition(": ")[2].split(", ")) for note in left)
            self._made[source.name] = Converted(source, path, count, listed)
        return self._made[source.name]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    torch.set_num_threads(1)
    return Files(tmp_path_factory.mktemp("families"))


def feeds(family: Family, source: Path) -> list[Feed]:
    """Of other sizes than the file was exported with, and padded, where it takes them."""
    if not family_exports.open_axes(source):
        return [family_exports.numpy_feed(family_models.feed(family, Size.SMALL, 1, 12))]
    given = [
        family_models.feed(family, Size.SMALL, 1, 12),
        family_models.feed(family, Size.SMALL, 3, 17, seed=1),
    ]
    if "attention_mask" in given[0]:
        given.append(family_models.feed(family, Size.SMALL, 3, 10, padded=True))
    return [family_exports.numpy_feed(each) for each in given]


def real(feed: Feed, found: Array) -> Array:
    """Without the rows of padding."""
    mask = feed.get("attention_mask")
    if mask is None or "decoder_input_ids" in feed or found.shape[:2] != mask.shape:
        return found
    rows: Array = found[mask.astype(bool)]
    return rows


@pytest.mark.parametrize(("family", "export"), cases())
def test_it_loads_and_is_near_float(files: Files, family: Family, export: Export) -> None:
    converted = files.converted(family, export)
    sessions = [open_session(path) for path in (converted.source, converted.path)]
    for feed in feeds(family, converted.source):
        exact, found = (real(feed, session.run(None, feed)[0]) for session in sessions)
        assert found.shape == exact.shape
        assert 0 < np.linalg.norm(found - exact) < MOST_ERROR * np.linalg.norm(exact)


@pytest.mark.parametrize(("family", "export"), cases())
def test_every_attention_is_one_node(files: Files, family: Family, export: Export) -> None:
    converted, count = files.converted(family, export), family.count(Size.SMALL)
    left = count if family.name in APART else 0
    assert (converted.attentions, converted.left) == (count - left, left)
