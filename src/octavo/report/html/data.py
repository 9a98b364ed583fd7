"""What a page embeds as JSON, in its element `#data`: every figure that it shows, for checking."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from octavo.results import trial_words as say
from octavo.results.evidence import Evidence
from octavo.results.report import Report
from octavo.results.tuning import Trial, TuneResult


def page_data(
    report: Report | None = None,
    result: TuneResult | None = None,
    evidence: Evidence | None = None,
) -> dict[str, Any]:
    """`{"report", "result", "evidence"}`, each as its own JSON has it, null where there is none.

    A tuning run is made small enough for a page: the best trial's recipe is whole, those of
    `trials` are left out (null); of tracebacks only the last line is kept. Numbers that are not
    finite are null.
    """
    return {
        "report": None if report is None else json.loads(report.to_json(indent=None)),
        "result": None if result is None else json.loads(_small(result).to_json(indent=None)),
        "evidence": None if evidence is None else evidence.to_dict(),
    }


def _small(result: TuneResult) -> TuneResult:
    return replace(
        result,
        best=_last_line(result.best),
        baseline=_last_line(result.baseline),
        trials=tuple(replace(_last_line(trial), recipe=None) for trial in result.trials),
    )


def _last_line(trial: Trial) -> Trial:
    return replace(trial, error=say.last_of(trial.error))
