"""Exact search in one matrix, for few vectors: an hnswlib index takes 2.6 MB before its first one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Flat:
    """Vectors by slot. Mutable, not thread-safe."""

    def __init__(self, dim: int, slots: int):
        self._matrix = np.zeros((slots, dim), np.float32)
        self._live = np.zeros(slots, bool)

    @property
    def touched(self) -> int:
        """Slots that take memory."""
        return len(self._live)

    @property
    def bytes(self) -> int:
        return self._matrix.nbytes + self._live.nbytes

    def put(self, slots: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """``vectors`` [n, dim] of length 1, into ``slots``."""
        self._matrix[slots] = vectors
        self._live[slots] = True

    def drop(self, slot: int) -> None:
        self._live[slot] = False

    def vector(self, slot: int) -> NDArray[np.float32]:
        return self._matrix[slot].copy()

    def nearest(
        self, vector: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.integer], NDArray[np.float32]]:
        """Slots and cosines of at most ``count`` vectors, best first."""
        live = np.flatnonzero(self._live)
        # Not @: BLAS would wake its threads for this, and wait for them where the machine is busy.
        similarity = np.vecdot(self._matrix, vector)[live]
        best = np.argsort(-similarity, kind="stable")[:count]
        return live[best], similarity[best]

    def resize(self, slots: int) -> None:
        more = slots - len(self._live)
        self._matrix = np.pad(self._matrix, ((0, more), (0, 0)))
        self._live = np.pad(self._live, (0, more))
