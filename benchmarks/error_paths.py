"""Every error path: the command, what it exits with and what it says, for a person to review.

A message names the part (file, node, option, key), the value, what is allowed and what to do. The
cases, with the words that each message must hold, are in benchmarks/error_cases.

    python -m benchmarks.error_paths             writes benchmarks/results/error_paths.json and .md
    python -m benchmarks.error_paths WORD        those with WORD in them; writes nothing
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.error_cases import CASES, folder, running
from benchmarks.error_cases.case import PARTS, Case, Outcome
from benchmarks.results import Result, Row

PROCESSES = 2
Outcomes = Mapping[str, Sequence[Outcome]]


@dataclass(frozen=True)
class Review(Result):
    """A result with the messages themselves."""

    outcomes: Outcomes = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = super().to_dict()
        del data["outcomes"]
        return data | {"cases": [_data(o, s) for s, found in self.outcomes.items() for o in found]}

    def to_markdown(self) -> str:
        """The page of the rows, then a table of messages for each section."""
        lines = [super().to_markdown(), _LEGEND]
        for section, found in self.outcomes.items():
            lines += ["", f"## {section}: the messages", ""]
            lines += [f"| command | ends | message | {' | '.join(PARTS)} |"]
            lines += ["|---|---|---|---|---|---|---|", *map(_line, found)]
        return "\n".join(lines) + "\n"


_LEGEND = """\
Columns `part`, `value`, `allowed` and `fix` quote the words of the message that name them; a word
that it does not hold is **bold**. `as allowed`: to give what is allowed is the fix. Besides, each
case ends as it says, shows no traceback (but that of the user's own code), prints nothing to stdout
(but a result), has no escape codes, leaves no file behind and changes none."""


def outcomes(cases: Mapping[str, Sequence[Case]]) -> dict[str, list[Outcome]]:
    """Each case in a process of its own, some at once; Python calls one after the other, here."""
    with tempfile.TemporaryDirectory(prefix="octavo-errors-") as name:
        template = Path(name, "template")
        template.mkdir()
        folder.write(template)
        every = [case for section in cases.values() for case in section]
        places = {case: Path(name, str(i)) for i, case in enumerate(every)}
        commands = [case for case in every if case.is_command]
        calls = [case for case in every if not case.is_command]
        with ThreadPoolExecutor(PROCESSES) as pool:
            running_now = pool.map(lambda c: running.apart(c, template, places[c]), commands)
            found = dict(zip(commands, running_now, strict=True))
        found |= {case: running.here(case, template, places[case]) for case in calls}
        return {title: [found[case] for case in section] for title, section in cases.items()}


def rows(found: Outcomes) -> Iterator[Row]:
    """How many messages say all, and what is wrong with the others."""
    for title, section in found.items():
        ran = [outcome for outcome in section if not outcome.skipped]
        wrong = [f"{o.case.run}: {'; '.join(o.problems)}" for o in ran if o.problems]
        wrong += [f"{o.case.run} is not run: {o.skipped}" for o in section if o.skipped]
        good = len(ran) - sum(bool(o.problems) for o in ran)
        what = f"messages that say all, of {len(ran)}"
        yield Row(what, good, at_least=len(ran), section=title, note="; ".join(wrong))


def _line(found: Outcome) -> str:
    case = found.case
    words = [
        f"**{getattr(case, name)}**" if name in found.lacks else getattr(case, name)
        for name in PARTS
    ]
    said = found.skipped or "\n".join(filter(None, (found.message, found.stdout)))
    texts = [f"{n}: `{c.strip()}`" for n, c in case.files.items() if isinstance(c, str) and c]
    cells = ["\n".join([f"`{case.run}`", *texts]), str(found.ended), said, *words]
    if case.why:
        cells[-1] += f" ({case.why})"
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def _data(found: Outcome, section: str) -> dict[str, Any]:
    case = found.case
    return {
        "section": section,
        "run": case.run,
        "ends": case.ends,
        "ended": found.ended,
        "message": found.message,
        "stdout": found.stdout,
        **{name: getattr(case, name) for name in PARTS},
        "why": case.why,
        "problems": list(found.problems),
        "skipped": found.skipped,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs, prints and keeps the review; 1 where a message or an end is not what it should be."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.error_paths", description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="only cases with it; writes no result")
    word = parser.parse_args(arguments).word
    chosen = {
        title: [case for case in section if word in title or word in case.run]
        for title, section in CASES.items()
    }
    found = outcomes({title: section for title, section in chosen.items() if section})
    plain = results.result("error_paths", "Error paths", [*rows(found)], arguments)
    results.publish(Review(**vars(plain), outcomes=found), quick=bool(word))
    return int(any(o.problems for section in found.values() for o in section))


if __name__ == "__main__":
    raise SystemExit(main())
