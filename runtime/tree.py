"""The draft tree: what one request proposes to the target in one verify step."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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


class Claim(NamedTuple):
    """What was claimed of a node: by whom (one source, or several joined by ``+``), and the chance that
    it is accepted if its parent is."""

    sources: str
    chance: float


NO_CLAIM = Claim("", 1.0)
Judge = Callable[[Claim], float]
"""What a claim is worth: the chance that it comes true."""


@dataclass
class DraftTree:
    """Nodes in an order where parents come first; node 0 is the root, the last committed token.

    ``parents[0]`` is ``-1``. ``weights[i]`` is the chance that node ``i`` is accepted. ``sources[i]``
    names who was surest of it, ``claims[i]`` all that was claimed.
    """

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    weights: list[float] = field(default_factory=lambda: [1.0])
    sources: list[str] = field(default_factory=lambda: [""])
    claims: list[Claim] = field(default_factory=lambda: [NO_CLAIM])

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def root_only(cls, root: int) -> DraftTree:
        return cls([root])

    def add(self, token: int, parent: int, weight: float, source: str, claim: Claim = NO_CLAIM) -> None:
        self.tokens.append(token)
        self.parents.append(parent)
        self.weights.append(weight)
        self.sources.append(source)
        self.claims.append(claim)

    def first(self, width: int) -> DraftTree:
        """The ``width`` likeliest nodes."""
        if width >= len(self):
            return self
        return DraftTree(
            self.tokens[:width],
            self.parents[:width],
            self.weights[:width],
            self.sources[:width],
            self.claims[:width],
        )

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


def as_claimed(claim: Claim) -> float:
    return claim.chance


def merge(
    root: int,
    paths: Iterable[DraftPath],
    budget: int,
    vocab_size: int,
    judge: Judge = as_claimed,
    legal: Legal | None = None,
    exclusive: bool = True,
) -> DraftTree:
    """The ``budget`` most likely nodes (root included) of all ``paths``, prefixes shared.

    ``exclusive``: what one source gives to the branches of a node are chances, so they sum to at most 1;
    else ranks, as of a static tree. A path is cut at its first id outside ``[0, vocab_size)``, and at the
    first that is not ``legal``.
    """
    tree = DraftTree.root_only(root)
    order = 0
    heap: list[tuple[float, int, int, int, list[DraftPath], str, Claim]] = []
    ways: list[tuple[int, ...]] = [()]  # the tokens from the root to each node
    depths = [0]

    def offer(paths: list[DraftPath], parent: int, weight: float) -> None:
        nonlocal order
        depth = depths[parent]
        by_token = _by_next(paths, depth)
        wholes = _wholes(by_token.values(), depth) if exclusive and len(by_token) > 1 else None
        for token, through in by_token.items():
            if 0 <= token < vocab_size:
                surest, claim = _claimed(through, depth, wholes)
                likely = weight * judge(claim)
                if likely >= MIN_NODE_WEIGHT:
                    heapq.heappush(heap, (-likely, order, parent, token, through, surest, claim))
                    order += 1

    offer(list(paths), 0, 1.0)
    while heap and len(depths) < budget:
        negative, _, parent, token, through, surest, claim = heapq.heappop(heap)
        if legal is not None:
            way = (*ways[parent], token)
            if not legal(way):
                continue
            ways.append(way)
        tree.add(token, parent, -negative, surest, claim)
        depths.append(depths[parent] + 1)
        offer(through, len(depths) - 1, -negative)
    return tree


def _by_next(paths: list[DraftPath], depth: int) -> dict[int, list[DraftPath]]:
    """``paths``, which are the same before ``depth``, by their token there."""
    if len(paths) == 1:  # most of a tree
        return {paths[0].tokens[depth]: paths} if depth < len(paths[0].tokens) else {}
    by_token: dict[int, list[DraftPath]] = {}
    for path in paths:
        if depth < len(path.tokens):
            by_token.setdefault(path.tokens[depth], []).append(path)
    return by_token


def _wholes(branches: Iterable[list[DraftPath]], depth: int) -> dict[str, float]:
    """By source, the weight of which its weights at ``depth`` are parts, where ``branches`` have different
    tokens there: its weight before, or the sum of its branches where that is more.

    Only one branch can be right, but of those that begin alike each has its own low weight from the start.
    """
    before: dict[str, float] = {}
    sums: dict[str, float] = {}
    for paths in branches:
        surest: dict[str, float] = {}
        for path in paths:
            source = path.sources[depth]
            surest[source] = max(surest.get(source, 0.0), path.weights[depth])
            before[source] = max(before.get(source, 0.0), path.weights[depth - 1] if depth else 1.0)
        for source, weight in surest.items():
            sums[source] = sums.get(source, 0.0) + weight
    return {source: max(before[source], weight) for source, weight in sums.items()}


def _claimed(paths: list[DraftPath], depth: int, wholes: Mapping[str, float] | None) -> tuple[str, Claim]:
    """The source that is surest of the token of ``paths`` at ``depth``, and what all say of it.
    Sources that agree are surer than each alone. ``wholes``: where they might branch, of what their
    weights are parts."""
    if len(paths) == 1:
        source = paths[0].sources[depth]
        return source, Claim(source, _chance(paths[0], depth, wholes))
    said: dict[str, float] = {}
    source, weight = "", -1.0
    for path in paths:
        if path.weights[depth] == weight and path.sources[depth] == source:
            continue  # another way on from the same draft: nothing new is said here
        source, weight = path.sources[depth], path.weights[depth]
        chance = _chance(path, depth, wholes)
        if chance > said.get(source, -1.0):
            said[source] = chance
    if len(said) == 1:
        return source, Claim(source, said[source])
    doubt = 1.0
    for chance in said.values():
        doubt *= 1.0 - chance
    return max(said, key=said.__getitem__), Claim("+".join(sorted(said)), 1.0 - doubt)


def _chance(path: DraftPath, depth: int, wholes: Mapping[str, float] | None) -> float:
    """Of the token at ``depth``, if all before it are accepted."""
    alone = path.weights[depth - 1] if depth else 1.0
    before = wholes[path.sources[depth]] if wholes else alone
    return min(1.0, path.weights[depth] / before) if before > 0 else 0.0  # a faulty drafter's may grow
