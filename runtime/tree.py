"""The draft tree: what one request proposes to the target in one verify step."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

MIN_NODE_WEIGHT = 0.02
"""Below this a node costs more of a verify step than it is likely to save."""


@dataclass(frozen=True)
class DraftPath:
    """Tokens that may follow the root, proposed by one drafter.

    ``weights[i]`` estimates the probability that ``tokens[: i + 1]`` are all accepted;
    it never grows along the path. ``sources[i]`` names who proposed ``tokens[i]``. ``claims[i]``
    is the chance that its source claimed for ``tokens[i]`` behind those before it
    (``calibration.Calibration`` sets it).
    """

    tokens: tuple[int, ...]
    weights: tuple[float, ...]
    sources: tuple[str, ...]
    claims: tuple[float, ...] = ()

    def first(self, length: int) -> DraftPath:
        """Its first ``length`` tokens."""
        if len(self.tokens) <= length:
            return self
        columns = (self.tokens, self.weights, self.sources, self.claims)
        return DraftPath(*(column[:length] for column in columns))


@dataclass
class DraftTree:
    """Nodes in an order where parents come first; node 0 is the root, the last committed token.

    ``parents[0]`` is ``-1``. ``sources[i]`` names the source of node ``i``, ``claims[i]`` is what it
    claimed (see ``DraftPath``).
    """

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    weights: list[float] = field(default_factory=lambda: [1.0])
    sources: list[str] = field(default_factory=lambda: [""])
    claims: list[float] = field(default_factory=lambda: [1.0])

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def root_only(cls, root: int) -> DraftTree:
        return cls([root])

    def add(self, token: int, parent: int, weight: float, source: str, claim: float = 1.0) -> None:
        self.tokens.append(token)
        self.parents.append(parent)
        self.weights.append(weight)
        self.sources.append(source)
        self.claims.append(claim)

    def first(self, width: int) -> DraftTree:
        """The ``width`` likeliest nodes."""
        if width >= len(self):
            return self
        columns = (self.tokens, self.parents, self.weights, self.sources, self.claims)
        return DraftTree(*(column[:width] for column in columns))

    def follow(self, tokens: Iterable[int]) -> list[int]:
        """Nodes that spell the start of ``tokens``, from a child of the root down: what a greedy
        target that writes ``tokens`` accepts."""
        children = {(parent, self.tokens[node]): node for node, parent in enumerate(self.parents) if node}
        followed, at = [], 0
        for token in tokens:
            node = children.get((at, token))
            if node is None:
                break
            followed.append(node)
            at = node
        return followed

    def depths(self) -> list[int]:
        depths = [0] * len(self)
        for i, parent in enumerate(self.parents[1:], start=1):
            depths[i] = depths[parent] + 1
        return depths


class _Node:
    __slots__ = ("children", "claim", "source", "weight")

    def __init__(self, weight: float, source: str, claim: float):
        self.weight = weight
        self.source = source
        self.claim = claim
        self.children: dict[int, _Node] = {}


def merge(root: int, paths: Iterable[DraftPath], budget: int, vocab_size: int) -> DraftTree:
    """The ``budget`` most likely nodes (root included) of all ``paths``, prefixes shared.

    A path is cut at its first id outside ``[0, vocab_size)``.
    """
    trie = _Node(1.0, "", 1.0)
    for path in paths:
        _insert(trie, path, vocab_size)
    tree = DraftTree.root_only(root)
    order = 0
    heap: list[tuple[float, int, int, int, _Node]] = []

    def offer(node: _Node, parent: int) -> None:
        nonlocal order
        for token, child in node.children.items():
            if child.weight >= MIN_NODE_WEIGHT:
                heapq.heappush(heap, (-child.weight, order, parent, token, child))
                order += 1

    offer(trie, 0)
    while heap and len(tree) < budget:
        negative, _, parent, token, node = heapq.heappop(heap)
        tree.add(token, parent, -negative, node.source, node.claim)
        offer(node, len(tree) - 1)
    return tree


def _insert(trie: _Node, path: DraftPath, vocab_size: int) -> None:
    node = trie
    claims = path.claims or (1.0,) * len(path.tokens)
    for token, claimed, source, claim in zip(path.tokens, path.weights, path.sources, claims, strict=True):
        if not 0 <= token < vocab_size:
            return
        weight = min(node.weight, claimed)
        child = node.children.get(token)
        if child is None:
            child = node.children[token] = _Node(weight, source, claim)
        elif weight > child.weight:
            child.weight, child.source, child.claim = weight, source, claim
        node = child
