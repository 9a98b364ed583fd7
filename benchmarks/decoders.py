"""Decoders with weights of 4 bits: speed beside peers, memory, and what the bits cost.

`python -m benchmarks.decoders [--threads 1 2] [--only WORD ...] [--quick]`: SmolLM2-135M of real
weights and a Llama of 1.1 billion random ones, in PyTorch beside llama.cpp (built from its source,
`peers_llama`) and bfloat16, prompts as ONNX files beside ONNX Runtime and OpenVINO, perplexity,
words that Whisper hears, what rounding costs, memory, and single layers beside int8.

A machine need not be idle for all of it: with `--into FOLDER` each section is kept there when it is
done, and the same command goes on with the rest; `--for SECONDS` says when to stop.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import (
    decoders_accuracy,
    decoders_memory,
    decoders_onnx,
    decoders_rounding,
    decoders_speed,
    few_bits,
    pieces,
    results,
    runner,
)
from benchmarks.latency import Setting
from benchmarks.pieces import Section

THREADS, ROUNDS = (1, 2), 5
TITLE = "Decoders with weights of 4 bits"


def sections(options: argparse.Namespace, folder: Path) -> dict[str, Section]:
    """What is measured by title; ONNX files are kept in `folder`."""
    found: dict[str, Section] = {}
    rounds = 2 if options.quick else options.rounds
    shapes = few_bits.SHAPES[-1:] if options.quick else few_bits.SHAPES
    for threads in options.threads or (THREADS[:1] if options.quick else THREADS):
        words = f"{threads} thread{'s' * (threads > 1)}"
        setting = Setting(words, threads, processes=1, rounds=rounds)
        found |= few_bits.sections(setting, shapes)
        found |= _speed_sections(setting, folder)
    for title, section in {
        "SmolLM2-135M: resident memory": decoders_memory.resident_rows,
        "Quantizing 1.1 billion parameters": decoders_memory.quantizing_rows,
    }.items():
        found[title] = partial(section, title)
    accuracies = {
        "SmolLM2-135M: perplexity": decoders_accuracy.perplexity_rows,
        "SmolLM2-135M: bits where they count": decoders_rounding.divergence_rows,
        "all-MiniLM-L6: rounding to groups": decoders_rounding.hidden_rows,
        "Whisper tiny.en: words": decoders_accuracy.whisper_rows,
    }
    for title, accuracy in accuracies.items():
        found[title] = partial(accuracy, title, options.quick)
    asked = [word.lower() for word in options.only]
    return {
        title: section
        for title, section in found.items()
        if not asked or any(word in title.lower() for word in asked)
    }


def _speed_sections(setting: Setting, folder: Path) -> dict[str, Section]:
    """Every figure with one thread; with more, those of which something is asked."""
    found: dict[str, Section] = {}
    for decoder in decoders_speed.DECODERS.values():
        for (kind, figure), least in decoder.figures.items():
            if setting.threads > 1 and least is None:
                continue
            what = decoders_speed.words_of(figure)
            title = f"{decoder.name}, {kind}: {what}, {setting.words}"
            peers: tuple[str, ...] = (decoders_speed.INT4, decoders_speed.LLAMA_CPP)
            asked = (decoder, kind, figure, setting)
            found[title] = partial(decoders_speed.rows, title, *asked, peers)
            if decoder is decoders_speed.SMOLLM:
                title += ", in PyTorch"
                peers = decoders_speed.MODULES
                found[title] = partial(decoders_speed.rows, title, *asked, peers)
    title = f"{decoders_onnx.TITLE}, {setting.words}"
    found[title] = partial(decoders_onnx.rows, title, folder, setting)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = runner.parser("decoders", __doc__)
    words = "only with so many threads"
    parser.add_argument("--threads", type=int, nargs="+", default=[], choices=THREADS, help=words)
    words = "of models beside each other; a prompt may take llama.cpp half a minute"
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=words)
    pieces.add_options(parser)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="octavo-decoders-") as work:
        folder = Path(options.into or work)
        asked, kept = sections(options, folder / "files"), pieces.Folder(folder)
        if pieces.finished(asked, kept, options):
            command = pieces.command("decoders", arguments)
            found = pieces.joined("decoders", TITLE, list(asked), kept, command)
            part = options.quick or options.only or options.threads
            results.publish(found, not options.join and bool(part))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
