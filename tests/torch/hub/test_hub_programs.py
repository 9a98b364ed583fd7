"""Models that were quantized while they were loaded, as programs: AOTInductor, ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.onnx import session
from octavo.torch import export_onnx
from octavo.torch.hub import OctavoConfig, export
from tests.models import relative
from tests.torch.hub.families import BERT, checkpoint, load, outputs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = checkpoint(BERT, tmp_path_factory.mktemp("hub") / "float")
    return load(BERT, folder, quantization_config=OctavoConfig())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_aotinductor(quantized: Any, tmp_path: Path) -> None:
    inputs = BERT.inputs()
    with torch.no_grad():
        program = torch.export.export(quantized, (), inputs, strict=False)
        path = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(tmp_path / "bert.pt2"),
            inductor_configs={"cpp_cache_precompile_headers": False},
        )
        found = torch._inductor.aoti_load_package(path)(**inputs)
    first = found[0] if isinstance(found, (tuple, list)) else found.last_hidden_state
    assert relative(first, outputs(quantized, inputs)) < 0.02


def test_export_onnx(quantized: Any, tmp_path: Path) -> None:
    inputs = BERT.inputs()
    axes = {"input_ids": {0: "batch", 1: "tokens"}}
    export_onnx(quantized, (), tmp_path / "m.onnx", "native", kwargs=inputs, dynamic_shapes=axes)
    given = {"input_ids": inputs["input_ids"].repeat(2, 2)}
    found = session(tmp_path / "m.onnx").run(None, {k: v.numpy() for k, v in given.items()})[0]
    assert relative(found, outputs(quantized, given)) < 0.02


def test_a_quantized_model_is_exported_as_it_is(quantized: Any, tmp_path: Path) -> None:
    """The check then compares with the quantized model."""
    made = export(quantized, tmp_path / "out")
    assert made.verification.error < 1e-3
    assert made.recipe["name"] == "int8"
