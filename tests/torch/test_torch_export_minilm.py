"""all-MiniLM-L6, quantized in PyTorch and exported: the same integers, and hardly less accurate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.zoo import minilm
from octavo.onnx import session
from octavo.torch import export_onnx, quantize_dynamic
from octavo.torch.modules.linear import QuantizedLinear
from tests.torch.exporting import constants

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def float_model() -> torch.nn.Module:
    return minilm.torch_model()


@pytest.fixture(scope="module")
def quantized(float_model: torch.nn.Module) -> torch.nn.Module:
    return quantize_dynamic(float_model)


@pytest.fixture(scope="module")
def path(quantized: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    example = minilm.tokenize(["one", "and one longer text"])  # a mask with zeros
    feed = {name: torch.from_numpy(example[name]) for name in minilm.INPUT_NAMES}
    found = tmp_path_factory.mktemp("minilm") / "m.onnx"
    told = export_onnx(
        quantized,
        (),
        found,
        kwargs=feed,
        input_names=list(feed),
        output_names=["last_hidden_state"],
        dynamic_shapes={name: {0: "batch", 1: "sequence"} for name in feed},
    )
    assert told.operators == {"linear": 36} and told.min_onnxruntime == "1.17"
    return found


def test_its_error(float_model: torch.nn.Module, path: Path) -> None:
    assert minilm.hidden_state_error(float_model, session(path)) <= 0.003


def test_it_agrees_with_pytorch(quantized: torch.nn.Module, path: Path) -> None:
    """Each is within .003 and .0013 of float; together they are within the sum of their angles."""
    error = minilm.hidden_state_error(quantized, session(path))
    assert error <= 1 - np.cos(np.arccos(1 - 0.003) + np.arccos(1 - 0.0013))


def test_its_integers(quantized: torch.nn.Module, path: Path) -> None:
    found = constants(path)
    layers = {n: m for n, m in quantized.named_modules() if isinstance(m, QuantizedLinear)}
    assert len(layers) == 36
    for name, layer in layers.items():
        assert np.array_equal(found[f"{name}.weight_quantized"].T, layer.integers().numpy()), name
        assert np.array_equal(found[f"{name}.weight_scale"], layer.scale.numpy()), name
