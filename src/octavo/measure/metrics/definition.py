"""What a metric is, and which options it takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from octavo.errors import OptionError, did_you_mean, pip_install

Outputs = Sequence[Any]
"""What the model returned for one batch: its outputs in order, as NumPy arrays."""


class Against(Enum):
    """What predictions are compared with."""

    LABELS = "labels"
    FLOAT_MODEL = "the float model's outputs"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are.

    `against` says what `score` takes as its second argument: labels, one entry a batch (an array,
    a list or a single value), or what the float model returned for the same batches, or nothing.
    Metrics can be pickled.
    """

    name: str
    higher_is_better: bool
    against: Against
    compute: Callable[[Sequence[Outputs], Sequence[Any]], float] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_labels(self) -> bool:
        """Whether the data must have labels."""
        return self.against is Against.LABELS

    @property
    def needs_references(self) -> bool:
        """Whether predictions are compared with those of the float model."""
        return self.against is Against.FLOAT_MODEL

    def score(self, predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
        """The metric over all batches together (not the mean of the batches' metrics).

        `predictions` has the outputs of each batch, `labels` what `against` says. NaN where the
        predictions hold NaN and the metric cannot count them as wrong. InputDataError where
        predictions and labels do not fit, with their shapes.
        """
        return float(self.compute(predictions, labels))


@dataclass(frozen=True)
class Option:
    """One option: whether a value is `valid`, and what is `allowed`, in words."""

    valid: Callable[[Any], bool]
    allowed: str

    @classmethod
    def one_of(cls, *names: str) -> Option:
        """One of the words `names`."""
        return cls(lambda value: isinstance(value, str) and value in names, ", ".join(names))


@dataclass(frozen=True)
class Entry:
    """A metric by name: its function `score(predictions, labels, **options)` and its options.

    A value that is no mapping is the option `bare` (`topk: 5`). `libraries` must be installed.
    `inert` options are checked and change nothing.
    """

    score: Callable[..., float]
    higher_is_better: bool = True
    against: Against = Against.LABELS
    options: Mapping[str, Option] = field(default_factory=dict)
    inert: frozenset[str] = frozenset()
    bare: str = ""
    libraries: tuple[str, ...] = ()

    def checked(self, name: str, options: object) -> dict[str, Any]:
        """`options` as keyword arguments; OptionError for what is unknown or out of range."""
        if options is None:
            return {}
        if not isinstance(options, Mapping):
            if not self.bare:
                known = ", ".join(self.options) or "it has none"
                raise OptionError(
                    f"metric {name} takes a mapping of options ({known}), not {options!r}"
                )
            options = {self.bare: options}
        for key, value in options.items():
            if key not in self.options:
                raise OptionError(
                    f"metric {name} has no option {key!r}.{did_you_mean(str(key), self.options)}"
                )
            if not self.options[key].valid(value):
                raise OptionError(
                    f"metric {name}: {key} is {value!r}; allowed: {self.options[key].allowed}"
                )
        return {key: value for key, value in options.items() if key not in self.inert}

    def require_libraries(self, name: str) -> None:
        """Raises OptionError with the way to get what is not installed."""
        missing = [name for name in self.libraries if importlib.util.find_spec(name) is None]
        if missing:
            raise OptionError(
                f"metric {name} needs {' and '.join(missing)}, which is not installed: "
                f"{pip_install(*missing)}"
            )


def whole(least: int) -> Option:
    """A whole number from `least`."""

    def valid(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return Option(valid, f"a whole number, {least} or more")


def number(low: float, high: float) -> Option:
    """A finite number from `low` to `high`."""

    def valid(value: Any) -> bool:
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
        )

    return Option(valid, f"a number from {low:g} to {high:g}")


BOOLEAN = Option(lambda value: isinstance(value, bool), "true or false")
