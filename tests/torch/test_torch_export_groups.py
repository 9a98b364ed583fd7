"""`export_onnx` of layers with weights in groups, and of tied tables, for both targets."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch

from octavo.torch import export_onnx, quantize_dynamic
from tests.models import Tied, operators, relative, run

INDICES = torch.tensor([[0, 7, 499], [31, 16, 15]])


@pytest.mark.parametrize("recipe", ["int4", "int8"])
def test_a_native_file_has_the_bits_and_the_shared_weight_once(recipe: str, tmp_path: Path) -> None:
    model, path = quantize_dynamic(Tied(500, 100).eval(), recipe=recipe), tmp_path / "m.onnx"
    export_onnx(model, (INDICES,), path, target="native")
    (y,) = run(path, INDICES)
    with torch.no_grad():
        assert torch.equal(torch.from_numpy(y), model(INDICES))
    held = [
        t for t in onnx.load(path).graph.initializer if len(t.raw_data) == model.head.packed.nbytes
    ]
    assert len(held) == 1
    assert sorted({"Embedding", "Linear"} & {*operators(path)}) == ["Embedding", "Linear"]


def test_a_portable_file_has_the_same_integers(tmp_path: Path) -> None:
    model, path = quantize_dynamic(Tied(500, 100).eval(), recipe="int4"), tmp_path / "m.onnx"
    export_onnx(model, (INDICES,), path)
    (y,) = run(path, INDICES)
    with torch.no_grad():
        assert relative(y, model(INDICES).numpy()) < 0.05
    assert "MatMulNBits" in operators(path)
