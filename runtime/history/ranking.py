"""Which entry leaves when there is no room: the one that was of use longest ago.

Time is counted in added entries. Tokens accepted from an entry's drafts make it count as used later
than it was, by up to ``GRACE`` turnovers of the whole history.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from sglang_toolspec.runtime.history.entry import Entry

FULL_USE = 64
"""Accepted tokens that earn the whole grace."""
GRACE = 1.0


def standing(entry: Entry, capacity: int) -> float:
    """The count of added entries until which it is worth keeping, but for a constant."""
    return entry.stamp + GRACE * capacity * min(entry.used, FULL_USE) / FULL_USE


class Ranking:
    """Entries by standing, which only ever rises. Mutable, not thread-safe."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._heap: list[tuple[float, int, Entry]] = []
        """Standings as they were, so at most what they are; ids make the order total."""
        self._gone = 0
        self.added = 0

    def enter(self, entry: Entry) -> None:
        self.added += 1
        entry.stamp = self.added
        heapq.heappush(self._heap, self._item(entry))

    def fill(self, entries: Iterable[Entry]) -> None:
        """Take over entries with the stamps they have."""
        self._heap = [self._item(entry) for entry in entries]
        heapq.heapify(self._heap)
        self.added = max((entry.stamp for _, _, entry in self._heap), default=0)

    def renew(self, entry: Entry) -> None:
        """It was of use just now."""
        entry.stamp = self.added

    def leave(self, entry: Entry) -> None:
        """To be called once its slot is -1."""
        self._gone += 1
        if 2 * self._gone > len(self._heap):
            self._heap = [item for item in self._heap if item[2].slot >= 0]
            heapq.heapify(self._heap)
            self._gone = 0

    def least(self) -> Entry:
        """The entry to go; needs one."""
        while True:
            standing_then, _, entry = self._heap[0]
            if entry.slot < 0:
                heapq.heappop(self._heap)
                self._gone -= 1
            elif standing(entry, self._capacity) > standing_then:
                heapq.heapreplace(self._heap, self._item(entry))
            else:
                return entry

    def _item(self, entry: Entry) -> tuple[float, int, Entry]:
        return standing(entry, self._capacity), entry.id, entry
