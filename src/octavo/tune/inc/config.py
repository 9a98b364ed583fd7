"""What a configuration asks for, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from octavo.core.qparams import QType
from octavo.recipe import (
    FLOAT,
    ActivationScheme,
    Granularity,
    Kind,
    Layer,
    Recipe,
    Rule,
    Scheme,
    WeightScheme,
    patterns,
)
from octavo.tune.goals import Criterion

_GRANULARITY = {"per_channel": Granularity.CHANNEL, "per_tensor": Granularity.TENSOR}
_FLOAT16 = Scheme(WeightScheme(QType.FLOAT16, Granularity.TENSOR), None)
_INTEGERS = ("int8", "uint8")
FRONT_ENDS = {"onnxrt": "onnx", "pytorch": "torch", "tensorflow": "tensorflow"}


@dataclass(frozen=True)
class Inert:
    """A key that the file has and that changes nothing: where it is, and why."""

    line: int
    path: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.path} does nothing here: {self.reason}"


@dataclass(frozen=True)
class MetricSpec:
    """A metric by its name in the file, and its options there (`{"k": 1}` for topk)."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MultiMetrics:
    """Several metrics. With `weights` their weighted mean is the accuracy, without them each has to
    meet the criterion. `higher_is_better` is empty where the file does not say."""

    metrics: tuple[MetricSpec, ...]
    weights: tuple[float, ...] = ()
    higher_is_better: tuple[bool, ...] = ()


class ObjectiveSpec(NamedTuple):
    """What a search makes small or large; `higher_is_better` is None where the file is silent."""

    name: str
    weight: float = 1.0
    higher_is_better: bool | None = None


class Part(NamedTuple):
    """What is said of weights, or of activations: the values a search may take, the first one
    first. Empty where nothing is said."""

    granularity: tuple[str, ...] = ()
    scheme: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()

    def over(self, weaker: Part) -> Part:
        """This part, with what it leaves out taken from `weaker`."""
        return Part(*(mine or theirs for mine, theirs in zip(self, weaker, strict=True)))

    def choices(self) -> Iterator[_Choice]:
        """Every combination, the first values first."""
        return (_Choice(*values) for values in product(*(said or ("",) for said in self)))


_SILENT = Part()


class _Choice(NamedTuple):
    """One value of each field of a Part; "" where nothing is said."""

    granularity: str
    scheme: str
    dtype: str
    algorithm: str


@dataclass(frozen=True)
class LayerEntry:
    """What the file says of the layers whose names match `regex` whole, or of one of the operator
    types `ops`; of all layers where it has neither. `line` is where, `path` as what."""

    path: str
    line: int
    weight: Part = _SILENT
    activation: Part = _SILENT
    regex: str | None = None
    ops: tuple[str, ...] = ()

    def matches(self, layer: Layer) -> bool:
        """Whether the entry speaks of `layer`."""
        if self.regex is not None:
            return patterns.matches(self.regex, layer.name)
        return not self.ops or layer.op in self.ops

    def over(self, weaker: LayerEntry) -> LayerEntry:
        """This entry, with what it leaves out taken from `weaker`."""
        return replace(
            self,
            weight=self.weight.over(weaker.weight),
            activation=self.activation.over(weaker.activation),
        )

    def schemes(self, start: Scheme) -> tuple[Scheme, ...]:
        """What the layers may become, the file's first choice first; `start` where it is silent."""
        pairs = product(self.weight.choices(), self.activation.choices())
        return tuple(dict.fromkeys(_scheme(start, weight, act) for weight, act in pairs))

    def rules(self, scheme: Scheme) -> tuple[Rule, ...]:
        """Rules that give the layers `scheme`."""
        reason = f"{self.path} says so (line {self.line})" if scheme.is_float else ""
        if self.regex is not None:
            return (Rule(scheme, regex=self.regex, reason=reason, line=self.line),)
        if not self.ops:
            return (Rule(scheme, name="*", reason=reason, line=self.line),)
        return tuple(Rule(scheme, op=op, reason=reason, line=self.line) for op in self.ops)


@dataclass(frozen=True)
class Config:
    """One configuration file, read and checked.

    `approach` is `dynamic`, `static` or `auto`. `timeout` is in seconds; 0 means no clock, and an
    end at the first recipe that meets the criterion. `iteration` and `performance_iteration` are
    numbers of batches and runs, -1 for all. `sampling_size` are numbers of calibration samples.
    `direction_said` tells whether the file says which accuracy is better; else a metric does.
    `resume` is False, True, or the path of a history. `dataset` describes the data set that the
    file names, for messages: Octavo ships none; `batch_size` is the evaluation data's. `inert` are
    keys that change nothing, `notes` what is done otherwise than the file says.
    """

    path: Path
    model_name: str
    framework: str
    approach: str
    criterion: Criterion
    objectives: tuple[ObjectiveSpec, ...]
    direction_said: bool = False
    strategy: str = "auto"
    timeout: float = 0.0
    max_trials: int = 100
    performance_only: bool = False
    seed: int = 1978
    workspace: Path | None = None
    resume: bool | str = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    metric: MetricSpec | None = None
    multi_metrics: MultiMetrics | None = None
    iteration: int = -1
    warmup: int = 5
    performance_iteration: int = -1
    sampling_size: tuple[int, ...] = (100,)
    dataset: str | None = None
    batch_size: int | None = None
    inert: tuple[Inert, ...] = ()
    notes: tuple[str, ...] = ()
    model_wise: LayerEntry | None = None
    entries: tuple[
        LayerEntry, ...
    ] = ()  # op_wise, then optype_wise: the first that matches decides

    @property
    def front_end(self) -> str:
        """`onnx`, `torch`, or `tensorflow` (a model to be converted to ONNX)."""
        return FRONT_ENDS[self.framework.split("_")[0]]

    @property
    def quant_format(self) -> str | None:
        """How ONNX is written: `qoperator` (integer operators) or `qdq`; None for PyTorch."""
        if self.front_end == "torch":
            return None
        return "qdq" if self.framework == "onnxrt_qdq" else "qoperator"

    def recipes(
        self, bases: Sequence[Recipe], layers: Sequence[Layer] | None = None
    ) -> tuple[Recipe, ...]:
        """`bases` with what the file says of layers; the first alone where it says how all are held
        (model_wise), as it is that which is asked for."""
        chosen = bases if self.model_wise is None else bases[:1]
        return tuple(self.recipe(base, layers, bases[0].default) for base in chosen)

    def recipe(
        self,
        base: Recipe,
        layers: Sequence[Layer] | None = None,
        silent: Scheme | None = None,
    ) -> Recipe:
        """`base` with what the file says of layers before its own rules, the strongest first.

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

    def alternatives(self, base: Recipe) -> tuple[Rule, ...]:
        """The other choices of each entry of the file, as rules, the strongest entry first.

        Only the strongest entry that matches a layer speaks of it, also where it has but one
        choice: see `allowed`.
        """
        entries = (*self.entries, *([self.model_wise] if self.model_wise else []))
        return tuple(
            rule
            for entry in entries
            for scheme in entry.schemes(base.default)[1:]
            for rule in entry.rules(scheme)
        )

    def allowed(self, layer: Layer, base: Recipe) -> tuple[Scheme, ...]:
        """What `layer` may become by the file, its first choice first; empty where it is silent.

        The file is silent of layers that `base` has a rule for, unless it names them or their type.
        """
        for entry in self.entries:
            if entry.matches(layer):
                return entry.schemes(base.default)
        if self.model_wise is None or base.rule_for(layer) is not None:
            return ()
        return self.model_wise.schemes(base.default)

    def unmatched(self, layers: Sequence[Layer]) -> tuple[str, ...]:
        """Which entries match none of `layers`, one sentence each."""
        return tuple(
            f"{self.path}:{e.line}: {e.path} matches no layer, and does nothing"
            for e in self.entries
            if not any(map(e.matches, layers))
        )


def _scheme(start: Scheme, weight: _Choice, activation: _Choice) -> Scheme:
    if weight.dtype in ("fp32", "bf16"):
        return FLOAT
    if weight.dtype == "fp16":
        return _FLOAT16
    base = start if start.weight is not None else Scheme()
    assert base.weight is not None
    held = _weight(base.weight, weight)
    if not held.qtype.is_integer:
        return Scheme(held, None)
    return Scheme(held, _activation(base.activation, activation))


def _weight(start: WeightScheme, choice: _Choice) -> WeightScheme:
    granularity = _GRANULARITY.get(choice.granularity, start.granularity)
    observer = {"": start.observer, "minmax": "minmax", "kl": "histogram"}[choice.algorithm]
    return replace(
        start,
        qtype=QType(choice.dtype) if choice.dtype in _INTEGERS else start.qtype,
        granularity=granularity,
        symmetric=choice.scheme == "sym" if choice.scheme else start.symmetric,
        observer=observer if granularity is Granularity.TENSOR else "minmax",
        block=start.block if granularity is Granularity.BLOCK else None,
    )


def _activation(start: ActivationScheme | None, choice: _Choice) -> ActivationScheme | None:
    if choice.dtype and choice.dtype not in _INTEGERS:
        return None
    if start is None and not choice.dtype:
        return None
    if choice.granularity:
        return ActivationScheme(granularity=_GRANULARITY[choice.granularity])
    return start or ActivationScheme()
