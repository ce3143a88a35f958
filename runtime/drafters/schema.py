"""The schema drafter: forced text and finite choices of the request's tools (paper, section 3.2)."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.growth import Continuation
from sglang_toolspec.runtime.tokens import TokenCodec
from sglang_toolspec.runtime.tree import DraftPath

MAX_PATH_TOKENS = 64
UNSURE = 0.7
"""Chance that a draft's last token is not written as a longer one with what follows."""
ENDS = 0.9
"""Chance that a reply ends where a continuation says that it may."""


class SchemaDrafter:
    """Drives a ``ToolAutomaton`` with tokens.

    ``literal`` says that a grammar mask is on, which keeps special tokens out of the text.
    """

    name = "schema"

    def __init__(self, automaton: ToolAutomaton, codec: TokenCodec, literal: bool = False):
        self.automaton = automaton
        self._codec = codec
        self._literal = literal
        self._ended = False

    def commit(self, tokens: list[int]) -> None:
        self._ended = self._ended or any(token in self._codec.stop_ids for token in tokens)
        self.automaton.advance(b"".join(map(self._codec.text_of, tokens)))

    def close(self) -> None:
        """Habits and values were noted as they were written."""

    def propose(self) -> list[DraftPath]:
        if self._ended:
            return []
        return [path for c in self.automaton.continuations() if (path := self._path(c))]

    def _path(self, continuation: Continuation) -> DraftPath | None:
        text = continuation.text
        tokens = self._codec.encode(text, self._literal) if text else ()
        weights, sources = self._by_token(continuation, tokens)
        if weights and not continuation.ends:
            weights[-1] *= UNSURE
        if continuation.ends and self._codec.end_of_turn is not None:
            tokens = (*tokens, self._codec.end_of_turn)
            weights.append(continuation.weight * ENDS)
            sources.append(self.name)
        if not tokens:
            return None
        n = MAX_PATH_TOKENS
        return DraftPath(tokens[:n], tuple(weights[:n]), tuple(sources[:n]))

    def _by_token(self, continuation: Continuation, tokens: tuple[int, ...]) -> tuple[list[float], list[str]]:
        """Weight and source of each token: those of the part in which it ends."""
        weights: list[float] = []
        sources: list[str] = []
        ends = list(accumulate(map(len, map(self._codec.text_of, tokens))))
        at = 0
        for part in continuation.parts:
            at += len(part.text.encode())
            count = bisect_right(ends, at) - len(weights)
            weights += [part.weight] * count
            sources += [part.source or self.name] * count
        return weights, sources
