"""Pages for a browser: one self-contained file, which asks the network for nothing.

A page is a verdict, tiles and sections (`parts`); what makes one out of a result knows no HTML
(`tuning`, `quantization`, and `evidence` for the measurements that both show), and a section is
drawn by the template that it names (`templates/`).
"""

from octavo.report.html.quantization import in_short, report_html
from octavo.report.html.render import write_html
from octavo.report.html.tuning import tuning_html

__all__ = ["in_short", "report_html", "tuning_html", "write_html"]
