"""Files that others quantized, converted to target native, beside the files as they were.

`python -m benchmarks.quantized_files [--quick]`. Architectures with random weights, exported and
quantized with ONNX Runtime's quantizer as transformers.js does it (`model_quantized.onnx`), and
with its defaults; and Kokoro-82M as it is shipped, in integers.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import latency, rows, runner
from benchmarks.families_onnx import output_error
from benchmarks.latency import Setting
from benchmarks.results import Row, say
from benchmarks.runner import reason
from benchmarks.variants import quiet
from benchmarks.zoo import kokoro
from benchmarks.zoo.export import cached, versions
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family, Size
from benchmarks.zoo.sessions import open_session

ARCHITECTURES = (
    "BERT",
    "DistilBERT",
    "RoBERTa",
    "MPNet",
    "ViT",
    "CLIP text",
    "Whisper encoder",
    "Whisper decoder",
    "T5 encoder",
    "T5 decoder",
    "GPT-2",
)
AS_IT_WAS, CONVERTED = "as it was", "converted"
LEAST_MEAN, LEAST = 1.3, 1.0
KOKORO_LEAST, TOKENS = 2.0, 48
PROCESSES = 3
_RECIPE = 1  # raise when the files would be others
FORMS: Mapping[str, Mapping[str, Any]] = {
    "transformers.js": {"per_channel": True, "reduce_range": True},
    "defaults": {},
}
"""Arguments of `quantize_dynamic`; models with convolutions get uint8 weights, as there."""


def families(quick: bool) -> list[Family]:
    """Those that are measured."""
    return [FAMILIES[name] for name in (ARCHITECTURES[::4] if quick else ARCHITECTURES)]


def float_file(family: Family) -> Path:
    """Its export by PyTorch's older exporter, as optimum uses it, or by the newer one."""
    from benchmarks.zoo import family_exports

    first, *_, last = family_exports.exports(family)
    try:
        return family_exports.onnx_path(family, Size.PUBLISHED, first)
    except family_exports.ExportError:
        return family_exports.onnx_path(family, Size.PUBLISHED, last)


def quantized_file(family: Family, form: str) -> Path:
    """`model_quantized.onnx` of it."""
    source = float_file(family)
    name = f"{source.stem}-{form}-{versions('onnxruntime')}-q{_RECIPE}.onnx"
    return cached(name, partial(_quantize, source, form))


def _quantize(source: Path, form: str, out: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    ops = {node.op_type for node in onnx.load(source, load_external_data=False).graph.node}
    weight_type = QuantType.QUInt8 if "Conv" in ops else QuantType.QInt8
    with quiet():
        quantize_dynamic(
            str(source),
            str(out),
            weight_type=weight_type,
            extra_options={"EnableSubgraph": True},
            **FORMS[form],
        )


def convert(source: Path, out: Path) -> Path:
    """To target native; the benchmark compares the two itself."""
    from octavo.onnx import convert_target

    convert_target(source, out, to="native", verify=False)
    return out


def architecture_rows(form: str, setting: Setting, quick: bool) -> Iterator[Row]:
    """Speed and error of every architecture quantized in one `form`."""
    section = f"{form}, {setting.words}"
    speeds = []
    with tempfile.TemporaryDirectory(prefix="octavo-quantized-") as folder:
        for family in families(quick):
            try:
                found = list(_family_rows(family, form, setting, Path(folder), section))
            except Exception as error:  # noqa: BLE001  # one that fails is a missed row
                why = reason(error)
                found = [
                    Row(f"{family.name}: speed", math.nan, "x", LEAST, note=why, section=section)
                ]
            speeds += [row.measured for row in found if row.unit == "x"]
            yield from found
    mean = rows.geometric_mean(speeds)
    yield Row("geometric mean of the speeds", mean, "x", at_least=LEAST_MEAN, section=section)


def _family_rows(
    family: Family, form: str, setting: Setting, folder: Path, section: str
) -> Iterator[Row]:
    from benchmarks.zoo import family_exports, family_models

    say(f"{section}: {family.name}")
    theirs = quantized_file(family, form)
    ours = convert(theirs, folder / f"{family.name}-{form}.onnx")
    feed = family_exports.numpy_feed(family_models.feed(family, Size.PUBLISHED))
    exact = open_session(float_file(family)).run(None, feed)[0]
    was, now = (output_error(open_session(p).run(None, feed)[0], exact)[0] for p in (theirs, ours))
    files = {CONVERTED: ours, AS_IT_WAS: theirs}
    compared = latency.compare(files, {"call": feed}, setting)["call"]
    speed = compared.speed(CONVERTED, AS_IT_WAS)
    note = rows.note_of(compared, CONVERTED, AS_IT_WAS)
    what = f"{family.name}: speed"
    yield Row(what, speed.median, "x", at_least=LEAST, section=section, note=note)
    note = f"1 - cosine with float {now:.3g}; the file as it was {was:.3g}"
    share = now / was if was else math.nan
    yield Row(f"{family.name}: error as a share", share, at_most=1.0, section=section, note=note)


def kokoro_rows(setting: Setting) -> Iterator[Row]:
    """Kokoro-82M: time for a second of sound, as durations may round otherwise."""
    section = f"Kokoro-82M, {setting.words}"
    say(section)
    with tempfile.TemporaryDirectory(prefix="octavo-kokoro-") as folder:
        theirs = kokoro.model_path()
        ours, feed = convert(theirs, Path(folder, "kokoro.onnx")), kokoro.feed(TOKENS)
        sizes = [open_session(path).run(None, feed)[0].size for path in (ours, theirs)]
        files = {CONVERTED: ours, AS_IT_WAS: theirs}
        compared = latency.compare(files, {"call": feed}, setting)["call"]
    speed = compared.speed(CONVERTED, AS_IT_WAS)
    what, note = "speed for a second of sound", rows.note_of(compared, CONVERTED, AS_IT_WAS)
    share = speed.median * sizes[0] / sizes[1]
    yield Row(what, share, "x", at_least=KOKORO_LEAST, section=section, note=note)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("quantized_files", __doc__).parse_args(arguments)
    sections: dict[str, Callable[[], Iterator[Row]]] = {}
    for setting in latency.settings(options.quick, PROCESSES):
        for form in FORMS:
            name = f"{form}, {setting.words}"
            sections[name] = partial(architecture_rows, form, setting, options.quick)
        sections[f"Kokoro-82M, {setting.words}"] = partial(kokoro_rows, setting)
    title = "Files that others quantized, converted to target native"
    runner.publish("quantized_files", title, sections, options, arguments, speeds=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
