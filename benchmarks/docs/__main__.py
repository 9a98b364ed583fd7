"""Writes what stands between the marks of README and every page, and the pictures."""

from __future__ import annotations

from benchmarks.docs.marks import PAGES, written
from benchmarks.docs.plots import pictures
from benchmarks.results import REPOSITORY


def main() -> None:
    """Everything is made before anything is written: a mark may ask for what is not there."""
    made = {path: written(path.read_text("utf-8"), path) for path in PAGES} | pictures()
    for path, text in made.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
