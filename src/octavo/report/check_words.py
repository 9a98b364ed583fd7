"""The outcome of a check, in words that every page uses."""

from __future__ import annotations

from octavo.recipe.report import Verification
from octavo.report.text import clean, count

ASK = "pass --inputs (check_inputs)"


def check_failed_to_see(v: Verification) -> str:
    """Of a model that was not compared."""
    why = f"; {clean(v.detail)}" if v.detail else ""
    ran = f"; {check_runs(v)}" if v.runs else ""
    if v.inputs == "made up":
        return f"could not be checked on made-up inputs: {ASK}{why}{ran}"
    return f"could not be checked on the inputs given{why}{ran}"


def check_status(v: Verification) -> str:
    """What may be said of a model that was compared, and where it was."""
    if v.status != "compared":
        return clean(v.status)
    return f"compared in part, {clean(v.detail)}" if v.detail else "compared in part"


def check_runs(v: Verification) -> str:
    """On what it was compared; of one that passed, what else there is to say."""
    shapes = f": {clean(v.ran_on)}" if v.ran_on else ""
    detail = f"; {clean(v.detail)}" if v.detail and v.status == "passed" else ""
    return f"{count(v.runs, 'run')} on inputs {clean(v.inputs)}{shapes}{detail}"
