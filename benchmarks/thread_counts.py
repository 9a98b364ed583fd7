"""How eager PyTorch models of int8 layers scale with threads: `python -m benchmarks.thread_counts`.

all-MiniLM-L6 without its weights from 1 x 16 to 8 x 128 tokens, and one token of a decoder with
TinyLlama's shape. Thread counts take turns in one process, as `torch.set_num_threads` allows.
Prints milliseconds a call, and writes nothing: no machine of the results has so many cores.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence

import torch

import octavo.torch
from benchmarks.parts_torch import decoder
from benchmarks.zoo import minilm
from octavo.measure.timing import Comparison, idle, interleave

COUNTS = (1, 4, 16)
SHAPES = ((1, 16), (1, 128), (8, 16), (8, 128))
PROMPT = 32  # tokens that the decoder has read

Call = Callable[[], object]


def models(layers: int) -> dict[str, Call]:
    """A call of each, by name; the decoder has as many `layers`."""
    encoder = octavo.torch.quantize_dynamic(minilm.untrained_model(minilm.SERVED).eval())
    found: dict[str, Call] = {}
    for batch, length in SHAPES:
        ids = torch.randint(
            1000, 30000, (batch, length), generator=torch.Generator().manual_seed(0)
        )
        found[f"{batch} x {length}"] = _encoding(encoder, ids)
    found["token"] = _decoding(octavo.torch.quantize_dynamic(decoder(layers)))
    return found


def _encoding(model: torch.nn.Module, ids: torch.Tensor) -> Call:
    mask = torch.ones_like(ids)
    return lambda: model(input_ids=ids, attention_mask=mask)


def _decoding(model: torch.nn.Module) -> Call:
    from transformers import DynamicCache

    cache = DynamicCache()
    ids = torch.arange(PROMPT)[None] + 1000
    model(ids, past_key_values=cache, use_cache=True)

    def token() -> None:
        model(ids[:, :1], past_key_values=cache, use_cache=True)
        cache.crop(-1)

    return token


def compare(call: Call, counts: Sequence[int], rounds: int) -> Comparison:
    """One call on each number of threads, by turns."""

    def on(threads: int) -> Call:
        def turn() -> None:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            call()

        return turn

    return interleave({str(n): on(n) for n in counts}, rounds=rounds, settle=lambda name: idle())


def printed(found: Mapping[str, Comparison], counts: Sequence[int]) -> str:
    """A table of milliseconds: a row for each model, a column for each number of threads."""
    width = max(map(len, found))
    lines = [" " * width + "".join(f"{count:>9}" for count in counts)]
    for name, times in found.items():
        cells = "".join(f"{times[str(count)].median * 1e3:9.2f}" for count in counts)
        lines.append(f"{name:<{width}}{cells}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--layers", type=int, default=13, help="of the decoder: 13 are 0.7 GB")
    asked = parser.parse_args(arguments)
    print(f"threads, of {len(os.sched_getaffinity(0))} processors; milliseconds a call")
    with torch.inference_mode():
        calls = models(asked.layers)
        found = {name: compare(call, asked.threads, asked.rounds) for name, call in calls.items()}
    print(printed(found, asked.threads))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
