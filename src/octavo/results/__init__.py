"""What became of a model, as frozen dataclasses, which can say themselves in plain text.

Nothing here prints. Terminals and browsers are served by `octavo.report`, from the same pages.
"""

from typing import TYPE_CHECKING

from octavo.core.lazy import lazy as _lazy

if TYPE_CHECKING:
    from octavo.results.inspection import Inspection as Inspection
    from octavo.results.report import LayerOutcome as LayerOutcome
    from octavo.results.report import Report as Report
    from octavo.results.report import Verification as Verification

__all__, __getattr__ = _lazy(
    __name__,
    {
        "octavo.results.inspection": "Inspection",
        "octavo.results.report": "LayerOutcome Report Verification",
    },
)
