"""How fast models of target native are, measured beside others in child processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from benchmarks import latency
from benchmarks.results import Row, say
from benchmarks.sections import guarded
from benchmarks.speed import Asked, Setting, speed_rows
from benchmarks.variants import Made
from benchmarks.zoo.sessions import Feed


def rows(
    title: str,
    made: Made,
    feeds: Mapping[str, Feed],
    asked: Callable[[int], Sequence[Asked]],
    settings: Sequence[Setting],
) -> Iterator[Row]:
    """In each of `settings`; `asked` says what of a number of threads."""
    for setting in settings:
        section = f"{title}: speed, {setting.words}"
        say(section)
        yield from guarded(section, partial(_rows, section, made, feeds, asked, setting))


def _rows(
    section: str,
    made: Made,
    feeds: Mapping[str, Feed],
    asked: Callable[[int], Sequence[Asked]],
    setting: Setting,
) -> Iterator[Row]:
    found = latency.compare(
        made.files,
        feeds,
        threads=setting.threads,
        processes=setting.processes,
        rounds=setting.rounds,
        amx=setting.amx,
    )
    yield from speed_rows(found, asked(setting.threads), section, made.refused)
