"""SmolLM2-135M of real weights, decoding: tokens a second beside float and llama.cpp with 4 bits.

The weights are those of a GGUF file of 4 bits, which both read: transformers makes floats of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import families_torch, runner
from benchmarks.families_aims import Aim, Aims
from benchmarks.latency import Setting
from benchmarks.results import Row, say
from benchmarks.runner import Job
from benchmarks.torch_variants import FLOAT, OCTAVO
from benchmarks.zoo import smollm
from benchmarks.zoo.families import FAMILIES
from octavo.measure.timing import idle

TITLE = "SmolLM2-135M: decoding"
LLAMA_CPP = "llama.cpp, 4 bits"
PROMPT, TOKENS = 8, 64
AIMS = {1: Aim.SMOLLM_ONE, 2: Aim.SMOLLM_TWO}


def rows(section: str, setting: Setting, aims: Aims) -> Iterator[Row]:
    """Tokens a second, and octavo's over the others'."""
    say(section)
    job = Job("families_smollm:decoding", threads=setting.threads, rounds=setting.rounds)
    found: dict[str, list[float]] = runner.value(job)
    for name, rates in found.items():
        yield Row(name, statistics.median(rates), "tokens a second", section=section)
    for name in (FLOAT, LLAMA_CPP):
        pairs = zip(found[OCTAVO], found[name], strict=True)
        speed = statistics.median(mine / theirs for mine, theirs in pairs)
        aim = AIMS.get(setting.threads) if name == LLAMA_CPP else None
        if aim is not None:
            aims.add(aim, setting.words, speed)
        least = None if aim is None else aim.least
        what = f"{OCTAVO}: speed over {name}"
        yield Row(what, speed, "x", at_least=least, section=section)


def decoding(job: Job) -> dict[str, list[float]]:
    """Tokens a second by who made them, one figure a round; what a child measures."""
    import torch

    from benchmarks import peers_llama

    file = smollm.model_file()
    with torch.inference_mode(False), torch.no_grad():
        exact = smollm.model(dtype=torch.float32)
        made = {
            name: families_torch.module(name, FAMILIES["Llama"], exact) for name in (FLOAT, OCTAVO)
        }
    found: dict[str, list[float]] = {OCTAVO: [], FLOAT: [], LLAMA_CPP: []}
    for module in made.values():
        _rate(module)
    for _ in range(job.rounds):
        for name, module in made.items():
            idle()
            found[name].append(_rate(module))
        idle()
        found[LLAMA_CPP] += peers_llama.tokens_per_second(file, job.threads, TOKENS)[0]
    return found


def _rate(module: Any) -> float:
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
