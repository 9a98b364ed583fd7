"""Real models in PyTorch: what `python -m benchmarks.models --torch` measures.

Octavo's modules of all-MiniLM-L6, g2p-en and nano-ocr beside the float ones and torch.ao's, what a
row does to the others of its batch, and what quantizing and loading cost.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import latency, rows, runner, torch_variants
from benchmarks.latency import SHAPES, Setting
from benchmarks.results import Row, say
from benchmarks.rows import NO_RATIO, Asked
from benchmarks.runner import Cell, Job, Rows
from benchmarks.torch_variants import ACCURATE, AO, AO_CHANNEL, FLOAT, FOUR, HALF, OCTAVO
from benchmarks.zoo import g2p, minilm, nano_ocr

if TYPE_CHECKING:
    import torch

MOST_ERROR = {OCTAVO: 0.0013, ACCURATE: 0.0006}  # 1 - cosine of hidden states
SCORE_MARGIN = 0.003
PER_MARGIN, MOST_CHANGED = 0.001, 20
ACCURACY_MARGIN = 0.004
MOST_TIME = 0.25  # of torch.ao's, to quantize the decoder
LAYERS = 22  # of it
TREC_HELD_OUT = "TREC probe, accuracy on all 3,880 other questions"
ROWS, WIDTH, STEPS, SCALE = 8, 384, 20, 100.0  # of a batch in which one row is scaled
BATCH = "A batch with one row scaled 100x: the results of the others"
# int8 weights alone change more words of g2p-en than are asked for; weights in float16 do not.
G2P_OURS = (OCTAVO, HALF)


@dataclass(frozen=True)
class Model:
    """A part of `parts_torch`, its cells, and the figures asked of it."""

    part: str
    make: Callable[[], torch.nn.Module]
    cells: tuple[Cell, ...]
    asked: tuple[Asked, ...]


MODELS = {
    "all-MiniLM-L6": Model(
        *("parts_torch:minilm", partial(minilm.torch_model, minilm.SERVED), SHAPES),
        (
            Asked(OCTAVO, FLOAT, mean=3.2),
            Asked(OCTAVO, AO_CHANNEL, mean=1.3, each=1.0),
            Asked(OCTAVO, AO),
            Asked(ACCURATE, OCTAVO, mean=0.85),
        ),
    ),
    "g2p-en": Model(
        *("parts_torch:g2p_en", g2p.torch_model, ((20,),)),
        tuple(Asked(o, over, each=1.0) for o in G2P_OURS for over in (AO, AO_CHANNEL, FLOAT)),
    ),
    "nano-ocr": Model(
        *("parts_torch:ocr", nano_ocr.torch_model, ((1,), (8,))),
        (*(Asked(OCTAVO, over, each=1.0) for over in (AO, AO_CHANNEL)), Asked(OCTAVO, FLOAT)),
    ),
}


@dataclass(frozen=True)
class Effort:
    """How much is measured: child processes a figure, and less of all where it is quick."""

    quick: bool
    processes: int


def sections(effort: Effort) -> dict[str, Rows]:
    """Every figure, by the title of its section."""
    quick = effort.quick
    return {
        "all-MiniLM-L6: accuracy": partial(minilm_rows, quick),
        "g2p-en: accuracy": partial(g2p_rows, 200 if quick else g2p.COUNT),
        "nano-ocr: accuracy": partial(ocr_rows, 60 if quick else nano_ocr.COUNT),
        BATCH: batch_rows,
        **{
            f"{name}: speed, {setting.words}": partial(speed_rows, name, model, setting, quick)
            for name, model in MODELS.items()
            for setting in latency.settings(quick, effort.processes)
        },
        "Quantizing a large decoder": partial(decoder_rows, 1 if quick else LAYERS),
        "Loading all-MiniLM-L6": partial(
            load_rows, 1 if quick else min(3, effort.processes), 3 if quick else 11
        ),
    }


def minilm_rows(quick: bool) -> Iterator[Row]:
    """Error of the hidden states and the three labelled tasks."""
    section = "all-MiniLM-L6: accuracy"
    say(f"{section}, error")
    exact, names = minilm.torch_model(minilm.SERVED), (*FOUR, ACCURATE)
    made, refused = torch_variants.every(names, exact)
    what = ": 1 - cosine of hidden states"
    yield from rows.error_rows(exact, made, names[1:], what, MOST_ERROR, refused, section)
    yield from count_rows(made, section)
    if quick:
        return
    say(f"{section}, labelled tasks")
    evaluation = minilm.Evaluation(minilm.embedder(exact))
    scores = {}
    for name, module in made.items():
        embed = minilm.embedder(module)
        # Of 600 questions, two are more than the margin.
        more = {TREC_HELD_OUT: evaluation.trec_held_out(embed)}
        scores[name] = {**evaluation.scores(embed).by_task(), **more}
    yield from rows.task_rows(scores, names, OCTAVO, SCORE_MARGIN, refused, section)


def count_rows(made: Mapping[str, torch.nn.Module], section: str) -> Iterator[Row]:
    """How much of a model Octavo quantizes: for information."""
    if OCTAVO in made:
        count, known, left = torch_variants.held(made[OCTAVO])
        note = f"left float: {left}" if left else ""
        yield Row(f"{OCTAVO}: layers quantized", count, f"of {known}", section=section, note=note)


def g2p_rows(words: int) -> Iterator[Row]:
    """Phoneme error rate, and words whose phonemes are other ones than float's."""
    section = f"g2p-en on {words} words of CMUdict"
    say(section)
    of, names = g2p.words(words), (*FOUR, HALF)
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
        what, most = f"{name}: words changed", MOST_CHANGED if name in G2P_OURS else None
        yield Row(what, changed, at_most=most, section=section, note=refused.get(name, ""))
    alone = g2p.decode(torch_variants.rounded(made[FLOAT]), of)
    what = f"{FLOAT}, with {OCTAVO}'s weights: words changed"
    note = "what a recipe's weights alone change; nothing is done to the activations"
    yield Row(what, g2p.changed_words(found[FLOAT], alone), section=section, note=note)
    yield from count_rows(made, section)


def ocr_rows(images: int) -> Iterator[Row]:
    """Word accuracy and character error rate."""
    section = f"nano-ocr on {images} drawn words"
    say(section)
    made, refused = torch_variants.every(FOUR, nano_ocr.torch_model())
    read = {name: nano_ocr.transcribe(module, images) for name, module in made.items()}
    wanted = nano_ocr.word_accuracy(read[FLOAT])
    for name in FOUR:
        accuracy, note = math.nan, refused.get(name, "")
        if name in read:
            accuracy = nano_ocr.word_accuracy(read[name])
            note = f"character error rate {nano_ocr.character_error_rate(read[name]):.5f}"
        least = wanted - ACCURACY_MARGIN if name == OCTAVO else None
        what = f"{name}: word accuracy"
        yield Row(what, accuracy, at_least=least, section=section, note=note)
    yield from count_rows(made, section)


def speed_rows(name: str, model: Model, setting: Setting, quick: bool) -> Iterator[Row]:
    """Of the modules that can be made here; the children make them again."""
    names = dict.fromkeys(n for a in model.asked for n in (a.of, a.over))
    made, refused = torch_variants.every(names, model.make())
    section = f"{name}: speed, {setting.words}"
    say(section)
    job = Job(
        *(model.part, model.cells[: 2 if quick else None], setting.threads, setting.amx),
        rounds=setting.rounds,
        peers=tuple(made),
    )
    found = runner.pooled_run(job, setting.processes)
    yield from rows.speed_rows(found, model.asked, section, refused)


@dataclass(frozen=True)
class Effect:
    """Elements of the other rows that changed, and their error without and with the outlier.

    The error is the norm of the difference from the float module's as a share of its norm.
    """

    changed: int
    elements: int
    error: float
    error_beside: float


def effect(module: torch.nn.Module, exact: torch.nn.Module, x: torch.Tensor) -> Effect:
    """Of scaling the row in the middle of `x`, whose rows lie along the first axis."""
    import torch

    outlier = x.clone()
    outlier[ROWS // 2] *= SCALE
    others = torch.arange(ROWS) != ROWS // 2
    with torch.inference_mode():
        made = [m(given) for m, given in ((exact, x), (module, x), (module, outlier))]
    want, plain, beside = ((y[0] if isinstance(y, tuple) else y)[others] for y in made)
    norm = float(want.norm())
    errors = (float((y - want).norm()) / norm for y in (plain, beside))
    return Effect(int((plain != beside).sum()), plain.numel(), *errors)


def batches() -> Mapping[str, tuple[torch.nn.Module, torch.Tensor]]:
    """A stack of Linears as in MiniLM and an LSTM, each with a batch of 8 rows."""
    import torch

    torch.manual_seed(0)
    wide = 4 * WIDTH
    stack = torch.nn.Sequential(
        *(torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)),
        *(torch.nn.Linear(WIDTH, wide), torch.nn.GELU(), torch.nn.Linear(wide, WIDTH)),
    )
    recurrent = torch.nn.Sequential(torch.nn.LSTM(WIDTH, WIDTH, batch_first=True))
    return {
        "stack of Linears": (stack.eval(), torch.randn(ROWS, WIDTH)),
        "LSTM": (recurrent.eval(), torch.randn(ROWS, STEPS, WIDTH)),
    }


def batch_rows() -> Iterator[Row]:
    """Octavo's other rows keep every bit; torch.ao's error beside them."""
    for what, (exact, x) in batches().items():
        made, refused = torch_variants.every(FOUR, exact)
        for name in FOUR[1:]:
            changed, note = math.nan, refused.get(name, "")
            if name in made:
                found = effect(made[name], exact, x)
                changed = found.changed / found.elements
                note = f"error {found.error:.4f} without the scaled row, {found.error_beside:.4f} "
                note += f"with it; {found.elements} elements"
            most = 0 if name == OCTAVO else None
            title = f"{what}: {name}: share of elements changed"
            yield Row(title, changed, at_most=most, section=BATCH, note=note)


def decoder_rows(layers: int) -> Iterator[Row]:
    """Peak memory and time of quantizing in place, each in a process of its own."""
    costs = []
    # Once, between two of ours: the machine may be another one a minute later.
    for variant in (OCTAVO, AO, OCTAVO):
        say(f"a decoder of {layers} layers: {variant}")
        job = Job("parts_torch:quantizing", ((layers,),), threads=0, peers=(variant,))
        costs.append(runner.value(job))
    before, theirs, after = costs
    ours = max(before, after, key=lambda cost: float(cost["peak"] - cost["float_peak"]))
    floating, largest = ours["float_peak"], ours["largest"]
    section = f"Quantizing a decoder of {ours['parameters'] / 1e9:.2f} billion parameters in place"
    most = (floating + largest) / 1e6
    note = f"float model {floating / 1e6:,.0f} MB, its largest layer {largest / 1e6:,.0f} MB"
    what = f"{OCTAVO}: peak memory"
    yield Row(what, ours["peak"] / 1e6, "MB", at_most=most, section=section, note=note)
    yield Row(f"{AO}: peak memory", theirs["peak"] / 1e6, "MB", section=section)
    one, two, peer = (cost["seconds"] for cost in (before, after, theirs))
    what, note = (
        f"{OCTAVO}: time as a share of {AO}'s",
        f"{one:.2f} and {two:.2f} s to {peer:.2f} s",
    )
    yield Row(what, (one + two) / 2 / peer, at_most=MOST_TIME, section=section, note=note)


def load_rows(processes: int, rounds: int) -> Iterator[Row]:
    """Time to load all-MiniLM-L6, its files in memory, and whether it is what was saved."""
    from benchmarks.parts_torch import PRETRAINED, PRETRAINED_AO

    say("all-MiniLM-L6: loading")
    section = "Loading all-MiniLM-L6, warm"
    checks = list(runner.guarded(section, partial(_check_rows, section)))
    failed = checks[0].note if math.isnan(checks[0].measured) else ""
    peers = () if failed else (OCTAVO,)
    job = Job("parts_torch:loading", peers=peers, rounds=rounds)
    compared = runner.pooled_run(job, processes)["load"]
    for peer, most in ((PRETRAINED, 1.0), (PRETRAINED_AO, 0.1)):
        share = compared.time(OCTAVO, peer) if peers else NO_RATIO
        note = f"{peer} {compared[peer].median * 1e3:.1f} ms; {failed}"
        if peers:
            note = f"{compared[OCTAVO].median * 1e3:.1f} ms to {compared[peer].median * 1e3:.1f} ms"
            note += f"; quartiles {share.low:.3f} to {share.high:.3f}"
        what = f"{OCTAVO}: time as a share of {peer}'s"
        yield Row(what, share.median, at_most=most, section=section, note=note)
    yield from checks


def _check_rows(section: str) -> Iterator[Row]:
    """Buffers, those that no state dict holds among them, and hidden states are the same bits."""
    import torch

    from benchmarks import parts_torch

    made = torch_variants.quantized(OCTAVO, minilm.torch_model(minilm.SERVED))
    with tempfile.TemporaryDirectory(prefix="octavo-load-") as name:
        file = Path(name, "minilm")
        torch_variants.front_end().save(made, file)
        size = sum(p.stat().st_size for p in [file, *file.rglob("*")] if p.is_file())
        found = parts_torch.load(file)
    buffers, others = dict(made.named_buffers()), dict(found.named_buffers())
    wrong = sum(n not in others or not torch.equal(b, others[n]) for n, b in buffers.items())
    wrong += len(others.keys() - buffers.keys())
    hidden = buffers.keys() - set(made.state_dict())
    what, note = "buffers of the loaded module that differ", ", ".join(sorted(hidden)) or "none"
    note = f"not persistent: {note}"
    yield Row(what, wrong, f"of {len(buffers)}", at_most=0, section=section, note=note)
    feed = minilm.tokenize(minilm.lee_documents()[:4])
    a, b = (torch.from_numpy(minilm.hidden_states(module, feed)) for module in (made, found))
    different = int((a != b).sum())
    what = "hidden states of the loaded module that differ in a bit"
    yield Row(what, different, f"of {a.numel():,}", at_most=0, section=section)
    yield Row("file", size / 1e6, "MB", section=section)
