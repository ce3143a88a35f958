"""The schema drafter: forced text and finite choices of the request's tools (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sglang_toolspec.grammars.automaton import Continuation, ToolAutomaton
from sglang_toolspec.grammars.compile import GrammarCache
from sglang_toolspec.grammars.formats import Dialect
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.tokens import TokenCodec
from sglang_toolspec.runtime.tree import DraftPath

MAX_PATH_TOKENS = 48


class SchemaDrafter:
    """Drives a ``ToolAutomaton`` with tokens.

    ``literal`` says that a grammar mask is on, which keeps special tokens out of the text.
    Grammars compile in the background; until they are ready the drafter keeps the text
    and proposes nothing, then catches up.
    """

    name = "schema"

    def __init__(
        self,
        tools: ToolSet,
        dialects: tuple[Dialect, ...],
        cache: GrammarCache,
        codec: TokenCodec,
        prior: Mapping[str, float],
        literal: bool = False,
        on_dialect: Callable[[str], None] = lambda name: None,
    ):
        self._tools = tools
        self._dialects = dialects
        self._cache = cache
        self._codec = codec
        self._prior = prior
        self._literal = literal
        self._on_dialect = on_dialect
        self._pending: list[bytes] = []
        self._automaton: ToolAutomaton | None = None
        self._ended = False
        cache.prepare(tools, dialects)

    @property
    def automaton(self) -> ToolAutomaton | None:
        """``None`` until the first grammar of the tool set is compiled."""
        return self._automaton

    def commit(self, tokens: list[int]) -> None:
        for token in tokens:
            self._ended = self._ended or token in self._codec.stop_ids
            self._pending.append(self._codec.text_of(token))
        self._catch_up()

    def propose(self) -> list[DraftPath]:
        self._catch_up()
        if self._automaton is None or self._ended:
            return []
        return [path for c in self._automaton.continuations() if (path := self._path(c))]

    def _catch_up(self) -> None:
        if self._ended and self._automaton is None:
            return
        if self._automaton is None:
            ready = [g for d in self._dialects if (g := self._cache.get(self._tools, d))]
            if len(ready) < len(self._dialects) and not self._cache.settled(self._tools, self._dialects):
                return
            if not ready:
                # Uncompilable, or already evicted: a later start would begin mid-reply.
                self._ended = True
                self._pending.clear()
                return
            self._automaton = ToolAutomaton(self._tools, ready, self._prior)
        before = self._automaton.calls_done
        for data in self._pending:
            self._automaton.advance(data)
        self._pending.clear()
        if self._automaton.calls_done > before and self._automaton.dialect_seen:
            self._on_dialect(self._automaton.dialect_seen)

    def _path(self, continuation: Continuation) -> DraftPath | None:
        tokens = self._codec.encode(continuation.text, self._literal) if continuation.text else ()
        weights = [continuation.weight] * len(tokens)
        if continuation.ends and self._codec.end_of_turn is not None:
            tokens = (*tokens, self._codec.end_of_turn)
            weights.append(continuation.weight * 0.9)
        if not tokens:
            return None
        return DraftPath(tokens[:MAX_PATH_TOKENS], tuple(weights[:MAX_PATH_TOKENS]), self.name)
