"""Conversion: time on a real model, time against the number of nodes, peak memory on a large model.

`python -m benchmarks.convert [--quick]`. In process, imports excluded, without verification; the
time of a long chain in ONNX Runtime's quantizer is measured once, as it takes a minute and more.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from benchmarks import large, runner
from benchmarks.results import Row, say
from benchmarks.variants import QD, QD_CHANNEL, octavo_quantize, onnxruntime_quantize
from benchmarks.zoo import minilm
from octavo.measure.timing import interleave

MOST_OF_TIME = 0.25  # of quantize_dynamic's
MOST_GROWTH = 1.3  # of the time for a node, 500 to 4000 nodes
LEAST_FASTER = 20.0
MOST_MEMORY = 1e9  # bytes above the interpreter's own
LENGTHS = (500, 1000, 2000, 4000)
OCTAVO = "octavo"


def minilm_rows(folder: Path, quick: bool) -> Iterator[Row]:
    """all-MiniLM-L6, in turn with both ways of calling ONNX Runtime's quantizer."""
    say("conversion time, all-MiniLM-L6")
    exporters: tuple[minilm.Exporter, ...] = ("torchscript", "dynamo")
    for exporter in exporters[:1] if quick else exporters:
        model, out = minilm.onnx_path(exporter), folder / "minilm.onnx"
        calls: dict[str, Callable[[], object]] = {
            OCTAVO: partial(octavo_quantize, model, out),
            QD: partial(onnxruntime_quantize, model, out),
            QD_CHANNEL: partial(onnxruntime_quantize, model, out, per_channel=True),
        }
        found = interleave(calls, rounds=3 if quick else 11, warmup=1)
        for peer in (QD, QD_CHANNEL):
            share = found.time(OCTAVO, peer)
            yield Row(
                f"{exporter} export: time as a share of {peer}'s",
                share.median,
                at_most=MOST_OF_TIME if exporter == "torchscript" else None,
                section="Conversion time, all-MiniLM-L6",
                note=f"{found[OCTAVO].median:.3f} s to {found[peer].median:.3f} s; quartiles "
                f"{share.low:.3f} to {share.high:.3f}",
            )


def chain_rows(folder: Path, quick: bool) -> Iterator[Row]:
    """Chains of MatMuls: time is linear in nodes."""
    say("conversion time, chains of MatMuls")
    section, out = "Conversion time, chained MatMuls", folder / "chain.int8.onnx"
    models = {length: write_chain(folder, length) for length in LENGTHS}
    each = {str(n): partial(octavo_quantize, model, out) for n, model in models.items()}
    found = interleave(each, rounds=3 if quick else 7, warmup=1, least=2.0)
    for length in LENGTHS:
        seconds = found[str(length)].median
        per_node, note = seconds / length * 1e3, f"{seconds:.3f} s"
        yield Row(f"{length} nodes", per_node, "ms a node", section=section, note=note)
    first, last = LENGTHS[0], LENGTHS[-1]
    growth, scale = found.time(str(last), str(first)), first / last
    what = f"time a node at {last} over that at {first}"
    note = f"quartiles {growth.low * scale:.3f} to {growth.high * scale:.3f}"
    yield Row(what, growth.median * scale, at_most=MOST_GROWTH, section=section, note=note)
    length = 1000 if quick else last
    say(f"conversion time, {length} chained MatMuls in quantize_dynamic")
    # Once, between two of ours: the machine may be another one a minute later.
    ours, theirs = octavo_quantize, onnxruntime_quantize
    before, peer, after = (_seconds(f, models[length], out) for f in (ours, theirs, ours))
    what, note = f"{length} nodes: times as fast as {QD}", f"{before:.2f} and {after:.2f} s"
    least, ratio = None if quick else LEAST_FASTER, peer / ((before + after) / 2)
    yield Row(what, ratio, "x", at_least=least, section=section, note=f"{note} to {peer:.1f} s")


def _seconds(quantize: Callable[..., object], model: Path, out: Path) -> float:
    start = time.perf_counter()
    quantize(model, out)
    return time.perf_counter() - start


def write_chain(folder: Path, length: int) -> Path:
    """`length` MatMuls in a row, with weights of 8 x 8 to 16 x 16."""
    random = np.random.RandomState(length)
    widths = [8, *(8 + 2 * (i % 5) for i in range(length))]
    nodes, weights = [], []
    for i, shape in enumerate(pairwise(widths)):
        values = random.standard_normal(shape).astype(np.float32) / np.float32(shape[0] ** 0.5)
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"m{i}"))
    return large.save(nodes, weights, widths[0], widths[-1], folder / f"chain-{length}.onnx")


def memory_rows(folder: Path, quick: bool) -> Iterator[Row]:
    """A model with 4 GB of external data, converted by a process of its own."""
    weights = 8 if quick else 64
    written = weights * large.WEIGHT_BYTES / 1e9
    say(f"peak memory: writing {written:.1f} GB")
    model, out = large.write_model(folder, weights), folder / "large.int8.onnx"
    say("peak memory: converting")
    own, found = large.child("convert"), large.child("convert", model, out)
    if found["quantized"] != weights:
        raise RuntimeError(f"{found['quantized']} of {weights} layers were quantized")
    size = sum(file.stat().st_size for file in folder.glob("large.int8.onnx*"))
    yield Row(
        "above the interpreter's own",
        (found["bytes"] - own["bytes"]) / 1e6,
        "MB",
        at_most=MOST_MEMORY / 1e6,
        section=f"Peak memory, {weights} weights of 4096 x 4096 float32 in external data",
        note=f"{found['bytes'] / 1e6:.0f} MB to {own['bytes'] / 1e6:.0f} MB; {written:.2f} GB to "
        f"{size / 1e9:.2f} GB on disk in {found['seconds']:.1f} s",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("convert", __doc__).parse_args(arguments)
    parts = {"minilm": minilm_rows, "chain": chain_rows, "memory": memory_rows}
    with tempfile.TemporaryDirectory(prefix="octavo-convert-") as name:
        sections = {part: partial(rows, Path(name), options.quick) for part, rows in parts.items()}
        runner.publish("convert", "Conversion: time and memory", sections, options, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
