"""Families of transformers by name as ONNX files of both exporters, in target native.

`make test` has one export of each family that differs from others in more than its sizes, and two
by PyTorch's newer exporter, which takes ten times as long; the rest is slow.
"""

from __future__ import annotations

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

ALIKE = {"BART encoder", "CLIP vision", "DINOv2", "DeiT", "DistilBERT", "ELECTRA", "Mistral"}
ALIKE |= {"Qwen2", "RoBERTa", "Qwen3", "Phi-3", "OPT", "Marian", "Gemma 2"}
"""Families whose graphs are those of others, or nearly so."""
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
            left_out |= (family.name, export.exporter) in CANNOT
            marks = (pytest.mark.slow,) if left_out else ()
            found.append(pytest.param(family, export, id=f"{family.name}, {export}", marks=marks))
    return found


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
    mask = feed.get("attention_mask")
    if mask is None or "decoder_input_ids" in feed or found.shape[:2] != mask.shape:
        return found
    rows: Array = found[mask.astype(bool)]
    return rows


def exported(family: Family, export: Export) -> Path:
    """The float file; skips what the exporter cannot write."""
    try:
        return family_exports.onnx_path(family, Size.SMALL, export)
    except ExportError as error:
        reason = CANNOT.get((family.name, export.exporter))
        assert reason is not None and reason in str(error), error
        pytest.skip(f"the exporter cannot write it: {reason}")


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("family", "export"), cases())
def test_it_is_near_float_and_every_attention_is_one_node(
    tmp_path: Path, family: Family, export: Export
) -> None:
    torch.set_num_threads(1)
    source, path = exported(family, export), tmp_path / "native.onnx"
    report = quantize_dynamic(source, path, target="native", verify=False)
    sessions = [open_session(each) for each in (source, path)]
    for feed in feeds(family, source):
        exact, found = (real(feed, session.run(None, feed)[0]) for session in sessions)
        assert found.shape == exact.shape
        assert 0 < np.linalg.norm(found - exact) < MOST_ERROR * np.linalg.norm(exact)
    nodes, count = onnx.load(path).graph.node, family.count(Size.SMALL)
    attentions = sum(n.op_type == "Attention" and n.domain == "ai.octavo" for n in nodes)
    notes = [note for note in report.notes if note.startswith(LEFT)]
    listed = sum(len(note.rpartition(": ")[2].split(", ")) for note in notes)
    left = count if family.name in APART else 0
    assert (attentions, listed) == (count - left, left)


@pytest.mark.parametrize("spelling", ["eager", "sdpa"])
def test_both_implementations_lie_as_rows(tmp_path: Path, spelling: str) -> None:
    """Nothing is turned or computed of sizes in a layer of an encoder."""
    source, path = exported(FAMILIES["BERT"], Export("torchscript", spelling)), tmp_path / "n.onnx"
    quantize_dynamic(source, path, target="native", verify=False)
    nodes = list(onnx.load(path).graph.node)
    attentions = [n for n in nodes if n.op_type == "Attention"]
    assert not [a.name for n in attentions for a in n.attribute if a.name == "layouts"]
    behind = nodes[nodes.index(attentions[0]) :]
    assert not {"Transpose", "Reshape", "Shape"} & {n.op_type for n in behind}
