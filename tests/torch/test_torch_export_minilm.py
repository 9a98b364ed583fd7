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
from octavo.torch.export import Exported
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


@pytest.fixture(scope="module")
def path(quantized: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("minilm") / "m.onnx"
    told = export(quantized, found, "portable")
    assert told.operators == {"linear": 36} and told.min_onnxruntime == "1.17"
    return found


def export(quantized: Any, path: Path, target: str) -> Exported:
    example = minilm.tokenize(["one", "and one longer text"])  # a mask with zeros
    feed = {name: torch.from_numpy(example[name]) for name in minilm.INPUT_NAMES}
    return export_onnx(
        quantized,
        (),
        path,
        target,
        kwargs=feed,
        input_names=list(feed),
        output_names=["last_hidden_state"],
        dynamic_shapes={name: {0: "batch", 1: "sequence"} for name in feed},
    )


@pytest.mark.slow
def test_its_error(float_model: torch.nn.Module, path: Path) -> None:
    assert minilm.hidden_state_error(float_model, session(path)) <= 0.003


@pytest.mark.slow
def test_it_agrees_with_pytorch(quantized: torch.nn.Module, path: Path) -> None:
    """Each is within .003 and .0013 of float; together they are within the sum of their angles."""
    error = minilm.hidden_state_error(quantized, session(path))
    assert error <= 1 - np.cos(np.arccos(1 - 0.003) + np.arccos(1 - 0.0013))


@pytest.mark.slow
def test_its_integers(quantized: torch.nn.Module, path: Path) -> None:
    """Those of query, key and value stand beside each other."""
    found = constants(path)
    layers = {n: m for n, m in quantized.named_modules() if isinstance(m, QuantizedLinear)}
    assert len(layers) == 36
    together = [name for name in found if name.endswith("_together_quantized")]
    for i, name in enumerate(together):
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


# --- target native: slow, as test_torch_export_native has each layer of it ---


@pytest.fixture(scope="module")
def native(quantized: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("minilm") / "native.onnx"
    told = export(quantized, found, "native")
    assert told.operators == {"linear": 36} and told.notes == ()
    assert told.min_onnxruntime == "1.17"
    return found


@pytest.mark.slow
def test_the_native_file_is_fused(native: Path) -> None:
    found = Counter(operators(native))
    assert {op: found[op] for op in ("GroupedLinear", "Attention", "Linear")} == {
        "GroupedLinear": 6,
        "Attention": 6,
        "Linear": 18,
    }
    assert not {"Gelu", "Erf", "Softmax", "MatMul"} & set(found)


@pytest.mark.slow
def test_its_error_is_that_of_the_model(
    float_model: torch.nn.Module, quantized: torch.nn.Module, native: Path
) -> None:
    """The float operators between the layers round otherwise, and some integers lie between two.

    Noise of 1e-7 on the embeddings alone takes the quantized model .00054 away from itself.
    """
    assert minilm.hidden_state_error(float_model, session(native)) <= 0.0014
    assert minilm.hidden_state_error(quantized, session(native)) <= 0.0008


@pytest.mark.slow
def test_its_weights_are_the_packed_buffers(quantized: torch.nn.Module, native: Path) -> None:
    found = constants(native)
    for name, layer in quantized.named_modules():
        if isinstance(layer, QuantizedLinear):
            w = found[f"{name}.weight_quantized"]
            assert w.tobytes() == layer.packed.numpy().tobytes(), name
            assert np.array_equal(found[f"{name}.weight_scale"], layer.scale.numpy()), name
