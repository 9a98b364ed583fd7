"""Whether the machine gives as many cores as there are threads, and rounds made again where not.

The host of a virtual machine may run two of its cores on one of the processor's for seconds. The
guest counts both as busy and nothing in its clocks shows it, but every program then has one core's
speed on two threads. A loop over registers shows it: it needs nothing but cores, and on two of them
does twice as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import ours
from octavo.measure.timing import Comparison, idle

ENOUGH = 0.95  # of as many times one thread's speed as there are threads
LOOP_SECONDS = 0.004  # of each reading
PAUSE = 0.2  # seconds before asking again
MOST_IN_VAIN = 120.0  # seconds of a process: the host takes a core away for a second, or for ten

clock = time.perf_counter


@dataclass
class Shortage:
    """Of this process: measurements made `again`, and those kept though `short` of cores.

    `in_vain` is how many seconds went into waiting and into what was made again.
    """

    again: int = 0
    short: int = 0
    in_vain: float = 0.0


SHORTAGE = Shortage()


def measured(measure: Callable[[], Comparison], threads: int) -> Comparison:
    """What `measure` finds while the machine gives `threads` cores, before it and after.

    Once MOST_IN_VAIN seconds of the process were in vain, everything counts, and SHORTAGE says so.
    """
    if threads == 1:
        return measure()
    while SHORTAGE.in_vain < MOST_IN_VAIN:
        begin = clock()
        if has_cores(threads):
            found = measure()
            if has_cores(threads):
                return found
            SHORTAGE.again += 1
        else:
            time.sleep(PAUSE)
        SHORTAGE.in_vain += clock() - begin
    SHORTAGE.short += 1
    return measure()


# docs/notes/processors.md: "Two threads depend on where a virtual machine's cores are"
def has_cores(threads: int) -> bool:
    """Whether a loop over registers is about `threads` times as fast on as many."""
    idle()
    one, together = (ours.peak_gops(ours.isa(), LOOP_SECONDS, count) for count in (1, threads))
    return together >= ENOUGH * threads * one
