"""Each of benchmarks/results/NAME.json is a page `results/NAME.md` of the site.

The menu's entry `results/` stands for those pages, and links to the files lead to them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


REPOSITORY = Path(__file__).parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from benchmarks.docs.figures import names, result  # noqa: E402


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the results into the menu."""
    config.nav = menu(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each result."""
    from mkdocs.structure.files import File

    for name in names():
        text = result(name).to_markdown()
        files.append(File.generated(config, f"results/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of results lead to their pages."""
    return re.sub(r"\]\(\.\./((?:\.\./)*)benchmarks/(results/\w+)\.json\)", r"](\1\2.md)", markdown)


def menu(entries: Any) -> Any:
    """Return the menu with the pages there are in place of `results/`, each by its title."""
    if entries == "results/":
        return [{result(name).title: f"results/{name}.md"} for name in names()]
    if isinstance(entries, dict):
        return {title: menu(entry) for title, entry in entries.items()}
    return [menu(entry) for entry in entries] if isinstance(entries, list) else entries
