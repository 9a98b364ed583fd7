"""Files that others quantized, converted to target native, beside the files as they were.

`python -m benchmarks.quantized_files [--quick] [--threads 1]`. Architectures with random weights,
exported and quantized with ONNX Runtime's quantizer as transformers.js does it
(`model_quantized.onnx`), some of them with its defaults; and Kokoro-82M as it is shipped, in
integers. Six minutes once the files are in the cache, which a first run makes; `benchmarks.pieces`
says how to measure a part at a time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import latency, pieces, results, rows, runner
from benchmarks.families_onnx import output_error
from benchmarks.latency import Setting
from benchmarks.pieces import Section
from benchmarks.results import Row, say
from benchmarks.variants import quiet
from benchmarks.zoo import kokoro
from benchmarks.zoo.export import cached, versions
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family, Size
from benchmarks.zoo.sessions import Feed, open_session

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
TITLE = "Files that others quantized, converted to target native"
AS_IT_WAS, CONVERTED = "as it was", "converted"
SPEED, ERROR = "speed over the file as it was", "error as a share of the file's"
LEAST_MEAN, LEAST = 1.3, 1.0
KOKORO, SHIPPED, KOKORO_LEAST, TOKENS = "Kokoro-82M", "as shipped", 2.0, 48
PROCESSES, ROUNDS = 2, 7
_RECIPE = 1  # raise when the files would be others
JS, DEFAULTS = "transformers.js", "defaults"
FORMS: Mapping[str, Mapping[str, Any]] = {
    JS: {"per_channel": True, "reduce_range": True},
    DEFAULTS: {},
}
"""Arguments of `quantize_dynamic`; models with convolutions get uint8 weights, as there."""


def families(form: str, quick: bool) -> list[Family]:
    """Those that are measured: of the defaults fewer, as they run the same kernels."""
    step = 4 if quick or form == DEFAULTS else 1
    return [FAMILIES[name] for name in ARCHITECTURES[::step]]


def title(form: str, family: str, setting: Setting) -> str:
    """Of a section."""
    return f"{family}: {form}, {setting.words}"


def settings(quick: bool, only: Sequence[int]) -> list[Setting]:
    """One and two threads, of them `only` these, if given."""
    found = latency.settings(quick, PROCESSES)
    return [
        replace(setting, rounds=min(ROUNDS, setting.rounds))
        for setting in found
        if not only or setting.threads in only
    ]


def sections(options: argparse.Namespace) -> dict[str, Section]:
    """What is measured by title; the defaults with one thread alone."""
    found: dict[str, Section] = {}
    for setting in settings(options.quick, options.threads):
        for form in FORMS if setting.threads == 1 else (JS,):
            for family in families(form, options.quick):
                name = title(form, family.name, setting)
                found[name] = _section(partial(family_rows, family, form, setting, name))
        name = title(SHIPPED, KOKORO, setting)
        found[name] = _section(partial(kokoro_rows, setting, name))
    words = [word.lower() for word in options.only]
    return {
        name: section
        for name, section in found.items()
        if not words or any(word in name.lower() for word in words)
    }


def _section(measured: runner.Rows) -> Section:
    return lambda aims: measured()


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


def family_rows(family: Family, form: str, setting: Setting, section: str) -> Iterator[Row]:
    """Speed and error of one architecture quantized in one `form`."""
    from benchmarks.zoo import family_exports, family_models

    say(section)
    with tempfile.TemporaryDirectory(prefix="octavo-quantized-") as folder:
        theirs = quantized_file(family, form)
        ours = convert(theirs, Path(folder, "converted.onnx"))
        feed = family_exports.numpy_feed(family_models.feed(family, Size.PUBLISHED))
        outputs = [open_session(p).run(None, feed)[0] for p in (float_file(family), theirs, ours)]
        speed, note = compared(ours, theirs, feed, setting)
    yield Row(SPEED, speed, "x", at_least=LEAST, section=section, note=note)
    was, now = (output_error(output, outputs[0])[0] for output in outputs[1:])
    note = f"1 - cosine with float {now:.3g}; the file as it was {was:.3g}"
    yield Row(ERROR, now / was, at_most=1.0, section=section, note=note)


def compared(ours: Path, theirs: Path, feed: Feed, setting: Setting) -> tuple[float, str]:
    """How many times as fast `ours` is, and what else is to be said of it."""
    found = latency.compare({CONVERTED: ours, AS_IT_WAS: theirs}, {"call": feed}, setting)["call"]
    return found.speed(CONVERTED, AS_IT_WAS).median, rows.note_of(found, CONVERTED, AS_IT_WAS)


def kokoro_rows(setting: Setting, section: str) -> Iterator[Row]:
    """Kokoro-82M: time for a second of sound, as durations may round otherwise.

    A call takes seconds, so that few of them tell.
    """
    say(section)
    setting = replace(setting, processes=1, rounds=3)
    with tempfile.TemporaryDirectory(prefix="octavo-kokoro-") as folder:
        theirs = kokoro.model_path()
        ours, feed = convert(theirs, Path(folder, "kokoro.onnx")), kokoro.feed(TOKENS)
        sizes = [open_session(path).run(None, feed)[0].size for path in (ours, theirs)]
        speed, note = compared(ours, theirs, feed, setting)
    what, share = "speed for a second of sound", speed * sizes[0] / sizes[1]
    yield Row(what, share, "x", at_least=KOKORO_LEAST, section=section, note=note)


def means(asked: Sequence[Setting], found: Sequence[Row]) -> Iterator[Row]:
    """Of the architectures' speeds, for each form and setting."""
    for setting in asked:
        for form in FORMS:
            names = {title(form, family, setting) for family in ARCHITECTURES}
            speeds = [row.measured for row in found if row.section in names and row.what == SPEED]
            if speeds:
                what = f"{form}, {setting.words}: geometric mean of {len(speeds)} speeds"
                mean = rows.geometric_mean(speeds)
                yield Row(what, mean, "x", at_least=LEAST_MEAN, section="Aims")
                what = f"{form}, {setting.words}: slowest of {len(speeds)}"
                yield Row(what, min(speeds), "x", at_least=LEAST, section="Aims")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = runner.parser("quantized_files", __doc__)
    words = "only with so many threads"
    parser.add_argument("--threads", type=int, nargs="+", default=[], choices=(1, 2), help=words)
    pieces.add_options(parser)
    options = parser.parse_args(arguments)
    asked, summary = sections(options), partial(means, settings(options.quick, options.threads))
    with tempfile.TemporaryDirectory(prefix="octavo-pieces-") as work:
        kept = pieces.Folder(Path(options.into or work))
        if pieces.finished(asked, kept, options):
            command = pieces.command("quantized_files", arguments)
            found = pieces.joined("quantized_files", TITLE, list(asked), kept, command, summary)
            results.publish(found, bool(options.quick or options.only))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
