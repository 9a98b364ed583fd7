"""What became of every layer: the outcome of a quantization, or of a conversion between targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.core import versions
from octavo.core.data import Data
from octavo.core.layer import Layer
from octavo.results.evidence import Evidence
from octavo.results.page import Page, Result
from octavo.results.report_page import bits_per_weight, conversion_page, report_page

WEIGHTS_OF = "weights_of"
"""In a report's recipe: whose integers the layers hold, where another quantizer made them."""


@dataclass(frozen=True)
class LayerOutcome(Data):
    """One layer: whether it was quantized, how, or why not.

    `scheme` is in words (`Scheme.describe`); `notes` say where the result differs from what the
    recipe asked; bytes count weights, scales and zero points, a shared weight once (at its first
    layer); `sqnr_db` is the weight's signal to quantization noise ratio.
    """

    layer: Layer
    quantized: bool
    scheme: str
    reason: str
    bytes_before: int
    bytes_after: int
    sqnr_db: float | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self, infinite: Callable[[float], Any] = float) -> dict[str, Any]:
        """Plain data; `infinite` makes of an infinite SQNR, which JSON does not have, what stands
        for it: `str` a word, which `from_dict` reads."""
        data = super().to_dict()
        if self.sqnr_db is not None and math.isinf(self.sqnr_db):
            data["sqnr_db"] = infinite(self.sqnr_db)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LayerOutcome:
        """Read what `to_dict` wrote; an infinite SQNR may be a word.

        Raises KeyError, TypeError or ValueError for data of another kind.
        """
        for name in ("bytes_before", "bytes_after"):
            if not isinstance(data[name], int):
                raise ValueError(f"{name} is {data[name]!r}, no number of bytes")
        sqnr = data["sqnr_db"]
        notes = tuple(map(str, data["notes"]))
        return super().from_dict(
            {**data, "sqnr_db": float(sqnr) if isinstance(sqnr, str) else sqnr, "notes": notes}
        )


@dataclass(frozen=True)
class Verification(Data):
    """How the quantized model compares with the float one.

    `status` is

    - "passed": every output was compared and is within the bound;
    - "compared": what could be compared is within the bound; `detail` says where that was, and
      which outputs showed nothing;
    - "unchecked": it loads, but nothing could be compared, and `detail` says why;
    - "skipped": nobody wanted it compared.

    `error` is the worst output's error (`octavo.core.metrics`), `cosine_error` likewise, `inputs`
    says whether inputs were given or made up, `ran_on` what they were, with their shapes.
    `unreached` names quantized layers that no run came to. `padding` counts rows that were left
    out, as a mask among the inputs hides their tokens.
    """

    status: str
    inputs: str = "none"
    runs: int = 0
    error: float | None = None
    cosine_error: float | None = None
    max_error: float | None = None
    detail: str = ""
    ran_on: str = ""
    unreached: tuple[str, ...] = ()
    padding: int = 0


@dataclass(frozen=True)
class Report(Result):
    """The outcome for every layer, with bytes before and after; prints as a table, dumps as JSON.

    `model_bytes_*` are the sizes of the files (with external data). `min_onnxruntime` and `opset`
    say what the result needs, `notes` what was changed beside the layers. `options` are those that
    the command line was given: pairs such as ("--exclude", "fc*"), with "" for a switch. `files`
    are the ONNX files in the folder `output`, where it is one: paths within it, the first call's
    first.
    """

    source: str
    output: str
    recipe: Mapping[str, Any]
    target: str
    cpu: str
    quant_format: str
    layers: tuple[LayerOutcome, ...]
    model_bytes_before: int
    model_bytes_after: int
    opset: int
    min_onnxruntime: str
    verification: Verification
    seconds: float
    notes: tuple[str, ...] = ()
    version: int = field(default=versions.PAGE)
    options: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()

    @property
    def quantized(self) -> tuple[LayerOutcome, ...]:
        """The layers that were quantized."""
        return tuple(o for o in self.layers if o.quantized)

    @property
    def saved(self) -> float:
        """The part of the model's bytes that is gone: 0.75 of four times smaller; below 0: more."""
        before = self.model_bytes_before
        return 1.0 - self.model_bytes_after / before if before else 0.0

    @property
    def bits_per_weight(self) -> float | None:
        """Return the bits per weight of the quantized layers, with scales and zero points.

        A shared weight counts once. None where no layer is quantized.
        """
        return bits_per_weight(self.quantized)

    @property
    def gains_nothing(self) -> bool:
        """Tell whether the result is larger than the float model, or smaller by under a tenth.

        Never where the model had integers already, which stay: its recipe says `weights_of`.
        """
        large = 10 * self.model_bytes_after > 9 * self.model_bytes_before
        return large and WEIGHTS_OF not in self.recipe

    @property
    def left_float(self) -> tuple[LayerOutcome, ...]:
        """The layers that were left float, each with its reason."""
        return tuple(o for o in self.layers if not o.quantized)

    def page(self, verbose: bool = False) -> Page:
        """Lay the report out as a page; `verbose` names every layer."""
        return report_page(self, verbose)


@dataclass(frozen=True)
class MeasuredReport(Result):
    """A report that prints with the verdict of its page, for which the result was measured."""

    report: Report
    evidence: Evidence

    def to_dict(self) -> dict[str, Any]:
        """Return the dict of the report alone."""
        return self.report.to_dict()

    def page(self, verbose: bool = False) -> Page:
        """Lay the report and its evidence out as a page; `verbose` names every layer."""
        return report_page(self.report, verbose, self.evidence)


@dataclass(frozen=True)
class Conversion(Result):
    """What became of a model that went from one target to the other.

    `layers` counts the layers by the operator of domain ai.octavo that holds or held them.
    `notes` say what is otherwise than it was, and what stayed as it was. `verification` compares
    the two files, whose weights are the same integers; with `against_weights`, for files of other
    quantizers, the result with the float model that its integers stand for, from which the file
    itself was `error_before` away. `outcomes` are the layers of a file that became native.
    """

    source: str
    output: str
    target: str
    cpu: str
    layers: Mapping[str, int]
    model_bytes_before: int
    model_bytes_after: int
    opset: int
    min_onnxruntime: str
    verification: Verification
    seconds: float
    notes: tuple[str, ...] = ()
    outcomes: tuple[LayerOutcome, ...] = ()
    error_before: float | None = None
    against_weights: bool = False

    def page(self, verbose: bool = False) -> Page:
        """Lay the conversion out as a page; `verbose` names every layer."""
        return conversion_page(self, verbose)
