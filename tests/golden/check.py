"""Runs the corpus and prints what differs from the committed files; exit code 1 where any does."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from tests.golden import corpus, kept, running
from tests.golden.facts import Facts
from tests.golden.kept import Difference


def differences(
    pattern: str, found: Mapping[str, Mapping[str, Facts]], skipped: Mapping[str, str]
) -> Iterator[Difference]:
    """Against what is kept, of the cases that `pattern` chooses."""
    for group in corpus.GROUPS:
        before = {
            case: facts
            for case, facts in kept.read(group).items()
            if (fnmatchcase(group, pattern) or fnmatchcase(f"{group}/{case}", pattern))
            and f"{group}/{case}" not in skipped
        }
        yield from kept.differences(group, before, found.get(group, {}))


def main(argv: list[str] | None = None) -> int:
    """1 where anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.check", description=__doc__)
    parser.add_argument("--only", default="*", help="groups, or group/case, as a glob")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(argv)
    start = time.perf_counter()
    found, skipped = running.run_all(given.only, given.jobs, running.progress)
    told = list(differences(given.only, found, skipped))
    for difference in told:
        print(difference)
    for name, why in sorted(skipped.items()):
        print(f"skipped {name}: {why}")
    about = kept.FOLDER / "about.json"
    before = json.loads(about.read_text()) if about.exists() else {}
    for key, value in kept.about().items():
        if before.get(key) != value:
            print(f"recorded with {key} {before.get(key)}, this is {value}")
    number = sum(map(len, found.values()))
    cases = len({d.case for d in told})
    took = time.perf_counter() - start
    print(f"{number} cases, {len(told)} differences in {cases}, {took:.0f} s")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
