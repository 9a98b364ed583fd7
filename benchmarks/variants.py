"""Float models and what quantizers make of them, as files to be measured side by side."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.runner import attempt

if TYPE_CHECKING:
    from octavo.results.report import Report

FLOAT = "float"
QD, QD_CHANNEL = "quantize_dynamic", "quantize_dynamic per channel"
OCTAVO = "octavo int8"
NATIVE, NATIVE_ACCURATE = "octavo native int8", "octavo native int8-accurate"
OPENVINO = "OpenVINO"


_OCTAVO: dict[str, dict[str, Any]] = {
    OCTAVO: {},
    NATIVE: {"target": "native"},
    NATIVE_ACCURATE: {"target": "native", "recipe": "int8-accurate"},
    **{
        name: {"recipe": name}
        for name in ("int8-per-tensor", "int8-accurate", "int8-block", "float16")
    },
    "int8, qdq": {"quant_format": "qdq"},
    "int8, cpu any": {"cpu": "any"},
}
"""How `octavo.onnx.quantize_dynamic` is called."""
PRESETS = tuple(_OCTAVO)[3:]
"""Octavo's other presets and formats."""


@dataclass(frozen=True)
class Made:
    """Files by the name of what made them, Octavo's reports, and reasons for what is missing."""

    files: dict[str, Path]
    reports: dict[str, Report]
    refused: dict[str, str]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the advice that ONNX Runtime's quantizer logs on every call."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def onnxruntime_quantize(model: Path, out: Path, per_channel: bool = False) -> None:
    """`onnxruntime.quantization.quantize_dynamic`, its other arguments at their defaults."""
    from onnxruntime.quantization import quantize_dynamic

    with quiet():
        quantize_dynamic(str(model), str(out), per_channel=per_channel)


def octavo_quantize(model: Path, out: Path, **options: Any) -> Report:
    """`octavo.onnx.quantize_dynamic` without its own comparison: the benchmark makes one."""
    from octavo.onnx import quantize_dynamic

    return quantize_dynamic(model, out, verify=False, **options)


def quantized(name: str, model: Path, folder: Path) -> tuple[Path, Report | None]:
    """What the quantizer `name` makes of `model`, in `folder`; Octavo's come with a report."""
    if name == FLOAT:
        return model, None
    if name == OPENVINO:
        from benchmarks.peers_openvino import write_compressed

        return write_compressed(model, folder), None
    out = folder / f"{model.stem}.{name.replace(', ', '-').replace(' ', '-')}.onnx"
    if name in (QD, QD_CHANNEL):
        onnxruntime_quantize(model, out, per_channel=name == QD_CHANNEL)
        return out, None
    return out, octavo_quantize(model, out, **_OCTAVO[name])


def every(names: Iterable[str], model: Path, folder: Path) -> Made:
    """Each of `names`; what cannot be made has a reason."""
    made, refused = attempt(names, lambda name: quantized(name, model, folder))
    reports = {name: report for name, (_, report) in made.items() if report is not None}
    return Made({name: path for name, (path, _) in made.items()}, reports, refused)
