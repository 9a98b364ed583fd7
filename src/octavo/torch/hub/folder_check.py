"""The check of a quantized checkpoint on samples: its outputs beside those of the float model.

The float model runs before it is quantized in place, so that there are never two of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from octavo.core.masked_rows import Padding
from octavo.core.metrics import Tally
from octavo.core.progress import Progress
from octavo.errors import InputDataError, VerificationError, brief
from octavo.results.report import Verification
from octavo.results.words import count
from octavo.torch.run.calls import Caller
from octavo.torch.run.watched import Array, named_arrays

_MOST_BYTES = 256 << 20  # of the float model's outputs, which are kept meanwhile
ADVICE = (
    "Leave layers float (--exclude), take a recipe with less error, or raise max_error in a recipe "
    "file; --no-verify writes it unchecked"
)

Sample = Mapping[str, Any]


class SampleCheck:
    """What the float model gives for samples: the first ones, as many as there is room for.

    Raises InputDataError where it fails on one.
    """

    def __init__(self, model: Any, samples: Sequence[Sample], progress: Progress) -> None:
        self._caller, self._expected = Caller(model), list[tuple[Sample, dict[str, Array]]]()
        room = _MOST_BYTES
        for i, sample in enumerate(samples):
            if room <= 0:
                break
            progress("running the float model", i, len(samples))
            try:
                found = self._run(model, sample)
            except InputDataError:
                raise
            except Exception as error:  # whatever a model's own code raises
                raise InputDataError(
                    f"inputs: the float model fails on sample {i + 1}: {brief(error)}; give inputs "
                    "that it takes"
                ) from error
            self._expected.append((sample, found))
            room -= sum(array.nbytes for array in found.values())
        self._of = len(samples)

    def compare(self, model: Any, max_error: float, progress: Progress) -> Verification:
        """Compare the quantized model with the float one.

        Raises VerificationError where the quantized model is too far from the float one, or gives
        numbers that are not finite.
        """
        tallies: dict[str, Tally] = {}
        left_out = 0
        for i, (sample, expected) in enumerate(self._expected):
            progress("comparing with the float model", i, len(self._expected))
            got, padding = self._run(model, sample), Padding.of(sample)
            for name, array in expected.items():
                one, other = padding.seen(name, array, got[name])
                tallies.setdefault(name, Tally()).add(one, other)
            left_out += padding.rows
        rated = {name: tally for name, tally in tallies.items() if tally.values}
        if not rated:
            return Verification("unchecked", "given", detail="no output holds finite numbers")
        name = max(rated, key=lambda n: rated[n].error)
        worst, runs = rated[name], len(self._expected)
        self._refuse(name, worst, max_error)
        lost = sum(tally.reference_non_finite for tally in tallies.values())
        return Verification(
            "compared" if lost else "passed",
            "given",
            runs,
            worst.error,
            None if worst.cosine is None else max(0.0, 1 - worst.cosine),
            max_error,
            f"{count(lost, 'number')} not finite in the float model, left out" if lost else "",
            f"the first {runs} of {self._of}" if runs < self._of else "",
            padding=left_out,
        )

    def _refuse(self, name: str, worst: Tally, max_error: float) -> None:
        if worst.non_finite:
            raise VerificationError(
                f"output {name!r} of the quantized model holds {worst.non_finite} non-finite "
                f"numbers where the float model's are finite. {ADVICE}"
            )
        if worst.error > max_error or math.isnan(worst.error):
            raise VerificationError(
                f"the quantized model is too far from the float one: error {worst.error:.4g} at "
                f"output {name!r}, on inputs that were given, above the recipe's max_error "
                f"{max_error:g}. {ADVICE}"
            )

    def _run(self, model: Any, sample: Sample) -> dict[str, Array]:
        with torch.inference_mode():
            positional, keywords = self._caller.arguments(sample)
            return named_arrays(model(*positional, **keywords))
