"""Whether everything that names the version of a release names the one of its tag.

    python -m tests.release.tag [v0.2.0]     without a tag, that of the package

Run before a tag is made, and by the workflow that publishes what a tag names.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, CHANGES, CITATION = "src/octavo/__init__.py", "CHANGELOG.md", "CITATION.cff"
INSTALL = "docs/install.md"
FILES = (PACKAGE, CHANGES, CITATION, INSTALL)
"""What is read."""
UNRELEASED = "Unreleased"
"""What changes are under until they have a version."""
DATE = r"\d{4}-\d\d-\d\d"


def version_of(root: Path) -> str:
    """The one source: what the package, its metadata and its files say is made of it."""
    return _found(r'^__version__ = "(.*)"$', root / PACKAGE)


def faults(root: Path, tag: str) -> list[str]:
    """A sentence for each thing that is not of that version."""
    version = version_of(root)
    found = []
    if tag != f"v{version}":
        found.append(f"the tag {tag} is not v{version}, as {PACKAGE} has it")
    if _found(rf"^## ({UNRELEASED})$", root / CHANGES):
        found.append(f"{CHANGES} has entries under {UNRELEASED}: give them a version and a date")
    heading = _found(rf"^## (?!{UNRELEASED}$)(.*)$", root / CHANGES)
    said, _, date = heading.partition(" - ")
    if said != version or not re.fullmatch(DATE, date):
        found.append(f"{CHANGES} begins with {said!r}, not {version} and a date")
    cited = _found(r"^version: (.*)$", root / CITATION)
    if cited != version:
        found.append(f"{CITATION} has version {cited}, not {version}")
    released = _found(rf'^date-released: "({DATE})"$', root / CITATION)
    if said == version and released != date:
        found.append(f"{CITATION} is of {released}, {CHANGES} of {date}")
    named = re.findall(r"octavo-(\d+\.\d+\.\d+)", (root / INSTALL).read_text(encoding="utf-8"))
    found += [
        f"{INSTALL} names octavo-{name}, not octavo-{version}"
        for name in sorted(set(named) - {version})
    ]
    return found


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def main(arguments: list[str]) -> int:
    """1 where anything does not fit."""
    said = faults(ROOT, arguments[0] if arguments else f"v{version_of(ROOT)}")
    for line in said:
        print(line)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
