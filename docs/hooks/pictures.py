"""Pictures stand in the page itself, so that they follow its light or dark colours.

    ![What the picture shows](pictures/rows.svg)   on a line of its own

becomes a figure with the drawing in it. Readers of the Markdown see the same file as an image.

Of a `<picture>` of plots, one for light and one for dark pages, the site shows that of its colours.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


_PICTURE = re.compile(r"^!\[(?P<alt>[^\]]+)\]\((?P<path>pictures/[\w-]+\.svg)\)$", re.MULTILINE)


_PLOT = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)


def themed(markdown: str) -> str:
    """Pictures of two files as two images, of which the theme hides one."""
    return _PLOT.sub(r"![\g<alt>](\g<light>#only-light) ![\g<alt>](\g<dark>#only-dark)", markdown)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draws every picture where it is named."""
    from mkdocs.exceptions import PluginError

    def draw(match: re.Match[str]) -> str:
        path = Path(config.docs_dir, match["path"])
        if not path.is_file():
            raise PluginError(f"{page.file.src_path}: no picture {match['path']}")
        svg = re.sub(r"\n\s*\n", "\n", path.read_text(encoding="utf-8")).strip()
        return f'<figure class="drawn">\n{svg}\n<figcaption>{match["alt"]}</figcaption>\n</figure>'

    return themed(_PICTURE.sub(draw, markdown))
