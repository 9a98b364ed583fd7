"""all-MiniLM-L6, quantized in PyTorch and exported: fused, and hardly less accurate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.zoo import minilm
from octavo.onnx import session
from octavo.torch import export_onnx, quantize_dynamic
from tests.models import operators

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def float_model() -> torch.nn.Module:
    return minilm.torch_model()


@pytest.fixture(scope="module")
def quantized(float_model: torch.nn.Module) -> torch.nn.Module:
    return quantize_dynamic(float_model)


def export(quantized: Any, path: Path, target: str) -> Path:
    example = minilm.tokenize(["one", "and one longer text"])  # a mask with zeros
    feed = {name: torch.from_numpy(example[name]) for name in minilm.INPUT_NAMES}
    told = export_onnx(
        quantized,
        (),
        path,
        target,
        kwargs=feed,
        input_names=list(feed),
        output_names=["last_hidden_state"],
        dynamic_shapes={name: {0: "batch", 1: "sequence"} for name in feed},
    )
    assert told.operators == {"linear": 36} and told.min_onnxruntime == "1.17"
    return path


@pytest.mark.slow
def test_a_portable_file_has_hardly_more_error(
    float_model: torch.nn.Module, quantized: torch.nn.Module, tmp_path: Path
) -> None:
    """Each is within .003 and .0013 of float; together they are within the sum of their angles."""
    path = export(quantized, tmp_path / "m.onnx", "portable")
    assert minilm.hidden_state_error(float_model, session(path)) <= 0.003
    error = minilm.hidden_state_error(quantized, session(path))
    assert error <= 1 - np.cos(np.arccos(1 - 0.003) + np.arccos(1 - 0.0013))


@pytest.mark.slow
def test_a_native_file_is_fused_and_has_the_error_of_the_model(
    float_model: torch.nn.Module, quantized: torch.nn.Module, tmp_path: Path
) -> None:
    """The float operators between the layers round otherwise, and some integers lie between two.

    Noise of 1e-7 on the embeddings alone takes the quantized model .00054 away from itself.
    """
    native = export(quantized, tmp_path / "m.onnx", "native")
    assert minilm.hidden_state_error(float_model, session(native)) <= 0.0014
    assert minilm.hidden_state_error(quantized, session(native)) <= 0.0008
    ops = Counter(operators(native))
    assert (ops["GroupedLinear"], ops["Attention"], ops["Linear"]) == (6, 6, 18)
    assert not {"Gelu", "Erf", "Softmax", "MatMul"} & set(ops)
