"""Sources that fail, stall or never pay rest for a while, and are tried again."""

from __future__ import annotations

from collections import Counter

FAULTS = 3
"""Faults in a row after which a source rests."""
FRUITLESS = 400
"""Wrong drafts in a row after which a source rests."""
REST = 2000
"""Drafts of all requests that a rest lasts."""
STALL = 0.25
"""Seconds for one draft that count as a fault."""


class Rests:
    """Mutable; shared by all requests of a server."""

    def __init__(self) -> None:
        self._drafts = 0
        self._until: dict[str, int] = {}
        self._faults: Counter[str] = Counter()
        self._fruitless: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        """Rests so far, by source."""

    def step(self) -> None:
        """A request is about to be drafted for."""
        self._drafts += 1

    def awake(self, source: str) -> bool:
        return self._until.get(source, 0) <= self._drafts

    def resting(self) -> list[str]:
        return sorted(source for source in self._until if not self.awake(source))

    def fault(self, source: str) -> None:
        self._faults[source] += 1
        if self._faults[source] >= FAULTS:
            self._rest(source)

    def drafted(self, source: str, seconds: float) -> None:
        """A draft came without an error."""
        if seconds > STALL:
            self.fault(source)
        else:
            self._faults[source] = 0

    def outcome(self, source: str, right: bool) -> None:
        """Whether a draft began as the reply went on."""
        self._fruitless[source] = 0 if right else self._fruitless[source] + 1
        if self._fruitless[source] >= FRUITLESS:
            self._rest(source)

    def _rest(self, source: str) -> None:
        self._until[source] = self._drafts + REST
        self._faults[source] = self._fruitless[source] = 0
        self.begun[source] += 1
