"""The accuracy that a quantized model must keep."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from octavo.errors import OptionError

_ULPS = 4 * sys.float_info.epsilon  # what rounding may add to a difference, as a share


@dataclass(frozen=True)
class Criterion:
    """How much accuracy may be lost against the float model.

    `relative` is a share of the float model's accuracy (0.01: one hundredth of it), `absolute` is
    in the accuracy's own unit; one of the two is given. `higher_is_better` is False for errors and
    losses. The float model itself always meets it, whatever the sign of its accuracy; unless the
    bound is negative, which asks for a gain.
    """

    relative: float | None = None
    absolute: float | None = None
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        given = [b for b in (self.relative, self.absolute) if b is not None]
        if len(given) != 1:
            raise OptionError(
                "a criterion has one bound, relative or absolute; got "
                + ("both" if given else "neither")
            )
        (bound,) = given
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            raise OptionError(f"a criterion's bound is a number, not {bound!r}")
        if not math.isfinite(bound):
            raise OptionError(f"a criterion's bound is a finite number, not {bound}")

    def loss(self, baseline: float, accuracy: float) -> float:
        """How much worse `accuracy` is than `baseline`; negative where it is better.

        Relative losses are shares of |baseline|; of a baseline of 0, infinite unless equal.
        """
        worse = baseline - accuracy if self.higher_is_better else accuracy - baseline
        if self.relative is None:
            return worse
        if baseline == 0:
            return 0.0 if worse == 0 else math.copysign(math.inf, worse)
        return worse / abs(baseline)

    def meets(self, baseline: float, accuracy: float) -> bool:
        """Whether no more than the bound is lost; never for NaN."""
        if math.isnan(accuracy) or math.isnan(baseline):
            return False
        if accuracy == baseline:
            return self.bound >= 0
        # 1.0 to 0.99 is a hundredth, though the doubles nearest to them are a little more apart.
        slack = _ULPS * max(abs(baseline), abs(accuracy))
        if self.relative is not None:
            slack /= abs(baseline) or 1.0
        return self.loss(baseline, accuracy) <= self.bound + slack

    @property
    def bound(self) -> float:
        """The bound, in the unit of `loss`."""
        found = self.absolute if self.relative is None else self.relative
        assert found is not None
        return found

    def __str__(self) -> str:
        direction = "" if self.higher_is_better else ", lower is better"
        words = ("at most", "lost") if self.bound >= 0 else ("at least", "gained")
        amount = f"{abs(self.bound):g}"
        if self.relative is not None:
            amount = f"{abs(self.relative) * 100:g}% of the float model's accuracy"
        return f"{words[0]} {amount} {words[1]}{direction}"
