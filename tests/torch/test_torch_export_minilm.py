"""all-MiniLM-L6, quantized in PyTorch and exported: the same integers, and hardly less accurate."""

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
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import constants, operators

# One worker makes the models once.
pytestmark = [pytest.mark.models, pytest.mark.xdist_group("export of all-MiniLM-L6")]


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
def test_a_portable_file_has_the_integers_and_hardly_more_error(
    float_model: torch.nn.Module, quantized: torch.nn.Module, tmp_path: Path
) -> None:
    """Each is within .003 and .0013 of float; together they are within the sum of their angles."""
    path = export(quantized, tmp_path / "m.onnx", "portable")
    assert minilm.hidden_state_error(float_model, session(path)) <= 0.003
    error = minilm.hidden_state_error(quantized, session(path))
    assert error <= 1 - np.cos(np.arccos(1 - 0.003) + np.arccos(1 - 0.0013))
    found = constants(path)
    layers = {n: m for n, m in quantized.named_modules() if isinstance(m, QuantizedLinear)}
    # The integers of query, key and value stand beside each other.
    for i, name in enumerate(name for name in found if name.endswith("_together_quantized")):
        prefix = f"encoder.layer.{i}.attention.self."
        parts = [layers.pop(prefix + part) for part in ("query", "key", "value")]
        integers = np.concatenate([part.integers().numpy() for part in parts])
        scales = np.concatenate([part.scale.numpy() for part in parts])
        assert np.array_equal(found[name].T, integers), prefix
        assert np.array_equal(found[name.replace("quantized", "scale")], scales), prefix
    assert len(layers) == 36 - 3 * 6
    for name, layer in layers.items():
        assert np.array_equal(found[f"{name}.weight_quantized"].T, layer.integers().numpy()), name
        assert np.array_equal(found[f"{name}.weight_scale"], layer.scale.numpy()), name


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
    found = constants(native)
    for name, layer in quantized.named_modules():
        if isinstance(layer, QuantizedLinear):
            assert found[f"{name}.weight_quantized"].tobytes() == layer.packed.numpy().tobytes()
