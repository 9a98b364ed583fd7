"""Models of several families: quantized while they load, saved, loaded again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from octavo.torch import quantize_dynamic, report
from octavo.torch.hub import OctavoConfig
from tests.torch.hub.families import FAMILIES, Family, checkpoint, load, outputs


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_as_quantize_dynamic_makes_it(family: Family, tmp_path: Path) -> None:
    folder = checkpoint(family, tmp_path / "float")
    expected = quantize_dynamic(load(family, folder), recipe="int8")
    inputs = family.inputs()
    made = load(family, folder, quantization_config=OctavoConfig())
    assert torch.equal(outputs(made, inputs), outputs(expected, inputs))
    said = {o.layer.name: (o.scheme, o.reason, o.sqnr_db) for o in report(made).layers}
    assert said == {o.layer.name: (o.scheme, o.reason, o.sqnr_db) for o in report(expected).layers}
    assert report(made).model_bytes_before == report(expected).model_bytes_before

    made.save_pretrained(tmp_path / "int8", max_shard_size="60kB")
    again = load(family, tmp_path / "int8")
    assert torch.equal(outputs(again, inputs), outputs(made, inputs))
    assert {n: t.dtype for n, t in again.state_dict().items()} == {
        n: t.dtype for n, t in made.state_dict().items()
    }
    assert report(again).layers == report(made).layers
