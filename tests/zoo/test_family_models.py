"""The families' models: the same each time, of sane activations; exports that cannot be say why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.zoo import family_exports, family_models
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Size
from benchmarks.zoo.family_exports import Export, ExportError

pytestmark = pytest.mark.slow

pytest.importorskip("transformers")

LLAMA = FAMILIES["Llama"]


def test_weights_are_the_same_each_time() -> None:
    first, again, other = (
        family_models.model(LLAMA, Size.SMALL, seed=seed).state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(
        first["layers.0.mlp.up_proj.weight"], other["layers.0.mlp.up_proj.weight"]
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_activations_are_of_order_one(name: str) -> None:
    """And attention is not uniform: what the first token is changes the last."""
    family = FAMILIES[name]
    module = family_models.model(family, Size.SMALL, family.spellings[-1])
    given = family_models.feed(family, Size.SMALL, 2, 9)
    with torch.no_grad():
        found = family_models.output(module(**given))
        key = next(iter(given))
        other = {**given, key: given[key].clone()}
        other[key][:, 0] = other[key][:, -1]
        changed = family_models.output(module(**other))
    assert 0.3 < float(found.std()) < 3 and float(found.abs().max()) < 20
    assert float((changed - found)[:, -1].norm() / found[:, -1].norm()) > 0.02


def test_an_export_that_cannot_be_says_why(cache: Path) -> None:
    export = Export("torchscript", "eager")
    with pytest.raises(ExportError, match=r"Whisper decoder, torchscript eager: .*aten::diff"):
        family_exports.onnx_path(FAMILIES["Whisper decoder"], Size.SMALL, export)
    assert not list(cache.glob("models/*"))
