"""A machine whose time only work moves, and that is as noisy as a small virtual one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from octavo.measure.openings import Clock


class Machine:
    """Its speed drifts by a fifth within seconds, other programs take it away for moments.

    `placed` is the standard deviation of what each opening's place in memory does to its speed,
    `spikes` the share of calls that lose the processor, for 4 to 20 ms. `idle` seconds pass before
    each turn. Where that is `told`, as by a system that counts waits, `waited` has the seconds.
    """

    def __init__(
        self,
        seed: int,
        *,
        placed: float = 0.02,
        spikes: float = 0.02,
        jitter: float = 0.01,
        drift: float = 0.2,
        idle: float = 0.012,
        told: bool = False,
    ) -> None:
        self.now, self.random, self.opened = 0.0, random.Random(seed), 0
        self._placed, self._spikes, self._jitter = placed, spikes, jitter
        self._drift, self._idle = drift, idle
        self._told, self.waited = told, 0.0
        self._phase = self.random.uniform(0, 7)

    @property
    def clock(self) -> Clock:
        return Clock(
            wall=lambda: self.now,
            settle=lambda: self.sleep(self._idle),
            spins=lambda: self._idle > 0,
            waits=lambda: self.waited if self._told else 0.0,
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def pace(self) -> float:
        waves = math.sin(self.now / 1.3 + self._phase) + math.sin(self.now / 7)
        return 1 + self._drift * waves / 2

    def opener(
        self, seconds: float, opening: float = 0.01, place: float = 0.0
    ) -> Callable[[], Callable[[], object]]:
        """Opens, for `opening` seconds, a call of `seconds`; every second one is `place` slower."""

        def opened() -> Callable[[], object]:
            self.sleep(opening)
            self.opened += 1
            slower = 1 + (place if self.opened % 2 else 0.0) + self.random.gauss(0, self._placed)

            def call() -> None:
                taken = (
                    seconds * slower * self.pace() * (1 + abs(self.random.gauss(0, self._jitter)))
                )
                # A long call is met by as many as a second of short ones.
                chance = self._spikes * (seconds / 0.002 if self._told else 1)
                if self.random.random() < chance:
                    lost = self.random.uniform(0.004, 0.02)
                    taken, self.waited = taken + lost, self.waited + lost
                self.now += taken

            return call

        return opened
