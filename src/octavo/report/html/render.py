"""A page as HTML text."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import OptionError, pip_install
from octavo.report.html.parts import Page

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).parent / "templates"


def render(page: Page) -> str:
    """The page as one self-contained HTML document; OptionError where jinja2 is missing."""
    from octavo import __version__

    environment = _environment()
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        page=page,
        # Written as they are: two files of ours, and data without a "<" to end its element.
        style=style,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=embedded(page.data),
        version=__version__,
    )


def embedded(data: object) -> str:
    """`data` as JSON in ASCII that can stand in a script element, whatever its strings hold."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _environment() -> jinja2.Environment:
    try:
        import jinja2
    except ImportError:
        raise OptionError(
            f"an HTML report needs jinja2, which is not installed: {pip_install('jinja2')}"
        ) from None
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
