"""At which accuracy level a file's MatMulNBits runs: what is right, and then what is faster, here.

Level 4 quantizes activations to integers, in blocks as the weight's; level 0 leaves them in float.
Files are written with level 4. What ONNX Runtime does at either level depends on its release and on
the processor, so both are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import onnx

from octavo.core.metrics import relative_error
from octavo.errors import VerificationError
from octavo.graph.lower.blocks import IN_FLOAT, IN_INTEGERS
from octavo.onnx.check.model_pair import MOST_OPENED_BYTES
from octavo.onnx.check.runs import Runs
from octavo.onnx.custom_ops import session_options
from octavo.onnx.inputs import Feed
from octavo.onnx.read.load import Source
from octavo.onnx.session import session

_Found = TypeVar("_Found")

OP, ATTRIBUTE = "MatMulNBits", "accuracy_level"
CLOSE = 0.01
"""Error between the levels that is never too much: twice that of activations of 8 bits in a deep
model. Above, it must not be more than the error that the weights' few bits make."""
SLOWER = 1.2
"""Level 0 is taken where level 4 takes so many times as long: below, it may be noise."""
LEAST_SECONDS = 1e-3
"""Of a run that says something of speed."""
LEAST_ROUNDS, MOST_ROUNDS, SECONDS = 3, 20, 1.0
"""Of runs of both levels in turns, for each feed."""
FEEDS = 2

LEVEL_4 = "MatMulNBits at accuracy level 4, activations in integers"
LEVEL_0 = "MatMulNBits at accuracy level 0, activations in float"


@dataclass(frozen=True)
class Compared:
    """Level 4 beside level 0: the largest error of its outputs, and its time over that of 0.

    `ratio` is None where runs are too short to tell.
    """

    error: float
    ratio: float | None


# docs/notes/onnxruntime.md: "Accuracy levels of MatMulNBits"
def verified_at_level(
    model: Path,
    source: Source,
    feeds: Sequence[Feed] | None,
    check: Callable[[], _Found],
    error_of: Callable[[_Found], float | None],
) -> tuple[_Found, tuple[str, ...]]:
    """Check the file at `model`, settle its accuracy level, and return the finding and a note.

    `error_of` gives the error from the float model in what `check` found. Where level 4 does not
    pass, level 0 is tried. Raises what `check` raises where neither does.
    """
    if not _has_levels(model):
        return check(), ()
    try:
        found = check()
    except VerificationError:
        set_level(model, model, IN_FLOAT)
        with suppress(VerificationError):
            return check(), (f"{LEVEL_0}: level 4 does not give what was promised",)
        set_level(model, model, IN_INTEGERS)
        raise
    compared = _compare(model, source, feeds)
    if compared is None:
        return found, (f"{LEVEL_4}: not compared with level 0",)
    if compared.error > max(CLOSE, error_of(found) or 0.0):
        set_level(model, model, IN_FLOAT)
        return check(), (f"{LEVEL_0}: level 4 gives outputs {compared.error:.1g} away",)
    if compared.ratio is not None and compared.ratio > SLOWER:
        set_level(model, model, IN_FLOAT)
        return check(), (f"{LEVEL_0}: level 4 takes {compared.ratio:.1f} times as long here",)
    time = "" if compared.ratio is None else f", in {compared.ratio:.2f} of its time here"
    return found, (f"{LEVEL_4}: outputs {compared.error:.1g} from level 0's{time}",)


def set_level(model: Path, to: Path, level: int) -> None:
    """Write the file at `model` to `to`, beside it, with its MatMulNBits at `level`."""
    proto = onnx.load(model, load_external_data=False)
    for node in _nodes(proto.graph):
        for attribute in node.attribute:
            if attribute.name == ATTRIBUTE:
                attribute.i = level
    to.write_bytes(proto.SerializeToString())


def _has_levels(model: Path) -> bool:
    return any(True for _ in _nodes(onnx.load(model, load_external_data=False).graph))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        if node.op_type == OP:
            yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)


def _compare(model: Path, source: Source, feeds: Sequence[Feed] | None) -> Compared | None:
    """Compare the levels; None if the model is too large to open twice, or nothing could be run."""
    files = [path for path in model.parent.iterdir() if path.is_file()]
    if 2 * sum(path.stat().st_size for path in files) > MOST_OPENED_BYTES:
        return None
    other = model.with_name(f"{model.name}.level{IN_FLOAT}")
    set_level(model, other, IN_FLOAT)
    try:
        sessions = [_open(model), _open(other)]
        tried = list(feeds or ())[:FEEDS] or list(_made_up(sessions[0], source))
        if not tried:
            return None
        error = max(_distance(sessions, feed) for feed in tried)
        ratio = _time_ratio(sessions, tried)
        if ratio is not None and ratio > SLOWER:  # once more: another program may have been busy
            ratio = min(ratio, _time_ratio(sessions, tried) or 0.0)
        return Compared(error, ratio)
    finally:
        other.unlink()


def _open(path: Path) -> Any:
    # On one thread: those of two sessions would wait for each other.
    with session_options(intra_op_num_threads=1) as options:
        return session(path, sess_options=options)


def _made_up(one: Any, source: Source) -> Iterator[Feed]:
    for taken in islice(Runs(one, one, source).accepted(), FEEDS):
        yield taken.feed


def _distance(sessions: Sequence[Any], feed: Feed) -> float:
    """Return the error of level 4's outputs against level 0's; infinite where not finite."""
    ours, theirs = (one.run(None, dict(feed)) for one in sessions)
    worst = 0.0
    for got, expected in zip(ours, theirs, strict=True):
        if not isinstance(expected, np.ndarray) or expected.dtype.kind != "f":
            continue
        if got.shape != expected.shape or (np.isfinite(expected) & ~np.isfinite(got)).any():
            return float("inf")
        if expected.size and np.isfinite(expected).all():
            worst = max(worst, relative_error(expected, got))
    return worst


def _time_ratio(sessions: Sequence[Any], feeds: Sequence[Feed]) -> float | None:
    """Return the time of the first session over the second's: the mean of the feeds' ratios."""
    ratios = []
    for feed in feeds:
        best, until = [float("inf"), float("inf")], perf_counter() + SECONDS
        for done in range(MOST_ROUNDS):
            if done >= LEAST_ROUNDS and perf_counter() > until:
                break
            for i, one in enumerate(sessions):
                started = perf_counter()
                one.run(None, dict(feed))
                best[i] = min(best[i], perf_counter() - started)
        if min(best) >= LEAST_SECONDS:
            ratios.append(best[0] / best[1])
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None
