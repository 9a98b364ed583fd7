"""Tuning stacks whose bad layers are known: what `auto` changes, and after how many evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

from benchmarks import tune_stacks
from benchmarks.results import REPOSITORY, Row, say
from benchmarks.runner import Rows
from benchmarks.tune_stacks import Stack
from octavo.onnx import OnnxTarget
from octavo.recipe import FLOAT, Recipe, Rule, Scheme, preset
from octavo.results.target import Target
from octavo.results.tuning import TuneResult
from octavo.tune import Criterion, tune

CRITERION = Criterion(relative=0.01)
BASE = preset("int8")
SEEDS = {3: (0, 1), 12: (0, 1, 2), 96: (0, 1, 2), 384: (0, 1)}
MODULES = (12, 96)
SPREAD = {12: 70.0, 96: 20.0}
BASIC_TRIALS, MANY = 500, 96
EXHAUSTIVE = 12  # layers
HARD = "damage spread evenly over {} layers"


def most_evaluations(layers: int) -> float:
    """The bound on `auto`'s evaluations."""
    return 2 + 2 * math.log2(layers)


def sections(folder: Path, quick: bool) -> dict[str, Rows]:
    """Rows by title; models are made in `folder`."""
    sizes = {n: seeds[:1] for n, seeds in SEEDS.items() if n <= 12} if quick else SEEDS
    found: dict[str, Rows] = {}
    for n, seeds in sizes.items():
        found[f"One bad layer of {n}"] = partial(one_bad_rows, folder, n, seeds)
    for n in MODULES[:1] if quick else MODULES:
        found[f"One bad layer of {n}, PyTorch"] = partial(module_rows, n)
    for n in (EXHAUSTIVE,) if quick else (EXHAUSTIVE, 96):
        found[f"Three bad layers of {n}"] = partial(several_rows, folder, n, "three")
        found[HARD.format(n).capitalize()] = partial(several_rows, folder, n, "spread")
    return found


def planted(layers: int, seed: int) -> tuple[Stack, str]:
    """A stack with one bad layer, and in words which; odd seeds scale the other way round."""
    factor = tune_stacks.FACTOR if seed % 2 == 0 else 1 / tune_stacks.FACTOR
    stack = tune_stacks.planted(layers, seed, factor=factor)
    scaled = "weights" if factor > 1 else "inputs"
    return stack, f"{stack.bad_names[0]}, one channel of its {scaled} 1000x"


def one_bad_rows(folder: Path, layers: int, seeds: Sequence[int]) -> Iterator[Row]:
    """`auto` on one bad layer, by size; then `basic`, and `auto` by latency, for information."""
    section = f"One bad layer of {layers}"
    for seed in seeds:
        stack, words = planted(layers, seed)
        say(f"{section}: {words}")
        path = tune_stacks.write_onnx(stack, folder / f"planted-{layers}-{seed}.onnx")
        model = OnnxTarget(path)
        yield from _auto_rows(model, stack, words, section)
        if seed == seeds[0]:
            yield _basic_row(path, stack, words, section)
        if seed == seeds[0] and layers <= 96:
            result = _auto(model, "performance")
            ratio = result.best.time_ratio
            time = "not timed" if ratio is None else f"{ratio:.3f} of the float model's time"
            what = f"{words}, objective performance: evaluations"
            note = f"{_outcome(result)}; {time}"
            yield Row(what, len(result.trials), section=section, note=note)


def module_rows(layers: int) -> Iterator[Row]:
    """The same stack as a PyTorch module."""
    import torch

    from octavo.torch import TorchTarget

    section = f"One bad layer of {layers}, PyTorch"
    stack, words = planted(layers, 0)
    say(f"{section}: {words}")
    example = torch.from_numpy(tune_stacks.task()[0][:32])
    model = TorchTarget(tune_stacks.module(stack), example_inputs=(example,))
    yield from _auto_rows(model, stack, words, section)


def _auto(model: Target, objective: str) -> TuneResult:
    return tune(
        model, tune_stacks.evaluate, recipe="int8", criterion=CRITERION, objective=objective
    )


def _auto_rows(model: Target, stack: Stack, words: str, section: str) -> Iterator[Row]:
    """Whether just the bad layers were changed, and the evaluations."""
    result = _auto(model, "modelsize")
    differ = set(changed(model, result.best.recipe)) ^ set(bad_of(model, stack))
    wrong = len(differ) if result.status.met else math.nan
    what = f"{words}: layers wrongly changed or missed"
    yield Row(what, wrong, at_most=0, section=section, note=_outcome(result))
    count, most = len(result.trials), most_evaluations(len(stack.layers))
    note = f"and {result.model_runs} runs of the model on made-up inputs; {result.seconds:.1f} s"
    yield Row(f"{words}: evaluations", count, at_most=most, section=section, note=note)


def bad_of(model: Target, stack: Stack) -> list[str]:
    """The bad layers' names, as the model's front end has them."""
    names = [d.layer.name for d in model.decisions(BASE)]
    return [names[i] for i in stack.bad]


def changed(model: Target, recipe: Recipe | None) -> list[str]:
    """The layers that `recipe` (None: float) does not hold as the base does."""
    base = model.decisions(BASE)
    if recipe is None:
        return [d.layer.name for d in base]
    pairs = zip(base, model.decisions(recipe), strict=True)
    return [was.layer.name for was, now in pairs if was.scheme != now.scheme]


def _outcome(result: TuneResult) -> str:
    first = result.trials[0]
    lost = "" if first.loss is None else f"; all int8 loses {first.loss:.1%}"
    best = f"{result.best.loss:.2%}" if result.best.loss is not None else "?"
    return f"{result.status.value}: {result.best.words}, loses {best}{lost}"


class _Int8OrFloat(OnnxTarget):
    """Without the schemes between int8 and float, as `basic` is known."""

    def raised(self) -> tuple[Scheme, ...]:
        """None."""
        return ()


def _basic_row(path: Path, stack: Stack, words: str, section: str) -> Row:
    """How many evaluations `basic` needs, where a layer is int8 or float."""
    model = _Int8OrFloat(path)
    result = tune(
        model,
        tune_stacks.evaluate,
        criterion=CRITERION,
        objective="modelsize",
        strategy="basic",
        max_trials=BASIC_TRIALS,
        workers=2 if len(stack.layers) >= MANY else None,  # it takes minutes
        path=(str(REPOSITORY),),
    )
    right = changed(model, result.best.recipe) == bad_of(model, stack)
    note = f"{_outcome(result)}; {result.seconds:.0f} s"
    note = note if right else f"not that layer alone: {note}"
    count = len(result.trials) if result.status.met else math.nan
    return Row(f"{words}: evaluations that basic needs", count, section=section, note=note)


def several_rows(folder: Path, layers: int, kind: str) -> Iterator[Row]:
    """Three bad layers, or damage in all, beside the best of all subsets where they are few."""
    if kind == "three":
        section, stack = f"Three bad layers of {layers}", tune_stacks.planted(layers, 5, count=3)
    else:
        section = HARD.format(layers).capitalize()
        stack = tune_stacks.spread(layers, 5, SPREAD[layers])
    say(section)
    model = OnnxTarget(tune_stacks.write_onnx(stack, folder / f"{kind}-{layers}.onnx"))
    result = _auto(model, "modelsize")
    loss, most = result.best.loss, 100 * CRITERION.bound
    lost = math.nan if loss is None or not result.status.met else loss * 100
    what, note = "share of the accuracy lost", _outcome(result)
    yield Row(what, lost, "%", at_most=most, section=section, note=note)
    count, note = len(result.trials), f"and {result.model_runs} runs of the model"
    note += f"; {result.seconds:.1f} s"
    yield Row("evaluations", count, at_most=most_evaluations(layers), section=section, note=note)
    names = changed(model, result.best.recipe)
    right = set(names) == set(bad_of(model, stack))
    note = "" if kind == "spread" else "the bad ones" if right else "not just the bad ones"
    yield Row("layers float or raised", len(names), f"of {layers}", section=section, note=note)
    if layers == EXHAUSTIVE:
        yield fewest_row(model, result, section)


def fewest_row(model: Target, result: TuneResult, section: str) -> Row:
    """The fewest layers that must be float, from evaluating subsets, the small ones first."""
    say(f"{section}: subsets of layers left float, the small ones first")
    names = [d.layer.name for d in model.decisions(BASE)]
    baseline = tune_stacks.evaluate(model.float_model().model)
    tried = 0
    for count in range(len(names) + 1):
        for subset in combinations(names, count):
            built = model.build(left_float(subset))
            tried += 1
            if CRITERION.meets(baseline, tune_stacks.evaluate(built.model)):
                size = f"{built.bytes / 1e3:.1f} kB"
                note = f"{tried} subsets evaluated, none smaller will do; {size}"
                if result.best.bytes is not None:
                    note += f", and auto's result {result.best.bytes / 1e3:.1f} kB"
                what = "fewest layers float, by exhaustive search"
                return Row(what, count, f"of {len(names)}", section=section, note=note)
    raise RuntimeError("not even the float model meets the criterion")


def left_float(names: Sequence[str]) -> Recipe:
    """The base, with the layers of these names left float."""
    return BASE.with_rules_first(*(Rule(FLOAT, name=name) for name in names))
