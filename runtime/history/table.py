"""Entries in numbered slots, searched by their vectors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.runtime.history.entry import Entry, Neighbour
from sglang_toolspec.runtime.history.flat import Flat
from sglang_toolspec.runtime.history.graph import Graph
from sglang_toolspec.runtime.history.vectors import Row, Unit, VectorCode

FIRST_SLOTS = 32
FLAT_SLOTS = 512
"""A table of more slots is a graph."""
CANDIDATES = 12
"""Entries found by part of their vectors, for each one wanted, that are ranked by the whole."""


@dataclass(frozen=True, slots=True)
class Query:
    """A vector in the two forms that are compared; see ``VectorCode``."""

    turned: Unit
    searched: Unit

    @classmethod
    def of(cls, code: VectorCode, unit: Unit) -> Query:
        turned = code.turned(unit)
        return cls(turned, turned if code.whole else code.searched(turned))


class Table:
    """Mutable, not thread-safe. ``slots`` may grow up to ``most`` and never shrink."""

    def __init__(self, code: VectorCode, slots: int, most: int):
        self._code = code
        self._index: Flat | Graph = (Graph if slots > FLAT_SLOTS else Flat)(code.searched_dim, slots)
        self._entries: list[Entry | None] = [None] * slots
        self._free = list(range(slots - 1, -1, -1))
        self._last = slots - 1
        """No slot after it has an entry, once the table is being emptied."""
        self._rows = _zeros(0 if code.whole else most, code.dim)
        """Rows that are searched only by part, int8; whole ones are kept by the index alone."""
        self._scale = np.zeros(len(self._rows), np.float32)
        """By which a row has length 1."""

    def __len__(self) -> int:
        return len(self._entries) - len(self._free)

    @property
    def slots(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Of vectors and links, estimated."""
        row_bytes = 0 if self._code.whole else self._code.dim + self._scale.itemsize
        return self._index.bytes + self._index.touched * row_bytes

    def holds(self, entry: Entry) -> bool:
        return 0 <= entry.slot < self.slots and self._entries[entry.slot] is entry

    def put(self, entry: Entry, row: Row) -> None:
        """Needs a free slot."""
        self._index.put([self._take_slot(entry, row)], self._code.searched(row)[None])

    def fill(self, entries: Sequence[Entry], rows: Sequence[Row]) -> None:
        """Put many at once, on all processors."""
        slots = [self._take_slot(entry, row) for entry, row in zip(entries, rows, strict=True)]
        vectors = self._code.searched(np.stack(rows))
        if isinstance(self._index, Graph):
            self._index.put(slots, vectors, threads=os.cpu_count() or 1)
        else:
            self._index.put(slots, vectors)

    def drop(self, entry: Entry) -> None:
        slot = entry.slot
        self._index.drop(slot)
        self._entries[slot] = None
        self._free.append(slot)
        entry.slot = -1

    def take(self) -> tuple[Entry, Row]:
        """Drop some entry, for another table; nothing may be put here any more."""
        while (entry := self._entries[self._last]) is None:
            self._last -= 1
        slot = entry.slot
        row = self._index.vector(slot) if self._code.whole else self._rows[slot].copy()
        self.drop(entry)
        return entry, row

    def nearest(self, query: Query, count: int) -> list[Neighbour]:
        """At most ``count`` entries, best first."""
        if self._code.whole:
            slots, similarity = self._index.nearest(query.searched, count)
        else:
            slots, _ = self._index.nearest(query.searched, CANDIDATES * count)
            # Not @: BLAS would wake its threads for this, and wait for them where the machine is busy.
            similarity = np.vecdot(self._rows[slots].astype(np.float32), query.turned) * self._scale[slots]
            best = np.argsort(-similarity, kind="stable")[:count]
            slots, similarity = slots[best], similarity[best]
        found = zip(slots.tolist(), similarity.tolist(), strict=True)
        return [Neighbour(entry, cos) for slot, cos in found if (entry := self._entries[slot]) is not None]

    def grow(self, slots: int) -> None:
        more = range(slots - 1, self.slots - 1, -1)
        self._index.resize(slots)
        self._entries.extend([None] * len(more))
        self._free[:0] = more
        self._last = slots - 1

    def _take_slot(self, entry: Entry, row: Row) -> int:
        entry.slot = slot = self._free.pop()
        self._entries[slot] = entry
        if not self._code.whole:
            self._rows[slot] = row
            self._scale[slot] = 1 / np.linalg.norm(row.astype(np.float32))
        return slot


def _zeros(rows: int, dim: int) -> NDArray[np.int8]:
    """[rows, dim], which takes memory only where it is written: it never has to be moved to grow."""
    if not rows:
        return np.zeros((0, dim), np.int8)
    pages = mmap(-1, rows * dim, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    return np.frombuffer(pages, np.int8).reshape(rows, dim)
