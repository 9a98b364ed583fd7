"""A search without a model: layers that do damage, an accuracy made of it, a loop."""

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from octavo.recipe import FLOAT, Kind, Layer, Recipe, Scheme, plan, preset
from octavo.results.tuning import LeftOut, Trial
from octavo.tune.search import Candidate, Strategy
from octavo.tune.space import Space

GROUPS, BLOCKS, HALF = (preset(name).default for name in ("int8-accurate", "int8-block", "float16"))
RAISED = (GROUPS, BLOCKS, HALF)
BOUND = 0.01
BYTES = {Scheme(): 100, GROUPS: 105, BLOCKS: 112, HALF: 200, FLOAT: 400}

Held = Mapping[str, Scheme]
"""Each quantized layer's scheme."""


def layer(name: str, kind: Kind = Kind.LINEAR, **more: object) -> Layer:
    op = {Kind.LINEAR: "MatMul", Kind.EMBEDDING: "Gather"}.get(kind, kind.value)
    fields = {"bytes": 4096, "macs_per_row": 1024, **more}
    return Layer(name, kind, op, ((f"{name}.w", (32, 32)),), **fields)  # type: ignore[arg-type]


def layers(count: int) -> list[Layer]:
    return [layer(f"l{at}") for at in range(count)]


def space_of(count: int, raised: Sequence[Scheme] = RAISED) -> Space:
    base = preset("int8")
    return Space.of(plan(layers(count), base), base, raised=raised)


def sums(damage: Mapping[str, float], softer: Mapping[Scheme, float] | None = None):
    """The damage of the quantized layers, added up; of raised ones the share that `softer` says."""
    shares = {GROUPS: 1.0, BLOCKS: 1.0, HALF: 1.0, **(softer or {})}

    def total(held: Held) -> float:
        return math.fsum(damage.get(n, 0.0) * shares.get(s, 1.0) for n, s in held.items())

    return total


@dataclass
class Simulated:
    """A context whose accuracy is 1 - `loss`(held), and whose output's error is `error`(held).

    `loss` may raise: then the trial fails. The score is the bytes of all layers.
    """

    space: Space
    loss: Callable[[Held], float]
    error: Callable[[Held], float] | None = None
    seed: int = 7
    max_trials: int = 100
    timed: bool = False
    keeps_going: bool = False
    bound: float = BOUND
    ratios: Callable[[Candidate], tuple[float, float]] | None = None
    runs: int = 0
    ranking: dict[str, float] = field(default_factory=dict)
    timings: int = 0
    needs_accuracy: bool = False
    others: Sequence[Space] = ()
    left_out: dict[str, LeftOut] = field(default_factory=dict)

    @property
    def starts(self) -> list[Space]:
        return [self.space, *self.others]

    def appraise(self, candidates: Sequence[Candidate]) -> list[Trial]:
        return [self.trial(0, c.recipe, self.held(c.recipe)) for c in candidates]

    def leave_out(self, candidate: Candidate, why: LeftOut) -> None:
        self.left_out[candidate.description] = why

    def beats(self, a: Trial, b: Trial) -> bool:
        return (a.score or 0.0) < (b.score or 0.0)

    @property
    def baseline(self) -> Trial:
        return self.trial(0, None, {})

    def held(self, recipe: Recipe) -> dict[str, Scheme]:
        """What `plan` would say, without comparing each of 384 layers with each of 384 rules."""
        rules = {rule.name: rule.scheme for rule in recipe.rules if rule.name}
        own = recipe.default == self.space.base.default  # else another start's recipe
        held = {
            c.layer.name: rules.get(c.layer.name, c.own if own else recipe.default)
            for c in self.space.choices
        }
        return {name: scheme for name, scheme in held.items() if not scheme.is_float}

    def errors(self, recipe: Recipe, sets: Sequence[Collection[str]]) -> list[float]:
        self.runs += len(sets)
        all_held = self.held(recipe)
        measure = self.error or self.loss
        return [measure({n: s for n, s in all_held.items() if n in names}) for names in sets]

    def rank(self, sensitivities: Mapping[str, float]) -> None:
        assert not self.ranking, "ranked once"
        self.ranking = dict(sensitivities)

    def time_ratios(self, candidates: Sequence[Candidate]) -> list[tuple[float, float]]:
        assert self.ratios is not None
        self.timings += 1
        return [self.ratios(candidate) for candidate in candidates]

    def better(self, a: Trial, b: Trial) -> bool:
        def rank(trial: Trial) -> tuple[bool, float]:
            loss = math.inf if trial.loss is None else trial.loss
            return (not trial.meets, (trial.score or 0.0) if trial.meets else loss)

        return rank(a) < rank(b)

    def trial(self, index: int, recipe: Recipe | None, held: Held, words: str = "") -> Trial:
        spaced = [held.get(c.layer.name, FLOAT) for c in self.space.choices]
        total = sum(BYTES.get(scheme, 150) for scheme in spaced)
        try:
            loss = self.loss(held)
        except ArithmeticError as error:
            return Trial(index, recipe, words, str(index), error=f"Traceback: {error}")
        return Trial(
            index,
            recipe,
            words,
            str(index),
            quantized=len(held),
            accuracy=1 - loss,
            loss=loss,
            meets=loss <= self.bound,
            bytes=total,
            score=float(total),
        )


@dataclass
class Outcome:
    """What a driven strategy asked for, batch by batch, and got."""

    context: Simulated
    batches: list[list[Candidate]]
    trials: list[Trial]
    ended: bool

    @property
    def candidates(self) -> list[Candidate]:
        return [candidate for batch in self.batches for candidate in batch]

    @property
    def best(self) -> Trial:
        found = self.trials[0]
        for trial in self.trials[1:]:
            found = trial if self.context.better(trial, found) else found
        return found

    def changed(self, trial: Trial | None = None) -> dict[str, Scheme]:
        """What the trial's (the best one's) recipe does not hold as the base recipe says."""
        trial = trial or self.best
        assert trial.recipe is not None
        held = self.context.held(trial.recipe)
        return {
            c.layer.name: held.get(c.layer.name, FLOAT)
            for c in self.context.space.choices
            if held.get(c.layer.name, FLOAT) != c.own
        }


def drive(
    way: Strategy, context: Simulated, most: int = 2000, recorded: Sequence[Trial] = ()
) -> Outcome:
    """Runs `way` until it ends, is met (where it does not converge) or has had `most` trials.

    The first trials are taken from `recorded`, as a resumed search does it.
    """
    steps = way.search(context)
    outcome = Outcome(context, [], [], ended=False)
    known: dict[Recipe, Trial] = {}
    try:
        batch = list(next(steps))
        while True:
            assert batch, "an empty batch"
            outcome.batches.append([c for c in batch if c.recipe not in known])
            answers = []
            for candidate in batch:
                if candidate.recipe in known:
                    assert context.others, "asked twice"
                    answers.append(known[candidate.recipe])
                    continue
                index = len(outcome.trials) + 1
                if index <= len(recorded):
                    assert recorded[index - 1].recipe == candidate.recipe
                    trial = recorded[index - 1]
                else:
                    held = context.held(candidate.recipe)
                    assert held, "a model with nothing quantized is no trial"
                    trial = context.trial(index, candidate.recipe, held, candidate.description)
                known[candidate.recipe] = trial
                outcome.trials.append(trial)
                answers.append(trial)
            stop = any(t.meets for t in answers) and not (way.converges or context.keeps_going)
            if stop or len(outcome.trials) >= most:
                steps.close()
                return outcome
            batch = list(steps.send(answers))
    except StopIteration:
        outcome.ended = True
    return outcome


def noisy(value: Callable[[Held], float], size: float, seed: int) -> Callable[[Held], float]:
    """`value` and a deviation of up to `size` that depends on what is held alone."""

    def measured(held: Held) -> float:
        text = repr(sorted((name, scheme.describe()) for name, scheme in held.items()))
        return max(0.0, value(held) + size * random.Random(f"{seed}{text}").uniform(-1, 1))

    return measured
