"""Float models and what quantizers make of them, as files to be measured side by side."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.recipe import Report

FLOAT = "float"
QD, QD_CHANNEL = "quantize_dynamic", "quantize_dynamic per channel"
OCTAVO = "octavo int8"


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
    files = {FLOAT: model}
    for name, per_channel in ((QD, False), (QD_CHANNEL, True)):
        files[name] = folder / f"{model.stem}.qd{'-channel' * per_channel}.onnx"
        onnxruntime_quantize(model, files[name], per_channel)
    files[OCTAVO] = folder / f"{model.stem}.octavo.onnx"
    return files, octavo_quantize(model, files[OCTAVO])


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
