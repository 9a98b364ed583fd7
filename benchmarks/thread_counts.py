"""How eager PyTorch models scale with threads: `python -m benchmarks.thread_counts [--quick]`.

all-MiniLM-L6 without its weights from 1 x 16 to 8 x 128 tokens, and one token of a decoder with
TinyLlama's shape: float, quantized by torch.ao per channel and by Octavo. Variants and thread
counts take turns in one process, as `torch.set_num_threads` allows. Counts are 1, 2, 4, 8 and 16,
as far as this process has processors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch

from benchmarks import runner
from benchmarks.parts_torch import decoder
from benchmarks.results import Row, say
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO, quantized
from benchmarks.zoo import minilm
from octavo.core.kernels import isa
from octavo.measure.timing import Comparison, idle, interleave

COUNTS = (1, 2, 4, 8, 16)
SHAPES = ((1, 16), (1, 128), (8, 16), (8, 128))
PROMPT = 32  # tokens that the decoder has read
LAYERS = 13  # of the decoder: 0.7 GB of int8
PEERS = (FLOAT, AO_CHANNEL)
TOKEN = "a decoder's token"

Call = Callable[[], object]
Calls = Mapping[str, Call]


def models(layers: int, variant: str = OCTAVO) -> dict[str, Call]:
    """A call of each model as `variant` makes it, by name; the decoder has as many `layers`."""
    encoder = quantized(variant, minilm.untrained_model(minilm.SERVED).eval())
    found: dict[str, Call] = {}
    for batch, length in SHAPES:
        ids = torch.randint(
            1000, 30000, (batch, length), generator=torch.Generator().manual_seed(0)
        )
        found[f"all-MiniLM-L6, {batch} x {length}"] = _encoding(encoder, ids)
    found[TOKEN] = _decoding(quantized(variant, decoder(layers), inplace=True))
    return found


def _encoding(model: torch.nn.Module, ids: torch.Tensor) -> Call:
    mask = torch.ones_like(ids)
    return lambda: model(input_ids=ids, attention_mask=mask)


def _decoding(model: torch.nn.Module) -> Call:
    from transformers import DynamicCache

    cache = DynamicCache()
    ids = torch.arange(PROMPT)[None] + 1000
    with torch.inference_mode():
        model(ids, past_key_values=cache, use_cache=True)

    def token() -> None:
        model(ids[:, :1], past_key_values=cache, use_cache=True)
        cache.crop(-1)

    return token


def compare(calls: Calls, counts: Sequence[int], rounds: int) -> Comparison:
    """Each call on each number of threads, by turns; the names of times come from `turn`."""

    def on(call: Call, threads: int) -> Call:
        def timed() -> None:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            call()

        return timed

    turns = {turn(name, n): on(call, n) for n in counts for name, call in calls.items()}
    return interleave(turns, rounds=rounds, settle=lambda name: idle())


def turn(name: str, threads: int) -> str:
    """A call's name on that many threads."""
    return f"{name}, {threads} thread{'s' * (threads > 1)}"


def rows(section: str, calls: Calls, counts: Sequence[int], rounds: int) -> Iterator[Row]:
    """Each variant and count over float with one thread, and Octavo over torch.ao with as many."""
    say(section)
    with torch.inference_mode():
        found = compare(calls, counts, rounds)
    base = turn(FLOAT, 1)
    for name in (OCTAVO, AO_CHANNEL, FLOAT):
        for n in counts:
            mine = turn(name, n)
            ratio, ms = found.speed(mine, over=base), found[mine].median * 1e3
            note = f"{ms:.2f} ms; quartiles {ratio.low:.3f} to {ratio.high:.3f}"
            yield Row(f"{mine}: speed over {base}", ratio.median, "x", section=section, note=note)
    for n in counts:
        ratio = found.speed(turn(OCTAVO, n), over=turn(AO_CHANNEL, n))
        note = f"quartiles {ratio.low:.3f} to {ratio.high:.3f}"
        what = f"{turn(OCTAVO, n)}: speed over {AO_CHANNEL}"
        yield Row(what, ratio.median, "x", section=section, note=note)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("thread_counts", __doc__).parse_args(arguments)
    processors = len(os.sched_getaffinity(0))
    counts = [n for n in COUNTS if n <= processors]
    layers, rounds = (1, 3) if options.quick else (LAYERS, 7)
    by_variant = {name: models(layers, name) for name in (OCTAVO, *PEERS)}
    sections = {
        title: partial(
            rows, title, {name: calls[model] for name, calls in by_variant.items()}, counts, rounds
        )
        for model in by_variant[OCTAVO]
        for title in [f"{model} (octavo: {isa()})"]
    }
    title = "Eager PyTorch models by threads"
    runner.publish("thread_counts", title, sections, options, arguments, speeds=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
