"""What hosted machines run is what was looked at."""

from __future__ import annotations

import re

from tests.native.building import ROOT

PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)+")


def test_actions_are_pinned_by_their_commits() -> None:
    """A tag may be moved by whoever owns the action, or took it over."""
    found = [
        line.partition("uses:")[2].strip()
        for path in ROOT.glob(".github/workflows/*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert len(found) > 10
    assert [one for one in found if not one.startswith("./") and not PINNED.fullmatch(one)] == []
