"""Writes what stands between the marks of every page, and the pictures."""

from __future__ import annotations

from benchmarks import readme
from benchmarks.docs.marks import PAGES, written
from benchmarks.docs.plots import pictures
from benchmarks.results import REPOSITORY


def main() -> None:
    """Pages first: a mark that asks for what is not there is an error."""
    texts = {path: path.read_text("utf-8") for path in PAGES}
    made = {path: written(text) for path, text in texts.items()}
    for path, text in made.items():
        if text != texts[path]:
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(REPOSITORY)}")
    for path, svg in pictures().items():
        if not path.exists() or path.read_text("utf-8") != svg:
            path.write_text(svg, "utf-8")
            print(f"wrote {path.relative_to(REPOSITORY)}")
    readme.main()


if __name__ == "__main__":
    main()
