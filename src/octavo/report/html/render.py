"""A page as HTML text, with the figures that it shows, and its way to the disk."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.core.packages import need
from octavo.errors import OptionError, OutputError
from octavo.report.html.parts import Page
from octavo.report.plots.style import DARK_RULES
from octavo.results import trial_words as say
from octavo.results.evidence import Evidence
from octavo.results.report import Report
from octavo.results.tuning import Trial, TuneResult

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).parent / "templates"


def render(page: Page) -> str:
    """Render the page as one self-contained HTML document; OptionError where jinja2 is missing."""
    from octavo import __version__

    environment = _environment()
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        page=page,
        # Written as they are: files of ours, and data without a "<" to end its element.
        style=style + DARK_RULES,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=embedded(page.data),
        version=__version__,
    )


def embedded(data: object) -> str:
    """Write `data` as ASCII JSON that can stand in a script element, whatever its strings hold."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _environment() -> jinja2.Environment:
    need("an HTML report needs", "jinja2", error=OptionError)
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page_data(
    report: Report | None = None,
    result: TuneResult | None = None,
    evidence: Evidence | None = None,
) -> dict[str, Any]:
    """Return `{"report", "result", "evidence"}`, each as its own JSON has it.

    A part is null where there is none.

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


def write_html(text: str, path: str | os.PathLike[str]) -> None:
    """Write `text` in UTF-8 to a file beside `path`, then rename that file over `path`.

    A place that cannot be written raises OutputError, and leaves what was there.
    """
    out = Path(os.path.realpath(path))  # a link stays a link: what it names is replaced
    if out.is_dir():
        raise OutputError(f"the report {path} is a folder; name a file in it")
    beside = out.with_name(f".octavo-report-{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(out)
    except OSError as error:
        raise OutputError(
            f"the report {path} cannot be written: {error.strerror or error}; "
            "name a file in a folder that exists and can be written to"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
