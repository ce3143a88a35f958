"""Approximate search in an hnswlib index, with its faults kept inside.

hnswlib 0.8.0 throws where a query asks for more than it can reach, takes NaN, wants its capacity
declared, and loads a file of another dimension or space without a word. So queries ask for what is
there, only checked vectors get here, and an index is never loaded: it is built anew from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import hnswlib
import numpy as np
from numpy.typing import NDArray

LINKS = 16
"""hnswlib's M."""
BUILD_EF = 64
SEARCH_EF = 64
"""How many candidates an insertion and a query follow; hnswlib's ef_construction and ef."""
FIXED_BYTES = 65536 * 40
"""Of an empty index: a table of locks."""
SLOT_BYTES = 40 + 4 + 2
"""Of a declared slot: lock, level, visited mark."""
NODE_BYTES = 8 * LINKS + 4 + 8 + 8 + 56 + 5
"""Of a filled one besides its vector: links, label, pointer, lookup, upper layers."""


class Graph:
    """Vectors by slot, which is also hnswlib's label. Mutable, not thread-safe.

    A slot whose vector was dropped may be filled again: hnswlib then changes that node in place.
    """

    def __init__(self, dim: int, slots: int):
        # Vectors have length 1, so the inner product is the cosine.
        self._index = hnswlib.Index("ip", dim)
        self._index.init_index(slots, M=LINKS, ef_construction=BUILD_EF)
        self._live = 0

    @property
    def touched(self) -> int:
        """Slots that were ever filled; others take no memory for vectors."""
        return self._index.element_count

    @property
    def bytes(self) -> int:
        slots = self._index.max_elements * SLOT_BYTES
        return FIXED_BYTES + slots + self.touched * (4 * self._index.dim + NODE_BYTES)

    def put(self, slots: Sequence[int], vectors: NDArray[np.float32], threads: int = 1) -> None:
        """``vectors`` [n, dim] of length 1, into ``slots``, which must be below the declared number."""
        self._index.add_items(vectors, np.asarray(slots, np.uint64), num_threads=threads)
        self._live += len(slots)

    def drop(self, slot: int) -> None:
        self._index.mark_deleted(slot)
        self._live -= 1

    def vector(self, slot: int) -> NDArray[np.float32]:
        return self._index.get_items([slot])[0]

    def nearest(
        self, vector: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.integer], NDArray[np.float32]]:
        """Slots and cosines of at most ``count`` vectors, best first.

        Fewer where dropped vectors leave nodes that no path leads to: hnswlib throws then.
        """
        count = min(count, self._live)
        self._index.set_ef(max(SEARCH_EF, count))
        while count > 0:
            try:
                slots, distances = self._index.knn_query(vector, k=count, num_threads=1)
            except RuntimeError:
                count //= 2
                continue
            return slots[0], 1 - distances[0]
        return np.empty(0, np.int64), np.empty(0, np.float32)

    def resize(self, slots: int) -> None:
        self._index.resize_index(slots)
