"""`export_onnx` of layers with weights in groups, and of tied tables, for both targets."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from octavo.torch import export_onnx, quantize_dynamic
from tests.models import operators, relative, run

INDICES = torch.tensor([[0, 7, 499], [31, 16, 15]])


class Tied(nn.Module):  # type: ignore[misc]
    """An embedding and the output layer that has its weight, with a block between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(500, 100)
        self.up, self.down = nn.Linear(100, 72), nn.Linear(72, 100)
        self.head = nn.Linear(100, 500, bias=False)
        self.head.weight = self.table.weight

    def forward(self, indices: Tensor) -> Tensor:
        x = self.table(indices)
        return self.head(x + self.down(torch.relu(self.up(x))))


@pytest.mark.parametrize("recipe", ["int4", "int8"])
def test_a_native_file_has_the_bits_and_the_shared_weight_once(recipe: str, tmp_path: Path) -> None:
    model, path = quantize_dynamic(Tied().eval(), recipe=recipe), tmp_path / "m.onnx"
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
    model, path = quantize_dynamic(Tied().eval(), recipe="int4"), tmp_path / "m.onnx"
    export_onnx(model, (INDICES,), path)
    (y,) = run(path, INDICES)
    with torch.no_grad():
        assert relative(y, model(INDICES).numpy()) < 0.05
    assert "MatMulNBits" in operators(path)
