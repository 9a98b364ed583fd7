"""A target without a model: layers whose quantization costs what a test says.

It can be pickled, so that trials of it run in other processes.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.recipe import FLOAT, Decision, Kind, Layer, Recipe, Scheme, plan, preset
from octavo.results.report import Report, Verification
from octavo.results.target import Built, Feed
from tests.results.reports import report

BYTES = 4000


def layer(name: str, kind: Kind = Kind.LINEAR, size: int = BYTES) -> Layer:
    return Layer(name, kind, "Linear", ((f"{name}.weight", (10, size // 40)),), size, size // 4)


@dataclass(frozen=True)
class Simulated:
    """`damage` is what quantizing each layer takes from the accuracy, which is `float_accuracy`.

    A raised scheme (affine weights) does a tenth of it. What `evaluate` below returns is the
    accuracy; each call of it writes a line into `calls`, if that is a file.
    """

    damage: tuple[float, ...]
    float_accuracy: float = 1.0
    calls: str = ""
    seconds: float = 0.0

    label = "simulated"
    output_suffix = ".onnx"
    threads = None

    def layers(self) -> list[Layer]:
        return [layer(f"fc{i}") for i in range(len(self.damage))]

    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self.damage, self.float_accuracy)).encode()).hexdigest()

    def decisions(self, recipe: Recipe) -> Sequence[Decision]:
        return plan(self.layers(), recipe)

    def raised(self) -> Sequence[Scheme]:
        return (preset("int8-accurate").default,)

    def native(self) -> None:
        return None

    @contextmanager
    def opener(
        self, recipe: Recipe | None, calibration: Sequence[Feed] | None = None
    ) -> Iterator[Callable[[], Built]]:
        yield self.float_model if recipe is None else lambda: self.build(recipe, calibration)

    def float_model(self) -> Built:
        return self._built({})

    def build(self, recipe: Recipe, calibration: Sequence[Feed] | None = None) -> Built:
        return self._built({d.layer.name: d.scheme for d in self.decisions(recipe)})

    def _built(self, held: Mapping[str, Scheme]) -> Built:
        loss = sum(self._cost(i, held.get(f"fc{i}", FLOAT)) for i in range(len(self.damage)))
        size = sum(
            BYTES if held.get(f"fc{i}", FLOAT).is_float else BYTES // 4
            for i in range(len(self.damage))
        )
        model = {
            "accuracy": self.float_accuracy - loss,
            "calls": self.calls,
            "seconds": self.seconds,
            "held": json.dumps({k: s.describe() for k, s in sorted(held.items())}),
        }
        return Built(model, lambda feed: [feed["x"] * (1 - loss)], size)

    def _cost(self, i: int, scheme: Scheme) -> float:
        if scheme.is_float:
            return 0.0
        assert scheme.weight is not None
        return self.damage[i] * (1.0 if scheme.weight.symmetric else 0.1)

    def save(
        self, recipe: Recipe, out: Path, calibration: Sequence[Feed] | None = None
    ) -> Report | None:
        out.write_text(json.dumps(recipe.to_dict()))
        skipped = Verification("skipped")
        return report(source="simulated", recipe=recipe.to_dict(), verification=skipped)

    def made_up(self, shapes: Mapping[str, Sequence[int]], seed: int) -> Sequence[Feed]:
        return [{"x": np.random.default_rng(seed).standard_normal(8).astype(np.float32)}]

    def errors(
        self, recipe: Recipe, sets: Sequence[Collection[str]], feeds: Sequence[Feed]
    ) -> Sequence[float]:
        held = {d.layer.name: d.scheme for d in self.decisions(recipe)}
        return [sum(self._cost(int(name[2:]), held[name]) for name in names) for names in sets]

    def peak_memory(
        self, recipe: Recipe | None, feed: Feed, calibration: Sequence[Feed] | None = None
    ) -> int:
        return 10 * (self.float_model() if recipe is None else self.build(recipe)).bytes


def evaluate(model: Any) -> float:
    """The accuracy of a simulated model."""
    if model["calls"]:
        with Path(model["calls"]).open("a") as file:
            file.write(f"{os.getpid()} {model['held']}\n")
    time.sleep(model["seconds"])
    return float(model["accuracy"])
