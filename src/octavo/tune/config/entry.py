"""One entry of model_wise, optype_wise or op_wise: which layers, and what they may become."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from octavo.core.qtype import QType
from octavo.recipe import FLOAT, ActivationScheme, Granularity, Layer, Rule, Scheme, WeightScheme

_GRANULARITY = {"per_channel": Granularity.CHANNEL, "per_tensor": Granularity.TENSOR}
_FLOAT16 = Scheme(WeightScheme(QType.FLOAT16, Granularity.TENSOR), None)
_INTEGERS = ("int8", "uint8")


@dataclass(frozen=True)
class Part:
    """What is said of weights, or of activations: the values a search may take, the first one
    first. Empty where nothing is said."""

    granularity: tuple[str, ...] = ()
    scheme: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()

    def over(self, weaker: Part) -> Part:
        """This part, with what it leaves out taken from `weaker`."""
        return Part(
            self.granularity or weaker.granularity,
            self.scheme or weaker.scheme,
            self.dtype or weaker.dtype,
            self.algorithm or weaker.algorithm,
        )

    def choices(self) -> Iterator[_Choice]:
        """Every combination, the first values first."""
        fields = (self.granularity, self.scheme, self.dtype, self.algorithm)
        for values in product(*(field or ("",) for field in fields)):
            yield _Choice(*values)


@dataclass(frozen=True)
class _Choice:
    """One value of each field of a Part; "" where nothing is said."""

    granularity: str
    scheme: str
    dtype: str
    algorithm: str


@dataclass(frozen=True)
class Entry:
    """What the file says of the layers whose names match `regex` whole, or of one of the operator
    types `ops`; of all layers where it has neither. `line` is where, `path` as what."""

    path: str
    line: int
    weight: Part = Part()
    activation: Part = Part()
    regex: str | None = None
    ops: tuple[str, ...] = ()

    def matches(self, layer: Layer) -> bool:
        """Whether the entry speaks of `layer`."""
        if self.regex is not None:
            return re.fullmatch(self.regex, layer.name) is not None
        return not self.ops or layer.op in self.ops

    def over(self, weaker: Entry) -> Entry:
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
