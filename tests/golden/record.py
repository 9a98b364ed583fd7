"""Runs the corpus and rewrites the committed files: `python -m tests.golden.record [--only ..]`."""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.golden import kept, running
from tests.golden.facts import Facts


def main(argv: list[str] | None = None) -> int:
    """1 where a case broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.add_argument("--only", default="*", help="groups, or group/case, as a glob")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(argv)
    start = time.perf_counter()
    broken: list[str] = []

    def done_with(group: str, cases: dict[str, Facts], skipped: dict[str, str]) -> None:
        """With a pattern, others of the group stay; what was skipped stays in any case."""
        before = kept.read(group)
        if given.only == "*":
            before = {c: facts for c, facts in before.items() if f"{group}/{c}" in skipped}
        kept.write(group, {**before, **cases})
        for case, facts in cases.items():
            if "broken" in facts:
                broken.append(case)
                print(f"BROKEN {group}/{case}: {facts['broken']} {facts['where']}")

    found, skipped = running.run_all(given.only, given.jobs, running.progress, done_with)
    (kept.FOLDER / "about.json").write_text(json.dumps(kept.about(), indent=1) + "\n")
    for name, why in sorted(skipped.items()):
        print(f"skipped {name}: {why}")
    number = sum(map(len, found.values()))
    facts = sum(len(f) for cases in found.values() for f in cases.values())
    print(f"{number} cases, {facts} facts, {time.perf_counter() - start:.0f} s")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
