"""Defaults do no harm on real models: target native against portable, on real inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once
from pathlib import Path

import numpy as np
import pytest

from benchmarks.zoo import dnsmos, magika, minilm, nano_ocr, silero
from benchmarks.zoo.sessions import Array, Session, open_session
from octavo.core.metrics import relative_error
from octavo.onnx import quantize_dynamic
from octavo.results.report import Report

pytestmark = [pytest.mark.models, pytest.mark.slow]

NOTHING = 1e-4
"""An error of the output below which no figure of these models changes: a part in seventy."""

THIRD_MORE = 4 / 3

FILES = sorted(Path(__file__).parent.glob("*.py"))

MODELS: dict[str, tuple[Callable[[], Path], Callable[[Session], Array]]] = {
    "dnsmos": (dnsmos.model_path, dnsmos.scores),
    "magika": (
        magika.model_path,
        lambda s: s.run(None, {"bytes": magika.features(FILES)})[0],
    ),
    "minilm": (
        minilm.onnx_path,
        lambda s: minilm.hidden_states(s, minilm.tokenize(minilm.lee_documents()[:2])),
    ),
    "nano-ocr": (
        nano_ocr.onnx_path,
        lambda s: s.run(None, {"images": nano_ocr.images(16).numpy()})[0],
    ),
    **{
        f"silero, {name}": (lambda path=path: path, silero.frame_probabilities)  # type: ignore[misc]
        for name, path in silero.forms().items()
    },
}


@once
def floating(name: str) -> Array:
    path, outputs = MODELS[name]
    return np.asarray(outputs(open_session(path())))


def quantized(name: str, target: str, folder: Path) -> tuple[Array, Report]:
    path, outputs = MODELS[name]
    out = folder / f"{target}.onnx"
    report = quantize_dynamic(path(), out, target=target, verify=False)
    return np.asarray(outputs(open_session(out))), report


@pytest.mark.parametrize("name", MODELS)
def test_native_is_no_worse_than_portable(tmp_path: Path, name: str) -> None:
    """By a third more error at most, once it is an error that shows."""
    error = {}
    for target in ("portable", "native"):
        outputs, report = quantized(name, target, tmp_path)
        assert (report.quantized and not report.gains_nothing) or name == "dnsmos"
        error[target] = relative_error(floating(name), outputs)
    assert error["native"] < THIRD_MORE * max(error["portable"], NOTHING)


def test_transforms_of_a_signal_are_not_quantized(tmp_path: Path) -> None:
    """The mean error of DNSMOS's scores was 0.16 with its Fourier transform in integers."""
    reference = open_session(dnsmos.model_path())
    quantize_dynamic(dnsmos.model_path(), tmp_path / "native.onnx", target="native")
    assert dnsmos.mean_error(open_session(tmp_path / "native.onnx"), reference) < 0.015
    asked = {"op_types_to_quantize": ["Conv", "MatMul"], "target": "native"}
    quantize_dynamic(dnsmos.model_path(), tmp_path / "all.onnx", **asked)
    assert dnsmos.mean_error(open_session(tmp_path / "all.onnx"), reference) > 0.05
