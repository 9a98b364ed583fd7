"""Float models and what quantizers make of them, as files to be measured side by side."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.sections import reason
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.recipe import Report

FLOAT = "float"
QD, QD_CHANNEL = "quantize_dynamic", "quantize_dynamic per channel"
OCTAVO = "octavo int8"
NATIVE, NATIVE_ACCURATE = "octavo native int8", "octavo native int8-accurate"
OPENVINO = "OpenVINO"


@dataclass(frozen=True)
class Preset:
    """One way to call `octavo.onnx.quantize_dynamic`."""

    name: str
    options: dict[str, Any]


PRESETS = (
    Preset("int8-per-tensor", {"recipe": "int8-per-tensor"}),
    Preset("int8-accurate", {"recipe": "int8-accurate"}),
    Preset("int8-block", {"recipe": "int8-block"}),
    Preset("float16", {"recipe": "float16"}),
    Preset("int8, qdq", {"quant_format": "qdq"}),
    Preset("int8, cpu any", {"cpu": "any"}),
)


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


def four(model: Path, folder: Path) -> tuple[dict[str, Path], Report]:
    """The float model, both of ONNX Runtime's results and Octavo's; files are made in `folder`."""
    files, report = {FLOAT: model}, None
    for name in (QD, QD_CHANNEL, OCTAVO):
        files[name], report = quantized(name, model, folder)
    assert report is not None
    return files, report


def quantized(name: str, model: Path, folder: Path) -> tuple[Path, Report | None]:
    """What the quantizer `name` makes of `model`, in `folder`; Octavo's come with a report."""
    if name == FLOAT:
        return model, None
    if name == OPENVINO:
        from benchmarks.openvino_session import write_compressed

        return write_compressed(model, folder), None
    out = folder / f"{model.stem}.{name.replace(' ', '-')}.onnx"
    if name in (QD, QD_CHANNEL):
        onnxruntime_quantize(model, out, per_channel=name == QD_CHANNEL)
        return out, None
    options = {
        OCTAVO: {},
        NATIVE: {"target": "native"},
        NATIVE_ACCURATE: {"target": "native", "recipe": "int8-accurate"},
    }[name]
    return out, octavo_quantize(model, out, **options)


def every(names: Iterable[str], model: Path, folder: Path) -> Made:
    """Each of `names`; what cannot be made has a reason."""
    made = Made({}, {}, {})
    for name in names:
        try:
            made.files[name], report = quantized(name, model, folder)
        except Exception as error:  # noqa: BLE001  # a figure that cannot be measured is missed
            made.refused[name] = reason(error)
        else:
            if report is not None:
                made.reports[name] = report
    return made


def presets(model: Path, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Octavo's other presets and formats: files, and reasons where one refuses the model."""
    files, refused = {}, {}
    for preset in PRESETS:
        path = folder / f"{model.stem}.{preset.name.replace(', ', '-').replace(' ', '-')}.onnx"
        try:
            octavo_quantize(model, path, **preset.options)
        except OctavoError as error:
            refused[preset.name] = str(error)
        else:
            files[preset.name] = path
    return files, refused
