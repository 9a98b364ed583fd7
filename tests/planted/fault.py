"""A planted fault: a small change to one place of the sources, and the tests that must see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`before` stands once in the file at `path`; with `after` in its place, one of `tests` fails.

    `tests` are pytest's arguments, paths from the root of the checkout. In `native/`, `before` and
    `after` are both expressions of one type, or both end in a semicolon and are statements: all
    faults of C++ are compiled into one build, which reads from the environment which one is on.
    """

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]
