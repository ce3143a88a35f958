"""Requests under a grammar mask: drafts that the mask allows, and text that it forces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_toolspec.runtime.drafters.schema import UNSURE
from sglang_toolspec.runtime.tokens import TokenCodec
from sglang_toolspec.runtime.tree import DraftPath, Legal

FORCED = 0.95
"""Chance that forced text is tokenised as we do."""
MAY_END = 0.5
"""Chance that a reply ends where its grammar is complete."""


def is_masked(grammar: Any) -> bool:
    """Whether a grammar masks the reply, now or once its thinking has ended (SGLang's
    ``ReasonerGrammarObject`` may hold none, and then only filters thinking)."""
    return getattr(grammar, "grammar", grammar) is not None


def may_think(grammar: Any) -> bool:
    """Whether a reply may hold thoughts: a mask forbids them, unless it waits for their end."""
    return not is_masked(grammar) or hasattr(grammar, "_grammar_active")


def matcher_of(grammar: Any) -> Any | None:
    """The xgrammar matcher behind a request's ``grammar``; ``None`` for other backends, and while
    a reasoning model still thinks (SGLang's ``ReasonerGrammarObject``)."""
    active = getattr(grammar, "_grammar_active", None)
    if active is not None:
        return matcher_of(grammar.grammar) if active() else None
    matcher = getattr(grammar, "matcher", None)
    return None if matcher is None or matcher.is_terminated() else matcher


def legality(grammar: Any) -> Legal | None:
    """What a request's ``grammar`` allows after its last token; ``None`` where it refuses nothing."""
    matcher = matcher_of(grammar)
    return None if matcher is None else Legality(matcher)


class Legality:
    """Whether a matcher accepts paths of tokens; works on a fork."""

    def __init__(self, matcher: Any):
        self._fork = matcher.fork()
        self._accepted: list[int] = []

    def __call__(self, path: Sequence[int]) -> bool:
        pairs = zip(self._accepted, path, strict=False)
        shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self._accepted), len(path)))
        if shared < len(self._accepted):
            self._fork.rollback(len(self._accepted) - shared)
            del self._accepted[shared:]
        for token in path[shared:]:
            if self._fork.is_terminated() or not self._fork.accept_token(token):
                return False
            self._accepted.append(token)
        return True


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
