"""What quantizing a large PyTorch module costs, and loading a quantized one.

`python -m benchmarks.torch_costs VARIANT LAYERS` builds a decoder of TinyLlama-1.1B's shape, random
and in float32, quantizes it in place and prints what that took as JSON: `quantize` starts it.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import children, parts_torch, torch_variants
from benchmarks.children import Job
from benchmarks.memory import high_water
from benchmarks.parts_torch import PRETRAINED, PRETRAINED_AO
from benchmarks.results import Row, say
from benchmarks.sections import reason
from benchmarks.timing import Ratio
from benchmarks.torch_variants import AO, OCTAVO
from benchmarks.zoo import minilm

if TYPE_CHECKING:
    import torch

LAYERS = 22
MOST_TIME = 0.25  # of torch.ao's
MOST_LOAD, MOST_LOAD_AO = 1.0, 0.1


@dataclass(frozen=True)
class Cost:
    """Of one process: parameters, bytes of the largest layer, resident at most, and seconds.

    `float_peak` is of the process with the float model, `peak` after quantizing it.
    """

    parameters: int
    largest: int
    float_peak: int
    peak: int
    seconds: float


def quantize(variant: str, layers: int = LAYERS) -> Cost:
    """What a child that does nothing else sees. Raises subprocess.CalledProcessError."""
    return Cost(**children.last_line("benchmarks.torch_costs", variant, str(layers)))


def decoder(layers: int) -> torch.nn.Module:
    """TinyLlama-1.1B's shape has 22 layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        dtype="float32",
    )
    return LlamaForCausalLM(config).eval()


def large_rows(layers: int) -> Iterator[Row]:
    """Peak memory and time of quantizing in place, each in a process of its own."""
    found = {}
    # Once, between two of ours: the machine may be another one a minute later.
    for name, variant in (("before", OCTAVO), (AO, AO), ("after", OCTAVO)):
        say(f"a decoder of {layers} layers: {variant}")
        found[name] = quantize(variant, layers)
    both, theirs = (found["before"], found["after"]), found[AO]
    ours = max(both, key=lambda cost: cost.peak - cost.float_peak)
    section = f"Quantizing a decoder of {ours.parameters / 1e9:.2f} billion parameters in place"
    yield Row(
        f"{OCTAVO}: peak memory",
        ours.peak / 1e6,
        "MB",
        at_most=(ours.float_peak + ours.largest) / 1e6,
        section=section,
        note=f"float model {ours.float_peak / 1e6:,.0f} MB, its largest layer "
        f"{ours.largest / 1e6:,.0f} MB",
    )
    yield Row(f"{AO}: peak memory", theirs.peak / 1e6, "MB", section=section)
    seconds = [cost.seconds for cost in both]
    yield Row(
        f"{OCTAVO}: time as a share of {AO}'s",
        sum(seconds) / 2 / theirs.seconds,
        at_most=MOST_TIME,
        section=section,
        note=f"{seconds[0]:.2f} and {seconds[1]:.2f} s to {theirs.seconds:.2f} s",
    )


def load_rows(processes: int, rounds: int) -> Iterator[Row]:
    """Time to load all-MiniLM-L6, its files in memory, and whether it is what was saved."""
    say("all-MiniLM-L6: loading")
    section = "Loading all-MiniLM-L6, warm"
    _, refused = torch_variants.every([OCTAVO], minilm.torch_model(minilm.SERVED))
    try:
        checks = list(_check_rows(section))
    except Exception as error:  # noqa: BLE001  # a figure that cannot be measured is missed
        refused[OCTAVO] = reason(error)
        checks = [Row("what is loaded", math.nan, at_most=0, section=section, note=refused[OCTAVO])]
    peers = () if OCTAVO in refused else (OCTAVO,)
    job = Job("load", (), peers=peers, rounds=rounds)
    compared = children.pooled_run(job, processes)["load"]
    for peer, most in ((PRETRAINED, MOST_LOAD), (PRETRAINED_AO, MOST_LOAD_AO)):
        share = Ratio(*[math.nan] * 3)
        note = f"{peer} {compared[peer].median * 1e3:.1f} ms; {refused.get(OCTAVO, '')}"
        if peers:
            share = compared.time(OCTAVO, peer)
            note = (
                f"{compared[OCTAVO].median * 1e3:.1f} ms to {compared[peer].median * 1e3:.1f} ms; "
                f"quartiles {share.low:.3f} to {share.high:.3f}"
            )
        what = f"{OCTAVO}: time as a share of {peer}'s"
        yield Row(what, share.median, at_most=most, section=section, note=note)
    yield from checks


def _check_rows(section: str) -> Iterator[Row]:
    """Buffers, those that no state dict holds among them, and hidden states are the same bits."""
    import torch

    made = torch_variants.quantized(OCTAVO, minilm.torch_model(minilm.SERVED))
    with tempfile.TemporaryDirectory(prefix="octavo-load-") as name:
        file = Path(name, "minilm")
        torch_variants.save(made, file)
        size = sum(p.stat().st_size for p in [file, *file.rglob("*")] if p.is_file())
        found = parts_torch.load(file)
    kept = set(made.state_dict())
    buffers, others = dict(made.named_buffers()), dict(found.named_buffers())
    wrong = sum(n not in others or not torch.equal(b, others[n]) for n, b in buffers.items())
    yield Row(
        "buffers of the loaded module that differ",
        wrong + len(others.keys() - buffers.keys()),
        f"of {len(buffers)}",
        at_most=0,
        section=section,
        note=f"not persistent: {', '.join(sorted(buffers.keys() - kept)) or 'none'}",
    )
    feed = minilm.tokenize(minilm.lee_documents()[:4])
    a, b = (torch.from_numpy(minilm.hidden_states(module, feed)) for module in (made, found))
    different = int((a != b).sum())
    what = "hidden states of the loaded module that differ in a bit"
    yield Row(what, different, f"of {a.numel():,}", at_most=0, section=section)
    yield Row("file", size / 1e6, "MB", section=section)


def main(argv: Sequence[str]) -> int:
    """Prints a `Cost` as JSON."""
    import torch

    variant, layers = argv[0], int(argv[1])
    # What a first call loads is no part of the cost.
    small = torch.nn.Sequential(torch.nn.Linear(64, 64))
    torch_variants.quantized(variant, small)
    model = decoder(layers)
    largest = max(
        sum(p.nbytes for p in module.parameters(recurse=False)) for module in model.modules()
    )
    parameters, before = sum(p.numel() for p in model.parameters()), high_water()
    start = time.perf_counter()
    torch_variants.quantized(variant, model, inplace=True)
    seconds = time.perf_counter() - start
    print(json.dumps(asdict(Cost(parameters, largest, before, high_water(), seconds))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
