"""Vectors, clocks and folders for tests of the history."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.runtime.history.entry import Entry
from sglang_toolspec.runtime.history.history import History
from sglang_toolspec.runtime.history.manifest import Fingerprint
from sglang_toolspec.runtime.history.opening import open_history

DIM = 64
MARK = Fingerprint(model="tiny", tokenizer="0123abcd")
A, B = '["A", null]', '["B", null]'


class Clock:
    """Seconds that pass one by one, each time they are looked at."""

    def __init__(self, start: float = 1000.0):
        self.seconds = start

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


def direction(number: int, dim: int = DIM) -> NDArray[np.float32]:
    """A vector of its own for each number, unlike all others."""
    return np.random.RandomState(number).normal(size=dim).astype(np.float32)


def beside(vector: NDArray[Any], cosine: float, number: int = 0) -> NDArray[np.float32]:
    """A vector at that cosine to ``vector``."""
    unit = vector / np.linalg.norm(vector)
    other = direction(10_000_000 + number, len(vector))
    other -= (other @ unit) * unit
    other /= np.linalg.norm(other)
    return (cosine * unit + np.sqrt(1 - cosine**2) * other).astype(np.float32)


def exact(vectors: NDArray[np.float32], query: NDArray[np.float32], k: int) -> list[int]:
    """Indices of the ``k`` vectors [n, dim] nearest to ``query`` by cosine, best first."""
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    return np.argsort(-cosines, kind="stable")[:k].tolist()


def opened(folder: Path, **options: Any) -> History:
    return open_history(folder, options.pop("fingerprint", MARK), **options)


def tokens_of(entries: Iterable[Entry]) -> list[list[int]]:
    return [entry.tokens.tolist() for entry in entries]


def found_tokens(history: History, tenant: str, vector: Any, k: int = 10) -> list[list[int]]:
    return tokens_of(entry for entry, _ in history.similar(tenant, vector, k))


def contents(history: History) -> dict[str, list[tuple[Any, ...]]]:
    """All that can be seen of the entries, by tenant, the newest first."""
    return {
        tenant: [
            (e.tokens.tolist(), e.tools, e.created, e.used, e.drafted, e.tenant)
            for e in history.entries(tenant)
        ]
        for tenant in history.tenants()
    }
