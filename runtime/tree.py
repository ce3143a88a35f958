"""The draft tree: what one request proposes to the target in one verify step."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

DEPTH_DECAY = 0.995
"""A node is a little less likely than its path claims for every level it lies deeper."""

MIN_NODE_WEIGHT = 0.02
"""Below this a node costs more of a verify step than it is likely to save."""

Legal = Callable[[Sequence[int]], bool]
"""Whether tokens may follow the root; asked only of paths whose parent may."""


@dataclass(frozen=True)
class DraftPath:
    """Tokens that may follow the root, proposed by one drafter.

    ``weights[i]`` estimates the probability that ``tokens[: i + 1]`` are all accepted;
    it never grows along the path. ``sources[i]`` names who proposed ``tokens[i]``.
    """

    tokens: tuple[int, ...]
    weights: tuple[float, ...]
    sources: tuple[str, ...]


@dataclass
class DraftTree:
    """Nodes in an order where parents come first; node 0 is the root, the last committed token.

    ``parents[0]`` is ``-1``. ``sources[i]`` names the drafter of node ``i``.
    """

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    weights: list[float] = field(default_factory=lambda: [1.0])
    sources: list[str] = field(default_factory=lambda: [""])

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def root_only(cls, root: int) -> DraftTree:
        return cls([root])

    def add(self, token: int, parent: int, weight: float, source: str) -> None:
        self.tokens.append(token)
        self.parents.append(parent)
        self.weights.append(weight)
        self.sources.append(source)

    def first(self, width: int) -> DraftTree:
        """The ``width`` likeliest nodes."""
        if width >= len(self):
            return self
        return DraftTree(
            self.tokens[:width], self.parents[:width], self.weights[:width], self.sources[:width]
        )

    def depths(self) -> list[int]:
        depths = [0] * len(self)
        for i, parent in enumerate(self.parents[1:], start=1):
            depths[i] = depths[parent] + 1
        return depths


class _Node:
    __slots__ = ("children", "source", "weight")

    def __init__(self, weight: float, source: str):
        self.weight = weight
        self.source = source
        self.children: dict[int, _Node] = {}


def merge(
    root: int, paths: Iterable[DraftPath], budget: int, vocab_size: int, legal: Legal | None = None
) -> DraftTree:
    """The ``budget`` most likely nodes (root included) of all ``paths``, prefixes shared.

    A path is cut at its first id outside ``[0, vocab_size)``, and at the first that is not
    ``legal``.
    """
    trie = _Node(1.0, "")
    for path in paths:
        _insert(trie, path, vocab_size)
    tree = DraftTree.root_only(root)
    order = 0
    heap: list[tuple[float, int, int, int, _Node]] = []
    ways: list[tuple[int, ...]] = [()]  # the tokens from the root to each node

    def offer(node: _Node, parent: int) -> None:
        nonlocal order
        for token, child in node.children.items():
            if child.weight >= MIN_NODE_WEIGHT:
                heapq.heappush(heap, (-child.weight, order, parent, token, child))
                order += 1

    offer(trie, 0)
    while heap and len(tree) < budget:
        negative, _, parent, token, node = heapq.heappop(heap)
        if legal is not None:
            way = (*ways[parent], token)
            if not legal(way):
                continue
            ways.append(way)
        tree.add(token, parent, -negative, node.source)
        offer(node, len(tree) - 1)
    return tree


def _insert(trie: _Node, path: DraftPath, vocab_size: int) -> None:
    node, decay = trie, 1.0
    for token, claimed, source in zip(path.tokens, path.weights, path.sources, strict=True):
        if not 0 <= token < vocab_size:
            return
        decay *= DEPTH_DECAY
        weight = min(node.weight, claimed * decay)
        child = node.children.get(token)
        if child is None:
            child = node.children[token] = _Node(weight, source)
        elif weight > child.weight:
            child.weight, child.source = weight, source
        node = child
