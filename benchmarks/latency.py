"""Latency of model files, interleaved, in processes of their own, which load nothing else.

Files that end in `.xml` are OpenVINO's (`peers_openvino`; it chooses the groups of activations
where the name has `.int4.`), folders that end in `.ctranslate2`
CTranslate2's (`families_ctranslate`), all others ONNX.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import results, rows, runner
from benchmarks.results import Row, say
from benchmarks.rows import Asked
from benchmarks.runner import Job
from benchmarks.variants import Made
from benchmarks.zoo.sessions import Feed
from octavo.measure.timing import Comparison, idle, interleave

Shape = tuple[int, int]
SHAPES: tuple[Shape, ...] = ((1, 8), (1, 32), (1, 128), (8, 128))


@dataclass(frozen=True)
class Setting:
    """Threads and AMX of the children, and how many of them a figure is pooled from."""

    words: str = ""
    threads: int = 1
    amx: bool = True
    processes: int = 7
    rounds: int = 11


def settings(quick: bool, processes: int) -> Iterator[Setting]:
    """One thread and two, with AMX and without, as far as the machine has them."""
    machine = results.machine()
    modes = [True, False] if "amxint8" in machine.instruction_sets else [True]
    if quick:
        yield Setting("1 thread", processes=1, rounds=3)
        return
    for threads in (1, 2) if machine.cores > 1 else (1,):
        for amx in modes:
            words = f"{threads} thread{'s' * (threads > 1)}"
            words += "" if len(modes) == 1 else ", AMX" if amx else ", AMX refused (VNNI only)"
            count = processes if threads == 1 else min(3, processes)  # a long run as it is
            yield Setting(words, threads, amx, count)


def label(shape: Shape) -> str:
    """`8x128`: batch and length."""
    return "x".join(map(str, shape))


def tokens(shapes: Sequence[Shape]) -> dict[str, Feed]:
    """Feeds of all-MiniLM-L6 by `label`, all of it real tokens."""
    found: dict[str, Feed] = {}
    for shape in shapes:
        ids = np.random.RandomState(0).randint(1000, 30000, shape)
        ones, zeros = np.ones(shape, np.int64), np.zeros(shape, np.int64)
        found[label(shape)] = {"input_ids": ids, "attention_mask": ones, "token_type_ids": zeros}
    return found


def compare(
    files: Mapping[str, Path], feeds: Mapping[str, Feed], setting: Setting
) -> dict[str, Comparison]:
    """One comparison of all `files` for each of `feeds`, pooled over child processes.

    The children open the files in different orders. Raises subprocess.CalledProcessError if one
    fails.
    """
    with tempfile.TemporaryDirectory(prefix="octavo-feeds-") as folder:
        given = {name: str(Path(folder, f"{i}.npz")) for i, name in enumerate(feeds)}
        for name, path in given.items():
            np.savez(path, **dict(feeds[name]))  # type: ignore[arg-type]  # any array may be given
        job = Job(
            "latency:sessions",
            threads=setting.threads,
            amx=setting.amx,
            rounds=setting.rounds,
            peers=tuple(files),
            torch=False,
            options={"files": {n: str(path) for n, path in files.items()}, "feeds": given},
        )
        return runner.pooled_run(job, setting.processes)


def sessions(job: Job) -> dict[str, Comparison]:
    """What a child measures."""
    opened = {n: _opened(Path(job.options["files"][n]), job.threads) for n in job.peers}
    # Each session has a pool of its own, which spins on after a call.
    settle = None if job.threads == 1 else lambda name: idle()
    found = {}
    for name, path in job.options["feeds"].items():
        feed = dict(np.load(path))
        calls = {file: bind(feed) for file, bind in opened.items()}
        found[name] = interleave(calls, rounds=job.rounds, settle=settle)
        found[name].check_threads(job.threads)
    return found


def _opened(path: Path, threads: int) -> Callable[[Feed], Callable[[], object]]:
    """What binds a feed to the model at `path`."""
    if path.suffix == ".xml":
        from benchmarks.peers_openvino import GROUP, OpenVinoSession

        return OpenVinoSession(path, threads, None if ".int4." in path.name else GROUP).bound
    if path.suffix == ".ctranslate2":
        from benchmarks.families_ctranslate import bound

        return bound(path, threads)
    from benchmarks.zoo.sessions import open_session

    session = open_session(path, threads)
    return lambda feed: partial(session.run, None, feed)


def speed_rows(
    title: str,
    made: Made,
    feeds: Mapping[str, Feed],
    asked: Callable[[int], Sequence[Asked]],
    of: Sequence[Setting],
) -> Iterator[Row]:
    """In each setting; `asked` says what of a number of threads."""

    def measured(section: str, setting: Setting) -> Iterator[Row]:
        found = compare(made.files, feeds, setting)
        yield from rows.speed_rows(found, asked(setting.threads), section, made.refused)

    for setting in of:
        section = f"{title}: speed, {setting.words}"
        say(section)
        yield from runner.guarded(section, partial(measured, section, setting))
