"""Prompts through four layers of a Llama of a billion parameters: ONNX files and OpenVINO.

The whole model would be several GB as a float file, which every quantizer here reads; a layer takes
the same time wherever it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import latency
from benchmarks.families_aims import Aims
from benchmarks.latency import Setting
from benchmarks.peers_openvino import write_int4
from benchmarks.results import Row, say
from benchmarks.rows import Asked, speed_rows
from benchmarks.runner import attempt
from benchmarks.variants import octavo_quantize, quiet
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Size

NATIVE = "octavo native int4"
LEVELS = {"ONNX Runtime, accuracy level 4": 4, "ONNX Runtime, accuracy level 0": 0}
OPENVINO = {"OpenVINO, groups of 128": 128, "OpenVINO, groups of 32": 32}
LEAST = {"ONNX Runtime, accuracy level 4": 2.0} | dict.fromkeys(OPENVINO, 1.2)
PROMPTS = (256, 512)
TITLE = "Four layers of a Llama of a billion parameters, ONNX"


def rows(section: str, folder: Path, setting: Setting, aims: Aims) -> Iterator[Row]:
    """Octavo's native file over each of the others; `folder` keeps the files."""
    from benchmarks.zoo import family_exports, family_models

    say(section)
    family = FAMILIES["Llama"]
    made, refused = attempt((NATIVE, *LEVELS, *OPENVINO), lambda name: _file(name, folder))
    feeds = {
        f"{length} tokens": family_exports.numpy_feed(
            family_models.feed(family, Size.PUBLISHED, 1, length)
        )
        for length in PROMPTS
    }
    found = latency.compare(made, feeds, setting)
    asked = [
        Asked(NATIVE, name, mean=LEAST.get(name), each=LEAST.get(name))
        for name in (*LEVELS, *OPENVINO)
    ]
    yield from speed_rows(found, asked, section, refused)


def _file(name: str, folder: Path) -> Path:
    from benchmarks.zoo import family_exports

    folder.mkdir(parents=True, exist_ok=True)
    export = family_exports.Export("dynamo", "sdpa")
    exact = family_exports.onnx_path(FAMILIES["Llama"], Size.PUBLISHED, export)
    title = name.replace(", ", "-").replace(" ", "-")
    if name in OPENVINO:
        path = folder / f"{title}.int4.openvino.xml"
        return path if path.is_file() else write_int4(exact, path, OPENVINO[name])
    path = folder / f"{title}.onnx"
    if path.is_file():
        return path
    if name == NATIVE:
        octavo_quantize(exact, path, recipe="int4", target="native")
    else:
        _matmul_nbits(exact, path, LEVELS[name])
    return path


def _matmul_nbits(model: Path, out: Path, level: int) -> None:
    """ONNX Runtime's own quantizer: groups of 32, symmetric."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    with quiet():
        quantizer = MatMulNBitsQuantizer(
            onnx.load(model), block_size=32, is_symmetric=True, accuracy_level=level
        )
        quantizer.process()
        quantizer.model.save_model_to_file(str(out), use_external_data_format=False)
