"""The pictures are what they should be, and the CNN trained on them is the same as a file."""

from __future__ import annotations

import numpy as np
import pytest

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
