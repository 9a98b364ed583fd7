"""What a configuration asks for, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from octavo.recipe import Kind, Layer, Recipe, Rule, Scheme
from octavo.tune.goals import Criterion
from octavo.tune.inc.entries import LayerEntry

FRONT_ENDS = {"onnxrt": "onnx", "pytorch": "torch", "tensorflow": "tensorflow"}


class Inert(NamedTuple):
    """A key that the file has and that changes nothing: where it is, and why."""

    line: int
    path: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.path} does nothing here: {self.reason}"


@dataclass(frozen=True)
class MetricSpec:
    """A metric by its name in the file, and its options there (`{"k": 1}` for topk); of several
    what the file says of their weights and directions."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float | None = None
    higher_is_better: bool | None = None


@dataclass(frozen=True)
class Config:
    """One configuration file, read and checked.

    `approach` is `dynamic`, `static` or `auto`. `objectives` are pairs of a name and a weight. Of
    several `metrics` with weights the weighted mean is the accuracy, without them each has to meet
    the criterion. `timeout` is in seconds; 0 means no clock, and an end at the first recipe that
    meets the criterion. `iteration` and `performance_iteration` are numbers of batches and runs,
    -1 for all. `sampling_size` are numbers of calibration samples. `direction_said` tells whether
    the file says which accuracy is better; else a metric does. `resume` is False, True, or the path
    of a history. `dataset` is the data set that the file names, for messages: Octavo ships none;
    `batch_size` is the evaluation data's. `inert` are keys that change nothing, `notes` what is
    done otherwise than the file says. `entries` are op_wise, then optype_wise: the first that
    matches decides.
    """

    path: Path
    model_name: str
    framework: str
    approach: str
    criterion: Criterion
    direction_said: bool = False
    objectives: tuple[tuple[str, float], ...] = (("performance", 1.0),)
    strategy: str = "auto"
    timeout: float = 0.0
    max_trials: int = 100
    performance_only: bool = False
    seed: int = 1978
    workspace: Path | None = None
    resume: bool | str = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    metrics: tuple[MetricSpec, ...] = ()
    iteration: int = -1
    warmup: int = 5
    performance_iteration: int = -1
    sampling_size: tuple[int, ...] = (100,)
    dataset: str | None = None
    batch_size: int | None = None
    inert: tuple[Inert, ...] = ()
    notes: tuple[str, ...] = ()
    model_wise: LayerEntry | None = None
    entries: tuple[LayerEntry, ...] = ()

    @property
    def front_end(self) -> str:
        """Return `onnx`, `torch`, or `tensorflow` (a model to be converted to ONNX)."""
        return FRONT_ENDS[self.framework.split("_")[0]]

    @property
    def quant_format(self) -> str | None:
        """Return how ONNX is written: `qoperator` (integer operators), `qdq`; None for PyTorch."""
        if self.front_end == "torch":
            return None
        return "qdq" if self.framework == "onnxrt_qdq" else "qoperator"

    def recipes(
        self, bases: Sequence[Recipe], layers: Sequence[Layer] | None = None
    ) -> tuple[Recipe, ...]:
        """Return `bases` with what the file says of layers; the first alone where it says how all
        are held (model_wise), as it is that which is asked for."""
        chosen = bases if self.model_wise is None else bases[:1]
        return tuple(self.recipe(base, layers, bases[0].default) for base in chosen)

    def recipe(
        self,
        base: Recipe,
        layers: Sequence[Layer] | None = None,
        silent: Scheme | None = None,
    ) -> Recipe:
        """Return `base` with what the file says of layers before its rules, the strongest first.

        Each gets its first choice; what the file leaves out is as in `silent`, or else in
        `base.default`. Products of two activations stay as `base` has their kind. With `layers`,
        entries that match none of them are left out (`unmatched` says which); `plan` refuses a
        recipe that has such rules.
        """
        said = [e for e in self.entries if layers is None or any(map(e.matches, layers))]
        start = base.default if silent is None else silent
        rules = [rule for e in said for rule in e.rules(e.schemes(start)[0])]
        default = self.model_wise.schemes(base.default)[0] if self.model_wise else base.default
        if not rules:
            return base if default == base.default else replace(base, default=default)
        kept = [rule for rule in base.rules if rule.kind is Kind.ACTIVATION_MATMUL]
        others = [rule for rule in base.rules if rule.kind is not Kind.ACTIVATION_MATMUL]
        return replace(base, default=default, rules=(*kept, *rules, *others))

    def allowed(self, layer: Layer, base: Recipe) -> tuple[Scheme, ...]:
        """Return what `layer` may become by the file, its first choice first; empty where it is
        silent.

        The file is silent of layers that `base` has a rule for, unless it names them or their type.
        """
        for entry in self.entries:
            if entry.matches(layer):
                return entry.schemes(base.default)
        if self.model_wise is None or base.rule_for(layer) is not None:
            return ()
        return self.model_wise.schemes(base.default)

    def alternatives(self, base: Recipe, layers: Sequence[Layer]) -> list[Rule]:
        """Return the file's further choices, layer by layer."""
        return [
            Rule(scheme, regex=re.escape(layer.name))
            for layer in layers
            for scheme in self.allowed(layer, base)[1:]
        ]

    def all_notes(self, layers: Sequence[Layer]) -> tuple[str, ...]:
        """Return what the file says that is done otherwise, or does nothing."""
        unmatched = (
            f"{self.path}:{e.line}: {e.path} matches no layer, and does nothing"
            for e in self.entries
            if not any(map(e.matches, layers))
        )
        return (*self.notes, *map(str, self.inert), *unmatched)
