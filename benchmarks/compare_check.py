"""Whether `octavo compare` names a broken layer first: one is planted in all-MiniLM-L6, 20 times.

At random positions the int8 file is edited: the outputs of the layer's weight change places, or its
scales are doubled. Nothing but the two files is given to the comparison, and real tokens.

    python -m benchmarks.compare_check           writes benchmarks/results/compare.json and .md
    python -m benchmarks.compare_check --quick   three positions, writes nothing
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import onnx
from onnx import numpy_helper

import octavo.onnx
from benchmarks import latency, results
from benchmarks.results import Row
from benchmarks.zoo import minilm
from octavo.core.kernels import checksum
from octavo.recipe import Layer

POSITIONS, QUICK = 20, 3
SHAPE = (1, 32)
SHUFFLED, DOUBLED = "outputs change places", "scales doubled"


def damaged(source: Path, layer: Layer, damage: str, seed: int) -> onnx.ModelProto:
    """The quantized model with one broken layer; its weight has the float weight's name."""
    model = onnx.load(source)
    ((weight, _),) = layer.weights
    wanted = f"{weight}_scale" if damage == DOUBLED else f"{weight}_quantized"
    (stored,) = [i for i in model.graph.initializer if i.name == wanted]
    array = numpy_helper.to_array(stored)
    if damage == DOUBLED:
        array = array * np.float32(2)
    else:
        array = shuffled(array, layer, np.random.default_rng(seed))
        _sign(model, wanted, array)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), wanted))
    return model


def shuffled(array: np.ndarray, layer: Layer, rng: np.random.Generator) -> np.ndarray:
    """Rows of a table, columns of a matrix [K, N], or blocks of 16 outputs of a packed one."""
    axis = 1 if array.ndim == 2 and layer.op == "MatMul" else 0
    order = np.roll(np.arange(array.shape[axis]), 1 + rng.integers(array.shape[axis] - 1))
    return np.take(array, order, axis)


def _sign(model: onnx.ModelProto, weight: str, array: np.ndarray) -> None:
    """Gives operators of target native the checksum of their new weight."""
    for node in model.graph.node:
        digests = [a for a in node.attribute if a.name == "checksum"]
        if weight not in node.input or not digests:
            continue
        digest = checksum(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        if digests[0].ints:
            digests[0].ints[(list(node.input).index(weight) - 1) // 4] = digest
        else:
            digests[0].i = digest


def rows(target: str, positions: int, folder: Path) -> Iterator[Row]:
    """One row of how often the broken layer came first, and what the comparison costs."""
    results.say(f"target {target}: quantizing")
    whole = folder / f"{target}.onnx"
    report = octavo.onnx.quantize_dynamic(minilm.onnx_path(), whole, target=target)
    layers = [o.layer for o in report.quantized]
    chosen = np.random.default_rng(0).permutation(len(layers))[:positions]
    feed = latency.tokens(SHAPE)
    first, seconds, margins, missed = 0, [], [], []
    for i, index in enumerate(chosen):
        layer, damage = layers[index], (SHUFFLED, DOUBLED)[i % 2]
        results.say(f"target {target}, {i + 1} of {positions}: {damage} in {layer.name}")
        broken = folder / f"{target}.broken.onnx"
        onnx.save(damaged(whole, layer, damage, i), broken)
        start = perf_counter()
        found = octavo.onnx.compare(minilm.onnx_path(), broken, feed).layers
        seconds.append(perf_counter() - start)
        if found[0].name == layer.name:
            first += 1
            worst, following = found[0].alone, found[1].alone
            assert worst is not None and following is not None
            margins.append(following.sqnr_db - worst.sqnr_db)
        else:
            missed.append(f"{layer.name} ({damage})")
    asked = positions if target == "portable" else None
    section = f"all-MiniLM-L6, target {target}"
    note = f"{len(layers)} quantized layers; {SHUFFLED} or {DOUBLED}, in turns"
    note += f"; not first: {', '.join(missed)}" if missed else ""
    what = f"broken layers on the first line, of {positions}"
    yield Row(what, first, at_least=asked, section=section, note=note)
    least = min(margins, default=math.nan)
    yield Row("the next layer is better by", least, "dB", section=section, note="least of all")
    yield Row("one comparison", median(seconds), "s", section=section, note="median")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_check", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of all; writes no result")
    options = parser.parse_args(arguments)
    positions = QUICK if options.quick else POSITIONS
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="octavo-compare-") as name:
        for target in ("portable", "native"):
            found += rows(target, positions, Path(name))
    title = "octavo compare: a planted broken layer"
    outcome = results.result("compare", title, found, arguments, script="compare_check")
    results.publish(outcome, options.quick)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
