"""Runs the corpus and prints what differs from the record; exit code 1 where anything does."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from tests.golden import corpus, kept
from tests.golden.facts import Facts, kind
from tests.golden.kept import Difference, case_of

Found = Mapping[str, Mapping[str, Facts]]
"""The facts of cases by group."""


def differences(
    pattern: str, found: Found, skipped: Mapping[str, str], against: Path | None = None
) -> list[Difference]:
    """To the record, or fact by fact to a folder of `--save`, of what `pattern` chooses."""
    different: list[Difference] = []
    for group in corpus.GROUPS:
        before = {
            form: facts
            for form, facts in kept.read(group, against).items()
            if corpus.fits(pattern, group, case_of(form))
            and f"{group}/{case_of(form)}" not in skipped
        }
        cases = found.get(group, {})
        now = kept.forms(cases) if against else kept.lines(cases)
        different += kept.differences(group, before, now)
    return different


def record(pattern: str, found: Found, skipped: Mapping[str, str], *, gone: bool = False) -> None:
    """Rewrites the lines of what was run; what `pattern` leaves out and what was skipped stays.

    With `gone` drops the lines of forms that are no more, and changes nothing else.
    """
    for group, cases in found.items():
        before, now = kept.read(group), kept.lines(cases)
        stays = {
            form: facts
            for form, facts in before.items()
            if f"{group}/{case_of(form)}" in skipped
            or not corpus.fits(pattern, group, case_of(form))
            or (gone and form in now)
        }
        kept.write(group, stays if gone else {**stays, **now})
    if gone:
        return
    (kept.FOLDER / "about.json").write_text(json.dumps(kept.about(), indent=1) + "\n")


def show(name: str, form: str = "*") -> None:
    """Prints all facts of a case, GROUP/CASE, or those of a form."""
    group, _, case = name.partition("/")
    facts = corpus.run(group, case)
    shown = kept.forms({case: facts}) if not isinstance(facts, str) else {facts: {}}
    for each, them in shown.items():
        if fnmatchcase(each.partition(": ")[2], form):
            print(f"{group}/{each}")
            for fact in sorted(them):
                print(f"  {fact}: {json.dumps(them[fact], ensure_ascii=False)}")


def instructions(about: Mapping[str, str]) -> str:
    """What the processor of a record has of what kernels use."""
    return about.get("cpu", "").rpartition(": ")[2]


def explain(difference: Difference, found: Found) -> str:
    """The difference, and where it is in a hash the facts of now that it stands for."""
    group, _, form = difference.form.partition("/")
    now = kept.forms(found.get(group, {})).get(form, {})
    rows = [f"      {n}: {f}" for n, f in sorted(now.items()) if kind(n) == difference.fact]
    return "\n".join([str(difference), *rows])


def main(argv: list[str] | None = None) -> int:
    """1 where anything differs, or with --record where a case broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.check", description=__doc__)
    parser.add_argument("--only", default="*", help="groups, or group/case, as a glob")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", nargs="+", metavar=("GROUP/CASE", "FORM"), help="all its facts")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write all facts, as JSON")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="compare with saved facts")
    parser.add_argument("--record", action="store_true", help="write the record anew")
    gone = "with --record: only drop the lines of what is no more, as on another processor"
    parser.add_argument("--gone", action="store_true", help=gone)
    given = parser.parse_args(argv)
    if given.show:
        show(*given.show[:2])
        return 0
    start = time.perf_counter()
    found, skipped = corpus.run_all(given.only, given.jobs)
    for name, why in sorted(skipped.items()):
        print(f"skipped {name}: {why}")
    number = sum(map(len, found.values()))
    different: list[Difference] = []
    if given.save:
        for group, cases in found.items():
            kept.write(group, kept.forms(cases), given.save)
    elif given.record:
        record(given.only, found, skipped, gone=given.gone)
        different = [
            Difference(f"{group}/{case}", "broken", None, facts["broken"])
            for group, cases in found.items()
            for case, facts in cases.items()
            if "broken" in facts
        ]
    else:
        different = differences(given.only, found, skipped, given.against)
        about = kept.FOLDER / "about.json"
        before = json.loads(about.read_text()) if about.exists() else {}
        for key, value in kept.about().items():
            if before.get(key) != value and not given.against:
                print(f"recorded with {key} {before.get(key)}, this is {value}")
        other = before and instructions(before) != instructions(kept.about())
        if other and not given.against:
            print("NOT TESTED: bits and numbers of outputs, which follow the processor")
            different = [d for d in different if not d.fact.startswith(("bits", "out "))]
    for difference in different:
        print(explain(difference, found))
    forms = len({d.form for d in different})
    print(
        f"{number} cases, {len(different)} differences in {forms} forms, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
