"""One tenant's entries: a table that fits them, and those that they are moving out of.

A table grows in place, but a flat one does not become a graph, and none becomes smaller. So where
another table fits better, a new one takes what is added, and each change moves a few entries over:
nobody waits for a whole index to be built.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_toolspec.runtime.history.entry import Entry, Neighbour
from sglang_toolspec.runtime.history.table import FIRST_SLOTS, FLAT_SLOTS, Query, Table
from sglang_toolspec.runtime.history.vectors import Row, VectorCode

MOVES = 4
"""Entries moved with each change."""
GROWTH = 4
"""Of a graph: memory that it does not use yet costs next to nothing, being moved leaves holes."""


class Shelf:
    """Mutable, not thread-safe. ``most`` is how many entries there will ever be."""

    def __init__(self, code: VectorCode, most: int):
        self._code = code
        self._most = most
        self._tables = [self._table(0)]
        """The one that entries are put into, then those being emptied."""
        self.entries: dict[int, Entry] = {}
        """By id, the newest last."""

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self._tables)

    def put(self, entry: Entry, row: Row) -> None:
        if len(self._tables[0]) == self._tables[0].slots:
            self._make_room()
        self._tables[0].put(entry, row)
        self.entries[entry.id] = entry

    def fill(self, entries: Sequence[Entry], rows: Sequence[Row]) -> None:
        """Put many into an empty shelf."""
        self._tables = [self._table(len(entries))]
        self._tables[0].fill(entries, rows)
        self.entries = {entry.id: entry for entry in entries}

    def drop(self, entry: Entry) -> None:
        next(table for table in self._tables if table.holds(entry)).drop(entry)
        del self.entries[entry.id]

    def renew(self, entry: Entry) -> None:
        """Make it the newest."""
        self.entries[entry.id] = self.entries.pop(entry.id)

    def nearest(self, query: Query, count: int) -> list[Neighbour]:
        """At most ``count`` entries, best first."""
        found = [neighbour for table in self._tables for neighbour in table.nearest(query, count)]
        if len(self._tables) > 1:
            found.sort(key=lambda neighbour: -neighbour.similarity)
        return found[:count]

    def tidy(self) -> None:
        """Move a few entries on; to be called after each change."""
        newest = self._tables[0]
        if len(self._tables) == 1 and newest.slots > FIRST_SLOTS and 4 * len(newest) < newest.slots:
            self._tables.insert(0, self._table(2 * len(newest)))
        for _ in range(MOVES):
            while len(self._tables) > 1 and not len(self._tables[-1]):
                self._tables.pop()
            if len(self._tables) == 1:
                return
            entry, row = self._tables[-1].take()
            self.put(entry, row)

    def _make_room(self) -> None:
        newest = self._tables[0]
        if newest.slots < FLAT_SLOTS:
            newest.grow(min(2 * newest.slots, FLAT_SLOTS))
        elif newest.slots == FLAT_SLOTS:
            self._tables.insert(0, self._table(2 * FLAT_SLOTS))
        else:
            newest.grow(min(GROWTH * newest.slots, self._most))

    def _table(self, entries: int) -> Table:
        """One with room for ``entries``, and not for more than there will be where it is a graph."""
        slots = FIRST_SLOTS
        while slots < min(entries, FLAT_SLOTS):
            slots *= 2
        if entries > FLAT_SLOTS:
            slots = min(max(FLAT_SLOTS + 1, entries), self._most)
        return Table(self._code, slots, FLAT_SLOTS if slots <= FLAT_SLOTS else self._most)
