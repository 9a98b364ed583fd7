"""Real models in PyTorch: what `python -m benchmarks.models --torch` measures.

Octavo's modules of all-MiniLM-L6, g2p-en and nano-ocr beside the float ones and torch.ao's, what a
row does to the others of its batch, and what quantizing and loading cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import children, torch_batch, torch_costs, torch_variants
from benchmarks.children import Cell, Job
from benchmarks.latency import SHAPES
from benchmarks.results import Row, say
from benchmarks.sections import Rows, every
from benchmarks.speed import Asked, Setting, settings, speed_rows
from benchmarks.torch_variants import ACCURATE, AO, AO_CHANNEL, FLOAT, FOUR, HALF, OCTAVO
from benchmarks.zoo import g2p, minilm, nano_ocr

if TYPE_CHECKING:
    import torch

MOST_ERROR, MOST_ERROR_ACCURATE = 0.0013, 0.0006  # 1 - cosine of hidden states
SCORE_MARGIN = 0.003
PER_MARGIN, MOST_CHANGED = 0.001, 20
ACCURACY_MARGIN = 0.004
NEVER_SLOWER = 1.0
NAMES = {"lee": "Lee, Pearson", "wordsim": "WordSim353, Spearman", "trec": "TREC probe, accuracy"}
TREC_HELD_OUT = "TREC probe, accuracy on all 3,880 other questions"
MINILM_SPEED = (
    Asked(OCTAVO, FLOAT, mean=3.2),
    Asked(OCTAVO, AO_CHANNEL, mean=1.3, each=NEVER_SLOWER),
    Asked(OCTAVO, AO),
    Asked(ACCURATE, OCTAVO, mean=0.85),
)
# int8 weights alone change more words of g2p-en than are asked for; weights in float16 do not.
G2P_OURS = (OCTAVO, HALF)
G2P_SPEED = tuple(
    Asked(ours, over, each=NEVER_SLOWER) for ours in G2P_OURS for over in (AO, AO_CHANNEL, FLOAT)
)
OCR_SPEED = (
    *(Asked(OCTAVO, over, each=NEVER_SLOWER) for over in (AO, AO_CHANNEL)),
    Asked(OCTAVO, FLOAT),
)


@dataclass(frozen=True)
class Model:
    """A part of `parts_torch`, its cells, and the figures asked of it."""

    part: str
    make: Callable[[], torch.nn.Module]
    cells: tuple[Cell, ...]
    asked: tuple[Asked, ...]


MODELS = (
    Model("all-MiniLM-L6", partial(minilm.torch_model, minilm.SERVED), SHAPES, MINILM_SPEED),
    Model("g2p-en", g2p.torch_model, ((20,),), G2P_SPEED),
    Model("nano-ocr", nano_ocr.torch_model, ((1,), (8,)), OCR_SPEED),
)


@dataclass(frozen=True)
class Effort:
    """How much is measured: child processes a figure, words, images, layers."""

    quick: bool
    processes: int

    @property
    def words(self) -> int:
        """That g2p-en decodes."""
        return 200 if self.quick else g2p.COUNT

    @property
    def images(self) -> int:
        """That nano-ocr reads."""
        return 60 if self.quick else nano_ocr.COUNT

    @property
    def layers(self) -> int:
        """Of the large decoder."""
        return 1 if self.quick else torch_costs.LAYERS


def all_rows(effort: Effort) -> list[Row]:
    """Every figure; what cannot be measured is a missed row, and the others go on."""
    sections: dict[str, Rows] = {
        "all-MiniLM-L6: accuracy": lambda: minilm_rows(effort),
        "g2p-en: accuracy": lambda: g2p_rows(effort),
        "nano-ocr: accuracy": lambda: ocr_rows(effort),
        torch_batch.SECTION: torch_batch.batch_rows,
        **speed_sections(effort),
        "Quantizing a large decoder": lambda: torch_costs.large_rows(effort.layers),
        "Loading all-MiniLM-L6": lambda: torch_costs.load_rows(
            1 if effort.quick else min(3, effort.processes), 3 if effort.quick else 11
        ),
    }
    return every(sections)


def minilm_rows(effort: Effort) -> Iterator[Row]:
    """Error of the hidden states and the three labelled tasks."""
    section = "all-MiniLM-L6: accuracy"
    say(f"{section}, error")
    exact = minilm.torch_model(minilm.SERVED)
    made, refused = torch_variants.every((*FOUR, ACCURATE), exact)
    most = {OCTAVO: MOST_ERROR, ACCURATE: MOST_ERROR_ACCURATE}
    for name in (AO, AO_CHANNEL, OCTAVO, ACCURATE):
        yield Row(
            f"{name}: 1 - cosine of hidden states",
            minilm.hidden_state_error(exact, made[name]) if name in made else math.nan,
            at_most=most.get(name),
            section=section,
            note=refused.get(name, ""),
        )
    yield from held_rows(made, section)
    if effort.quick:
        return
    say(f"{section}, labelled tasks")
    evaluation = minilm.Evaluation(minilm.embedder(exact))
    embedders = {name: minilm.embedder(module) for name, module in made.items()}
    scores = {name: evaluation.scores(embed).to_dict() for name, embed in embedders.items()}
    for task, words in NAMES.items():
        found = {name: score[task] for name, score in scores.items()}
        yield from score_rows(words, found, refused, section)
    # Of 600 questions, two are more than the margin.
    held_out = {name: evaluation.trec_held_out(embed) for name, embed in embedders.items()}
    yield from score_rows(TREC_HELD_OUT, held_out, refused, section)


def score_rows(
    words: str, found: Mapping[str, float], refused: Mapping[str, str], section: str
) -> Iterator[Row]:
    """A task's scores; Octavo's is to be within a margin of float's."""
    wanted = found[FLOAT]
    for name in (*FOUR, ACCURATE):
        score = found.get(name, math.nan)
        bounded = name == OCTAVO
        yield Row(
            f"{words}: {name}",
            score,
            at_least=wanted - SCORE_MARGIN if bounded else None,
            at_most=wanted + SCORE_MARGIN if bounded else None,
            section=section,
            note=refused.get(name, "" if name == FLOAT else f"{score - wanted:+.4f} from float"),
        )


def held_rows(made: Mapping[str, torch.nn.Module], section: str) -> Iterator[Row]:
    """How much of a model Octavo quantizes: for information."""
    if OCTAVO in made:
        count, known, left = torch_variants.held(made[OCTAVO])
        note = f"left float: {left}" if left else ""
        what = f"{OCTAVO}: layers quantized"
        yield Row(what, count, f"of {known}", section=section, note=note)


def g2p_rows(effort: Effort) -> Iterator[Row]:
    """Phoneme error rate, and words whose phonemes are other ones than float's."""
    section = f"g2p-en on {effort.words} words of CMUdict"
    say(section)
    of = g2p.words(effort.words)
    names = (*FOUR, HALF)
    made, refused = torch_variants.every(names, g2p.torch_model())
    found = {name: g2p.decode(module, of) for name, module in made.items()}
    wanted = g2p.phoneme_error_rate(found[FLOAT], of)
    for name in names:
        rate = g2p.phoneme_error_rate(found[name], of) if name in found else math.nan
        bounded = name in G2P_OURS
        yield Row(
            f"{name}: phoneme error rate",
            rate,
            at_least=wanted - PER_MARGIN if bounded else None,
            at_most=wanted + PER_MARGIN if bounded else None,
            section=section,
            note=refused.get(name, "" if name == FLOAT else f"{rate - wanted:+.5f} from float"),
        )
    for name in names[1:]:
        changed = g2p.changed_words(found[FLOAT], found[name]) if name in found else math.nan
        yield Row(
            f"{name}: words changed",
            changed,
            at_most=MOST_CHANGED if name in G2P_OURS else None,
            section=section,
            note=refused.get(name, ""),
        )
    alone = g2p.decode(torch_variants.rounded(made[FLOAT]), of)
    yield Row(
        f"{FLOAT}, with {OCTAVO}'s weights: words changed",
        g2p.changed_words(found[FLOAT], alone),
        section=section,
        note="what a recipe's weights alone change; nothing is done to the activations",
    )
    yield from held_rows(made, section)


def ocr_rows(effort: Effort) -> Iterator[Row]:
    """Word accuracy and character error rate."""
    section = f"nano-ocr on {effort.images} drawn words"
    say(section)
    made, refused = torch_variants.every(FOUR, nano_ocr.torch_model())
    read = {name: nano_ocr.transcribe(module, effort.images) for name, module in made.items()}
    wanted = nano_ocr.word_accuracy(read[FLOAT])
    for name in FOUR:
        yield Row(
            f"{name}: word accuracy",
            nano_ocr.word_accuracy(read[name]) if name in read else math.nan,
            at_least=wanted - ACCURACY_MARGIN if name == OCTAVO else None,
            section=section,
            note=f"character error rate {nano_ocr.character_error_rate(read[name]):.5f}"
            if name in read
            else refused[name],
        )
    yield from held_rows(made, section)


def speed_sections(effort: Effort) -> dict[str, Rows]:
    """One section for each model and setting."""
    return {
        f"{model.part}: speed, {setting.words}": partial(model_speed, model, setting, effort.quick)
        for model in MODELS
        for setting in settings(effort.quick, effort.processes)
    }


def model_speed(model: Model, setting: Setting, quick: bool) -> Iterator[Row]:
    """Of the modules that can be made here; the children make them again."""
    names = dict.fromkeys(name for a in model.asked for name in (a.of, a.over))
    made, refused = torch_variants.every(names, model.make())
    section = f"{model.part}: speed, {setting.words}"
    say(section)
    cells = model.cells[: 2 if quick else None]
    job = Job(model.part, cells, setting.threads, setting.amx, rounds=setting.rounds)
    found = children.pooled_run(replace(job, peers=tuple(made)), setting.processes)
    yield from speed_rows(found, model.asked, section, refused)
