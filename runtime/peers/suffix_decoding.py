"""SuffixDecoding (Oliaro et al., arXiv 2411.04975): a tree of what followed the longest known suffixes.

Two texts are looked through: earlier replies, and the prompt with this reply. For each length of the suffix a
tree is grown greedily by how often each token followed; it may have as many nodes as the suffix is long. The
tree that promises most tokens is drafted. Suffixes are found by their places instead of a suffix tree, which
gives the same counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from sglang_toolspec.runtime.tree import DraftPath

MAX_SUFFIX = 64
MAX_PLACES = 512
"""Places of a token that are looked at, the latest."""
MAX_TOKENS = 1 << 20
MIN_CHANCE = 0.1
NODES_PER_TOKEN = 1.0
"""Nodes of a tree by tokens of the suffix (ArcticInference's ``max_spec_factor``)."""
_END = -1

Grown = dict[tuple[int, ...], float]
"""Nodes by the tokens that lead to them, and their chances; parents come first."""


class Places:
    """Texts one behind another, and where each token stands in them. Mutable."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._of: dict[int, list[int]] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Texts beyond ``MAX_TOKENS`` are not added."""
        for token in tokens[: max(0, MAX_TOKENS - len(self.tokens))]:
            self._of.setdefault(token, []).append(len(self.tokens))
            self.tokens.append(token)

    def end(self) -> None:
        """What comes next is another text."""
        self.tokens.append(_END)

    def after(self, recent: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Length of a suffix of ``recent``, and the indices behind its places; only the longest suffix for
        the same places."""
        tokens, length = self.tokens, 1
        places = [at + 1 for at in self._of.get(recent[-1], ())[-MAX_PLACES:] if at + 1 < len(tokens)]
        while places:
            longer = []
            if length < min(len(recent), MAX_SUFFIX):
                wanted = recent[-1 - length]
                longer = [at for at in places if at > length and tokens[at - 1 - length] == wanted]
            if len(longer) < len(places):
                yield length, places
            places, length = longer, length + 1


class SuffixDecoding:
    """One request; a ``Drafter``. ``earlier`` holds the replies of its tenant, and gets this one's."""

    name = "suffix decoding"

    def __init__(self, prompt: Sequence[int], earlier: Places, width: int):
        self._earlier = earlier
        self._own = Places()
        self._own.extend(prompt)
        self._recent = list(prompt[-MAX_SUFFIX:])
        self._reply: list[int] = []
        self._width = width

    def commit(self, tokens: Sequence[int]) -> None:
        self._own.extend(tokens)
        self._reply += tokens
        self._recent = [*self._recent, *tokens][-MAX_SUFFIX:]

    def close(self) -> None:
        self._earlier.extend(self._reply)
        self._earlier.end()

    def propose(self) -> list[DraftPath]:
        best: Grown = {}
        for text in (self._earlier, self._own):
            for length, places in text.after(self._recent):
                nodes = min(self._width - 1, int(NODES_PER_TOKEN * length))
                found = grow(text.tokens, places, nodes)
                if sum(found.values()) > sum(best.values()):
                    best = found
        return [self._path(way, best) for way in leaves(best)]

    def _path(self, way: tuple[int, ...], tree: Grown) -> DraftPath:
        weights = tuple(tree[way[:i]] for i in range(1, len(way) + 1))
        return DraftPath(way, weights, (self.name,) * len(way))


def grow(tokens: Sequence[int], places: Sequence[int], nodes: int) -> Grown:
    """The ``nodes`` likeliest ways on from ``places``."""
    tree: Grown = {}
    heap: list[tuple[float, tuple[int, ...], list[int]]] = []

    def offer(way: tuple[int, ...], chance: float, at: Sequence[int]) -> None:
        following: dict[int, list[int]] = {}
        for place in at:
            if place < len(tokens) and tokens[place] != _END:
                following.setdefault(tokens[place], []).append(place + 1)
        for token, then in following.items():
            if (likely := chance * len(then) / len(at)) >= MIN_CHANCE:
                heapq.heappush(heap, (-likely, (*way, token), then))

    offer((), 1.0, places)
    while heap and len(tree) < nodes:
        negative, way, then = heapq.heappop(heap)
        tree[way] = -negative
        offer(way, -negative, then)
    return tree


def leaves(tree: Grown) -> Iterator[tuple[int, ...]]:
    inner = {way[:-1] for way in tree}
    return (way for way in tree if way not in inner)
