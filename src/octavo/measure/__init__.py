"""What a model or a machine does: plain data, without a front end.

data       inputs and labels, batch by batch; readers: the same from files
accuracy   what a model returns for data, scored by a metric
timing     callables in turns, compared round by round
benchmark  callables opened afresh in turns (openings), with an interval and a verdict
doctor     what a machine has for int8 models
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.core.lazy import lazy as _lazy

if TYPE_CHECKING:
    from octavo.measure.benchmark import bench as bench

__all__, __getattr__ = _lazy(__name__, {"octavo.measure.benchmark": "bench"})
