"""Packages do not outgrow their ceilings. `python -m tests.test_sizes` writes the table anew.

The table stands in docs/architecture.md. Raising a ceiling is an edit there, with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/architecture.md"
SOURCE = Path(__file__).parents[1] / "src/octavo"
HEAD = "| package | files | lines | ceiling | why it was raised |\n|---|--:|--:|--:|---|\n"
MOST = 70_000
"""The lines of `octavo` that are aimed at; `main` shows them in the last row."""


def packages() -> dict[str, tuple[int, int]]:
    """Count files and lines of each package, of what lies in `octavo` itself as `.`."""
    found: dict[str, list[int]] = defaultdict(list)
    for path in SOURCE.rglob("*.py*"):
        if path.suffix in (".py", ".pyi"):
            name = "/".join(path.relative_to(SOURCE).parts[:-1][:2]) or "."
            found[name].append(len(path.read_text().splitlines()))
    return {name: (len(lines), sum(lines)) for name, lines in sorted(found.items())}


def rows() -> dict[str, tuple[int, int, int, str]]:
    """Read files, lines, ceiling and reason of each package from the page."""
    table = PAGE.read_text().partition(HEAD)[2].partition("\n\n")[0]
    found = {}
    for line in table.splitlines():
        name, files, lines, ceiling, reason = (cell.strip() for cell in line.split("|")[1:6])
        numbers = (int(cell.replace(",", "")) for cell in (files, lines, ceiling))
        found[name.strip("`")] = (*numbers, reason)
    return found  # type: ignore[return-value]


def test_no_package_outgrows_its_ceiling() -> None:
    allowed = {name: row[2] for name, row in rows().items() if name != "all"}
    over = {n: (lines, allowed.get(n, 0)) for n, (_, lines) in packages().items()}
    over = {name: pair for name, pair in over.items() if pair[0] > pair[1]}
    assert not over, "take as much away elsewhere, or raise the ceiling in docs/architecture.md"


def test_the_table_is_of_the_current_code() -> None:
    told, found = rows(), packages()
    assert told.keys() - {"all"} == found.keys(), "run python -m tests.test_sizes"
    for name, (files, lines) in found.items():
        assert abs(told[name][1] - lines) <= max(50, lines / 20), "run python -m tests.test_sizes"
        assert abs(told[name][0] - files) <= max(2, files / 10), "run python -m tests.test_sizes"


def main() -> None:
    """Write the table with the numbers of now. Ceilings fall with their packages alone."""
    text, told, found = PAGE.read_text(), rows(), packages()
    lines = []
    for name, (files, count) in found.items():
        ceiling, reason = told.get(name, (0, 0, 0, ""))[2:]
        wanted = -(-count // 50) * 50
        ceiling = min(ceiling, wanted) if ceiling >= count else ceiling or wanted
        lines.append(f"| `{name}` | {files} | {count:,} | {ceiling:,} | {reason} |")
    files, count = (sum(column) for column in zip(*found.values(), strict=True))
    lines.append(f"| all | {files} | {count:,} | {MOST:,} | |")
    before, head, rest = text.partition(HEAD)
    PAGE.write_text(before + head + "\n".join(lines) + "\n\n" + rest.partition("\n\n")[2])


if __name__ == "__main__":
    main()
