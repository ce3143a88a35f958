"""Hidden states as they are compared and stored.

Vectors of up to ``WHOLE_DIM`` numbers are stored as they are, in float32. Longer ones are *turned*
first: shuffled, given random signs and taken through a Fourier transform, which changes no angle and
spreads the few huge components that hidden states have over all others. After that eight bits for each
number are enough, and any part of the numbers stands for the whole: the first ``SEARCHED_DIM`` of
them are searched, all of them rank what was found.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_DIM = 1 << 16
WHOLE_DIM = 1024
SEARCHED_DIM = 640

_TINY = np.finfo(np.float32).tiny

Row = NDArray[Any]
"""[dim]: a stored vector, float32 or int8; only its direction counts."""
Unit = NDArray[np.float32]
"""[dim]: a vector of length 1."""


def unit_vector(vector: Any) -> Unit | None:
    """``vector`` at length 1; ``None`` for anything without a direction.

    That is: another shape, no numbers, NaN, infinity, zero.
    """
    try:
        with np.errstate(all="ignore"):
            numbers = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    if numbers.ndim != 1 or not 0 < numbers.size <= MAX_DIM:
        return None
    # First by the largest, so that squares neither overflow nor vanish.
    largest = np.abs(numbers).max()
    if not np.isfinite(largest) or largest == 0:
        return None
    return _normalised(numbers / largest)


def row_dtype(dim: int) -> np.dtype[Any]:
    return np.dtype("<f4" if dim <= WHOLE_DIM else "i1")


class VectorCode:
    """How vectors of ``dim`` numbers are stored and searched. Immutable; the same in every process."""

    def __init__(self, dim: int):
        self.dim = dim
        self.whole = dim <= WHOLE_DIM
        self.searched_dim = dim if self.whole else SEARCHED_DIM
        self.row_dtype = row_dtype(dim)
        if not self.whole:
            self._order, self._signs = _shuffle(dim)
            self._weights = _weights(dim)

    def turned(self, unit: Unit) -> Unit:
        """``unit`` as rows have it: turned, or as it is where rows are whole."""
        if self.whole:
            return unit
        waves = np.fft.rfft(unit[self._order] * self._signs, norm="ortho")
        parts = waves.astype(np.complex64).view(np.float32)
        # The first wave has no imaginary part, and neither has the last of an even number.
        return np.append(parts[:1], parts[2 : self.dim + 1]) * self._weights

    def row(self, turned: Unit) -> Row:
        if self.whole:
            return turned.astype(self.row_dtype)
        return np.rint(turned * (127 / np.abs(turned).max())).astype(self.row_dtype)

    def searched(self, turned: NDArray[Any]) -> NDArray[np.float32]:
        """The part of turned vectors or rows that is searched, at length 1. [..., searched_dim]"""
        return _normalised(turned[..., : self.searched_dim].astype(np.float32))

    def unit(self, row: Row) -> Unit:
        """The vector that ``row`` stands for: the inverse of ``turned`` and, but for rounding, ``row``."""
        turned = _normalised(row.astype(np.float32))
        if self.whole:
            return turned
        parts = np.zeros(2 * (self.dim // 2 + 1), np.float32)
        weighted = turned / self._weights
        parts[0], parts[2 : self.dim + 1] = weighted[0], weighted[1:]
        unit = np.empty(self.dim, np.float32)
        unit[self._order] = np.fft.irfft(parts.view(np.complex64), self.dim, norm="ortho") * self._signs
        return unit


def _normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.vecdot(vectors, vectors))[..., None]
    return vectors / np.maximum(lengths, _TINY)


def _shuffle(dim: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """An order and signs that stay the same for ever, as those of numpy's generators need not."""
    noise = np.frombuffer(hashlib.shake_256(b"toolspec history").digest(8 * dim), "<u8")
    signs = np.where(noise & np.uint64(1), 1, -1).astype(np.float32)
    return np.argsort(noise, kind="stable"), signs


def _weights(dim: int) -> NDArray[np.float32]:
    """Of the real parts of waves, so that lengths stay: each wave but these stands for two."""
    weights = np.full(dim, np.sqrt(2), np.float32)
    weights[0] = 1
    if dim % 2 == 0:
        weights[-1] = 1
    return weights
