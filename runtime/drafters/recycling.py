"""Token Recycling (paper's general drafter; arXiv 2408.08696): what the target thought likely after
a token the last time is drafted after that token again."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.runtime.tree import DraftPath

CANDIDATES = 8
MAX_TOKENS = 1 << 13
"""Tokens of which one tenant's candidates are kept."""
MAX_NODES = 16
MIN_CHANCE = 0.04
TRUST = 0.25
"""A candidate's chance in another place, relative to its chance in the place it was seen."""


class Candidates:
    """For each token what may follow it: ids int32 and chances float32 ``[tokens, 8]``, likeliest
    first. Mutable; at most ``MAX_TOKENS`` tokens, then the table starts afresh."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._ids: NDArray[np.int32] = np.zeros((64, CANDIDATES), np.int32)
        self._chances: NDArray[np.float32] = np.zeros((64, CANDIDATES), np.float32)

    def __len__(self) -> int:
        return len(self._slots)

    def note(self, tokens: Sequence[int], ids: NDArray[np.int32], chances: NDArray[np.float32]) -> None:
        """After ``tokens[i]`` the target gave ``ids[i]`` the probabilities ``chances[i]``."""
        for token, row, chance in zip(tokens, ids, chances, strict=True):
            slot = self._slot(token)
            self._ids[slot] = row
            self._chances[slot] = chance

    def after(self, token: int) -> list[tuple[int, float]]:
        slot = self._slots.get(token)
        if slot is None:
            return []
        return list(zip(self._ids[slot].tolist(), self._chances[slot].tolist(), strict=True))

    def _slot(self, token: int) -> int:
        slot = self._slots.get(token)
        if slot is None:
            if len(self._slots) == MAX_TOKENS:
                self._slots.clear()
            slot = self._slots[token] = len(self._slots)
            if slot == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._chances = np.concatenate([self._chances, np.zeros_like(self._chances)])
        return slot


class RecyclingDrafter:
    """One request; grows a tree of the likeliest chains of candidates, by at most ``nodes`` nodes.

    ``by_rank`` gives candidates the same chances everywhere, so that the tree always has the same
    shape, as in the paper.
    """

    name = "recycling"

    def __init__(self, candidates: Candidates, nodes: int = MAX_NODES, by_rank: Sequence[float] = ()):
        self._candidates = candidates
        self._nodes = nodes
        self._by_rank = by_rank
        self._least = 0.0 if by_rank else MIN_CHANCE
        self._last = -1

    def commit(self, tokens: list[int]) -> None:
        self._last = tokens[-1]

    def close(self) -> None:
        """The worker notes candidates as they come."""

    def propose(self) -> list[DraftPath]:
        tree: dict[tuple[int, ...], tuple[float, ...]] = {(): ()}
        heap: list[tuple[float, tuple[int, ...]]] = []
        way: tuple[int, ...] = ()
        for _ in range(self._nodes):
            weights = tree[way]
            for token, chance in self._after(way[-1] if way else self._last):
                weight = (weights[-1] if way else 1.0) * chance
                if weight >= self._least:
                    heapq.heappush(heap, (-weight, (*way, token)))
            if not heap:
                break
            negative, way = heapq.heappop(heap)
            tree[way] = (*tree[way[:-1]], -negative)
        inner = {way[:-1] for way in tree if way}
        return [self._path(way, weights) for way, weights in tree.items() if way and way not in inner]

    def _after(self, token: int) -> list[tuple[int, float]]:
        known = self._candidates.after(token)
        if not self._by_rank:
            return [(candidate, TRUST * chance) for candidate, chance in known]
        return [(candidate, chance) for (candidate, _), chance in zip(known, self._by_rank, strict=False)]

    def _path(self, tokens: tuple[int, ...], weights: tuple[float, ...]) -> DraftPath:
        return DraftPath(tokens, weights, (self.name,) * len(tokens))
