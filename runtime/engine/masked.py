"""Requests under a grammar mask: drafts that the mask allows, and text that it forces."""

from __future__ import annotations

from typing import Any

from sglang_toolspec.runtime.drafters.schema import UNSURE
from sglang_toolspec.runtime.tokens import TokenCodec
from sglang_toolspec.runtime.tree import DraftPath, DraftTree

FORCED = 0.95
"""Chance that forced text is tokenised as we do."""
MAY_END = 0.5
"""Chance that a reply ends where its grammar is complete."""


def is_masked(grammar: Any) -> bool:
    """Whether a grammar masks the reply, now or once its thinking has ended (SGLang's
    ``ReasonerGrammarObject`` may hold none, and then only filters thinking)."""
    return getattr(grammar, "grammar", grammar) is not None


def matcher_of(grammar: Any) -> Any | None:
    """The xgrammar matcher behind a request's ``grammar``; ``None`` for other backends, and while
    a reasoning model still thinks (SGLang's ``ReasonerGrammarObject``)."""
    active = getattr(grammar, "_grammar_active", None)
    if active is not None:
        return matcher_of(grammar.grammar) if active() else None
    matcher = getattr(grammar, "matcher", None)
    return None if matcher is None or matcher.is_terminated() else matcher


def legal_nodes(tree: DraftTree, matcher: Any) -> DraftTree:
    """``tree`` without the nodes that ``matcher`` refuses after the root; works on a fork."""
    legal = _legal(tree, matcher.fork())
    if len(legal) == len(tree):
        return tree
    kept, places = DraftTree.root_only(tree.tokens[0]), {0: 0}
    for node in range(1, len(tree)):
        if node in legal:
            places[node] = len(kept)
            parent = places[tree.parents[node]]
            kept.add(tree.tokens[node], parent, tree.weights[node], tree.sources[node], tree.claims[node])
    return kept


def _legal(tree: DraftTree, fork: Any) -> set[int]:
    """Nodes that ``fork`` accepts along their paths, the root included."""
    depths, legal, at = tree.depths(), {0}, 0
    for node in _depth_first(tree):
        parent = tree.parents[node]
        if parent not in legal:
            continue
        if depths[at] > depths[parent]:
            fork.rollback(depths[at] - depths[parent])
        at = parent
        if not fork.is_terminated() and fork.accept_token(tree.tokens[node]):
            legal.add(node)
            at = node
    return legal


def _depth_first(tree: DraftTree) -> list[int]:
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        children.setdefault(parent, []).append(node)
    order, stack = [], children.get(0, [])[::-1]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += children.get(node, [])[::-1]
    return order


class ForcedTextDrafter:
    """Text that a request's own grammar forces (``regex``, ``ebnf``, ``structural_tag``)."""

    name = "grammar"

    def __init__(self, req: Any, codec: TokenCodec):
        self._req = req
        self._codec = codec

    def commit(self, tokens: list[int]) -> None:
        """Nothing to follow: SGLang advances the request's matcher."""

    def close(self) -> None:
        """Nothing to keep."""

    def propose(self) -> list[DraftPath]:
        matcher = matcher_of(self._req.grammar)
        if matcher is None:
            return []
        tokens = self._codec.encode(_forced(matcher), True)
        weights = [FORCED] * len(tokens)
        weights[-1:] = [FORCED * UNSURE] * bool(tokens)  # what follows may be written with it
        fork = matcher.fork()
        end = self._codec.end_of_turn
        if end is not None and all(map(fork.accept_token, tokens)) and fork.is_completed():
            tokens, weights = (*tokens, end), [*weights, MAY_END]
        sources = (self.name,) * len(tokens)
        return [DraftPath(tokens, tuple(weights), sources)] if tokens else []


def _forced(matcher: Any) -> str:
    try:
        return str(matcher.find_jump_forward_string())
    except UnicodeDecodeError as error:
        # Choices that share the first bytes of a character force a part of it.
        return bytes(error.object[: error.start]).decode()
