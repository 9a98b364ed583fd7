"""Exports are whole or not there, made once, and compared with the module that they came from."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import onnx
import pytest
import torch

from benchmarks.zoo import export, nano_ocr
from benchmarks.zoo.sessions import open_session

pytestmark = pytest.mark.slow


def test_a_file_is_made_once(cache: Path) -> None:
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("whole")

    first, second = export.cached("a.onnx", make), export.cached("a.onnx", make)
    assert first == second == cache / "models" / "a.onnx"
    assert first.read_text() == "whole"
    assert len(made) == 1


def test_a_file_may_be_made_of_another_of_its_stem(cache: Path) -> None:
    """As a model of its weights: whoever waited for itself would wait for ever."""

    def write_weights(path: Path) -> None:
        path.write_text("weights")

    def export_it(path: Path) -> None:
        weights = export.cached("a.pt", write_weights)
        path.write_text(f"{weights.read_text()}, exported")

    made: list[Path] = []
    wait = Thread(target=lambda: made.append(export.cached("a.onnx", export_it)), daemon=True)
    wait.start()
    wait.join(30)
    assert made == [cache / "models" / "a.onnx"]
    assert made[0].read_text() == "weights, exported"


def test_what_fails_leaves_nothing(cache: Path) -> None:
    def make(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        export.cached("a.onnx", make)
    assert not list((cache / "models").iterdir())


def test_an_export_takes_any_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten()).eval()
    path = tmp_path / "model.onnx"
    export.export_images(model, torch.randn(4, 1, 5, 5), {"images": 0, "made": 0}, path)
    x = torch.randn(7, 1, 5, 5)
    (got,) = open_session(path).run(["made"], {"images": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), model(x).detach(), atol=1e-5, rtol=0)


def test_an_export_that_differs_is_refused(tmp_path: Path) -> None:
    class Noise(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + float(x.shape[0])  # a trace keeps the number of its example

    with pytest.raises(RuntimeError, match=r"the export m.onnx differs from PyTorch by"):
        export.export_images(Noise(), torch.ones(4, 1, 2, 2), {"x": 0, "y": 0}, tmp_path / "m.onnx")


@pytest.mark.models
def test_nano_ocr_reads_the_same_as_a_file() -> None:
    path = nano_ocr.onnx_path()
    groups = {a.i for n in onnx.load(path).graph.node for a in n.attribute if a.name == "group"}
    assert groups == {1}
    read = nano_ocr.transcribe(open_session(path), 40)
    assert read == nano_ocr.transcribe(nano_ocr.torch_model(), 40, batch=20)
