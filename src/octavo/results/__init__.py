"""What became of a model, as frozen dataclasses, which can say themselves in plain text.

Nothing here prints. Terminals and browsers are served by `octavo.report`, from the same pages.
"""

from octavo.results.inspection import Inspection
from octavo.results.report import LayerOutcome, Report, Verification

__all__ = ["Inspection", "LayerOutcome", "Report", "Verification"]
