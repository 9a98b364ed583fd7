"""How near decoders of few bits come to exact arithmetic: perplexity, and words that are heard."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

from benchmarks import runner
from benchmarks.decoders_speed import INT4, INT8, model
from benchmarks.families_aims import Aims
from benchmarks.results import Row, say
from benchmarks.runner import Job
from benchmarks.zoo import smollm, whisper_tiny
from octavo.core.qparams import QType
from octavo.recipe import Recipe, Rule
from octavo.recipe.recipe import preset
from octavo.recipe.scheme import in_groups

EXACT, HALF = "float32 arithmetic", "float16 weights"
TEXT, WINDOW = 20_000, 512  # tokens
MOST_PERPLEXITY = 1.005
TABLE = f"{INT4}, 8 bits in the words' table"
MOST_WORDS = {INT8: 0.005, INT4: 0.02, TABLE: 0.02}
PROMPTS = 100
THREADS = 1


def perplexity_rows(section: str, quick: bool, aims: Aims) -> Iterator[Row]:
    """Of SmolLM2-135M from its GGUF file, in windows of 512 tokens."""
    say(section)
    options = {"tokens": 2 * WINDOW if quick else TEXT}
    job = Job("decoders_accuracy:perplexities", threads=THREADS, options=options)
    found: dict[str, float] = runner.value(job)
    for name, value in found.items():
        yield Row(name, value, section=section)
    for name, most in ((INT4, MOST_PERPLEXITY), (INT8, None)):
        what = f"{name}: perplexity over that of {EXACT} on the same integers"
        yield Row(what, found[name] / found[EXACT], "x", at_most=most, section=section)


def perplexities(job: Job) -> dict[str, float]:
    """What a child finds; `EXACT` multiplies the file's own weights in float32."""
    import torch

    ids = torch.tensor(smollm.tokens(job.options["tokens"]))
    found = {}
    for name in (EXACT, INT4, INT8):
        with torch.inference_mode(False), torch.no_grad():
            made = model(name, smollm.model_file())
        loss = count = 0.0
        for window in ids.split(WINDOW):
            logits = made(window[None], use_cache=False).logits[0, :-1].float()
            loss += float(torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum"))
            count += len(window) - 1
        found[name] = math.exp(loss / count)
    return found


def whisper_rows(section: str, quick: bool, aims: Aims) -> Iterator[Row]:
    """Word error rates of Whisper tiny.en."""
    say(section)
    options = {"prompts": 8 if quick else PROMPTS}
    found: dict[str, float] = runner.value(
        Job("decoders_accuracy:word_error_rates", threads=THREADS, options=options)
    )
    count = found.pop("prompts")
    for name, value in found.items():
        yield Row(f"{name}: word error rate", value, section=section, note=f"{count:.0f} prompts")
    for name, most in MOST_WORDS.items():
        what = f"{name}: word error rate above that of {HALF}"
        yield Row(what, found[name] - found[HALF], at_most=most, section=section)


def table_recipe() -> Recipe:
    """`int4` but for the table of words, by which the last layer multiplies too."""
    scheme = in_groups(QType.INT8, 32, affine=False)
    rules = (Rule(scheme, name=name) for name in ("*embed_tokens", "proj_out"))
    return preset("int4").with_rules_first(*rules)


def word_error_rates(job: Job) -> dict[str, float]:
    """What a child finds."""
    import jiwer
    import torch
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    from octavo.torch import quantize_dynamic

    prompts = whisper_tiny.prompts(job.options["prompts"])
    normal: Any = EnglishTextNormalizer({})
    said = [normal(prompt.words) for prompt in prompts]
    found: dict[str, float] = {"prompts": len(prompts)}
    exact = whisper_tiny.model()
    recipes = {HALF: None, INT8: "int8", INT4: "int4", TABLE: table_recipe()}
    for name, recipe in recipes.items():
        with torch.inference_mode(False), torch.no_grad():
            made = copy.deepcopy(exact)
            made = quantize_dynamic(made, recipe=recipe, inplace=True) if recipe else made
        heard = whisper_tiny.texts(made, [prompt.sound for prompt in prompts])
        found[name] = float(jiwer.wer(said, [normal(text) for text in heard]))
    return found
