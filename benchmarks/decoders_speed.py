"""Decoders in PyTorch beside llama.cpp and bfloat16: tokens a second, from GGUF files.

Octavo's int4 keeps the integers of the file that llama.cpp reads; its int8 and bfloat16 are made of
the floats that transformers makes of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import runner
from benchmarks.families_aims import Aims
from benchmarks.latency import Setting
from benchmarks.results import Row, say
from benchmarks.runner import Job
from benchmarks.zoo import big_llama, smollm
from octavo.measure.timing import idle

INT4, INT8, BFLOAT16 = "octavo int4", "octavo int8", "torch bfloat16"
LLAMA_CPP = "llama.cpp"
DECODE = 0
"""The figure of decoding; others are the tokens of a prompt."""
TOKENS, PROMPT = 48, 8


@dataclass(frozen=True)
class Decoder:
    """A model in GGUF files, and what is asked of decoding and prompts."""

    name: str
    files: dict[str, Callable[[], Path]]
    """By GGUF type."""
    figures: dict[tuple[str, int], float | None]
    """What is measured, by GGUF type: the least speed of int4 over llama.cpp; None: any."""


SMOLLM = Decoder(
    "SmolLM2-135M",
    {"Q4_1": smollm.model_file},
    {("Q4_1", DECODE): 1.1, ("Q4_1", 256): None, ("Q4_1", 512): None},
)
BIG = Decoder(
    "Llama of 1.1 billion parameters",
    {kind: partial(big_llama.model_file, kind) for kind in big_llama.TYPES},
    {
        **{("Q4_0", DECODE): 1.0, ("Q4_0", 256): 2.0, ("Q4_0", 512): 2.0},
        **{("Q4_1", DECODE): None, ("Q4_1", 256): 5.0, ("Q4_1", 512): 5.0},
        **{("Q8_0", DECODE): None},
    },
)
DECODERS = {decoder.name: decoder for decoder in (SMOLLM, BIG)}


def words_of(figure: int) -> str:
    """`decoding`, or how long a prompt is."""
    return "decoding" if figure == DECODE else f"prompt of {figure} tokens"


MODULES = (INT4, INT8, BFLOAT16)
"""Beside each other, in a section of their own: a child loads them for a minute."""


def rows(
    section: str,
    decoder: Decoder,
    kind: str,
    figure: int,
    setting: Setting,
    peers: tuple[str, ...],
    aims: Aims,
) -> Iterator[Row]:
    """Tokens a second, and int4's over the others'; `kind` is the GGUF file's type."""
    say(section)
    options = {"decoder": decoder.name, "kind": kind, "figure": figure}
    job = Job(
        "decoders_speed:rates",
        threads=setting.threads,
        rounds=setting.rounds,
        peers=peers,
        options=options,
    )
    found: dict[str, list[float]] = runner.value(job)
    for name, rates in found.items():
        yield Row(name, statistics.median(rates), "tokens a second", section=section)
    ours = found.pop(INT4)
    for name, theirs in found.items():
        each = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
        speed = statistics.median(each)
        note = f"{len(each)} rounds, {each[0]:.3f} to {each[-1]:.3f}"
        least = decoder.figures[kind, figure] if name == LLAMA_CPP else None
        what = f"{INT4}: speed over {name}"
        yield Row(what, speed, "x", at_least=least, section=section, note=note)


def rates(job: Job) -> dict[str, list[float]]:
    """Tokens a second by who made them, one figure a round; what a child measures."""
    import torch

    from benchmarks import peers_llama

    decoder, figure = DECODERS[job.options["decoder"]], job.options["figure"]
    file = decoder.files[job.options["kind"]]()
    with torch.inference_mode(False), torch.no_grad():
        made = {name: model(name, file) for name in job.peers if name != LLAMA_CPP}
    rate = _decoded if figure == DECODE else _read
    found: dict[str, list[float]] = {name: [] for name in job.peers}
    for module in made.values():
        rate(module, figure)
    prompts, tokens = ((), TOKENS) if figure == DECODE else ((figure,), 0)
    for _ in range(job.rounds):
        for name, module in made.items():
            idle()
            found[name].append(rate(module, figure))
        if LLAMA_CPP not in job.peers:
            continue
        idle()
        theirs = peers_llama.tokens_per_second(file, job.threads, tokens, prompts)
        found[LLAMA_CPP] += theirs[figure]
    return found


def model(name: str, file: Path) -> Any:
    """One of the peers, made of a GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from octavo.torch import quantize_dynamic
    from octavo.torch.hub import OctavoConfig

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    arguments: dict[str, Any] = {"dtype": torch.float32}
    if name == INT4:
        arguments = {"quantization_config": OctavoConfig(recipe="int4")}
    elif name == BFLOAT16:
        arguments = {"dtype": torch.bfloat16}
    found = AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, local_files_only=True, **arguments
    ).eval()
    return quantize_dynamic(found, inplace=True) if name == INT8 else found


def _decoded(module: Any, _: int) -> float:
    """Tokens a second of `generate`, after a prompt that counts as no token."""
    import torch

    prompt = torch.arange(5, 5 + PROMPT)[None]
    options = {"attention_mask": torch.ones_like(prompt), "do_sample": False}
    seconds = []
    for count in (1, TOKENS + 1):
        start = time.perf_counter()
        module.generate(prompt, max_new_tokens=count, min_new_tokens=count, **options)
        seconds.append(time.perf_counter() - start)
    return TOKENS / (seconds[1] - seconds[0])


def _read(module: Any, length: int) -> float:
    """Tokens a second of a prompt, whose last token's logits are computed."""
    import torch

    prompt = torch.arange(5, 5 + length)[None]
    start = time.perf_counter()
    module(prompt, use_cache=True, logits_to_keep=1)
    return length / (time.perf_counter() - start)
