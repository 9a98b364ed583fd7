"""The pictures are what they should be, and the CNN trained on them is the same as a file."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from benchmarks.zoo import fashion_mnist
from benchmarks.zoo.sessions import open_session

pytestmark = pytest.mark.slow


@pytest.mark.models
def test_the_pictures_are_those_of_the_data_set() -> None:
    images, labels = fashion_mnist.images(), fashion_mnist.labels()
    assert images.shape == (10_000, 1, 28, 28)
    assert (images.min(), images.max()) == (0, 1)
    assert images.mean() == pytest.approx(0.2868, abs=1e-4)  # as published of the test set
    assert np.bincount(labels).tolist() == [1000] * fashion_mnist.CLASSES
    assert labels[:5].tolist() == [9, 2, 1, 1, 6]


@pytest.mark.models
def test_the_float_model_reads_most_of_them_and_so_does_its_file() -> None:
    exact = fashion_mnist.accuracy(fashion_mnist.torch_model())
    assert exact == pytest.approx(0.888, abs=0.015)  # threads change the sums of the training
    found = fashion_mnist.accuracy(open_session(fashion_mnist.onnx_path()))
    assert found == pytest.approx(exact, abs=2e-4)


@pytest.fixture
def small(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data set of 200 grey squares, dark or bright, that stands in the real one's place."""
    folder = tmp_path / "usr" / "share" / "datasets" / "fashion-mnist"
    folder.mkdir(parents=True)
    random = np.random.RandomState(0)
    for part in ("train", "t10k"):
        labels = random.randint(0, 2, 200).astype(np.uint8)
        pixels = random.randint(0, 100, (200, 28, 28)) + labels[:, None, None] * 150
        head = struct.pack(">IIII", 2051, 200, 28, 28)
        for kind, data in (
            ("images-idx3", head + pixels.astype(np.uint8).tobytes()),
            ("labels-idx1", struct.pack(">II", 2049, 200) + labels.tobytes()),
        ):
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(data))
    monkeypatch.setattr(fashion_mnist, "fetch", lambda name: tmp_path)
    monkeypatch.setattr(fashion_mnist, "_BATCH", 10)
    for cached in (fashion_mnist.images, fashion_mnist.labels):
        cached.cache_clear()
    yield tmp_path
    for cached in (fashion_mnist.images, fashion_mnist.labels):
        cached.cache_clear()


def test_training_learns_and_is_kept(small: Path, cache: Path) -> None:
    model = fashion_mnist.torch_model()
    path = fashion_mnist.onnx_path()
    assert {file.suffix for file in (cache / "models").iterdir()} == {".pt", ".onnx"}
    again = fashion_mnist.torch_model().state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    assert fashion_mnist.accuracy(model) > 0.95  # half of them by chance
    assert fashion_mnist.accuracy(open_session(path)) == fashion_mnist.accuracy(model)
    graph = onnx.load(path).graph
    assert [node.op_type for node in graph.node if node.op_type in ("Conv", "Gemm")] == [
        *["Conv"] * 3,
        *["Gemm"] * 2,
    ]
