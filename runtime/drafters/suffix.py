"""Copies what followed the same tokens before: in the prompt, in the reply, in earlier replies.

The longest match of the last tokens decides (prompt lookup, SGLang's NGRAM).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sglang_toolspec.runtime.tree import DraftPath

GRAM = 2
"""Tokens that are looked up; longer matches are found by going back from there."""
MAX_MATCH = 24
MAX_PLACES = 12
"""Places looked at for a pair of tokens, the latest."""
MAX_PATHS = 3
MAX_AHEAD = 16
PROMPT_TOKENS = 1 << 15
FADE = 0.9


class TokenText:
    """A growing text of tokens, indexed by pairs; at most twice ``capacity`` tokens are remembered.

    Mutable; shared by the requests of one tenant, or one request's own.
    """

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._tokens: list[int] = []
        self._latest: dict[tuple[int, int], int] = {}
        """Index of the last token of each pair, where the pair stands last."""
        self._before: list[int] = []
        """For each token, where the pair that it ends stands before; 0 for nowhere."""

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        first = max(1, len(self._tokens))
        self._tokens.extend(tokens)
        latest, before = self._latest, self._before
        if tokens and not before:
            before.append(0)
        for at, pair in enumerate(pairwise(self._tokens[first - 1 :]), first):
            before.append(latest.get(pair, 0))
            latest[pair] = at
        if len(self._tokens) > 2 * self._capacity:
            self._forget()

    def matches(self, recent: Sequence[int]) -> Iterator[tuple[int, int]]:
        """``(length of the match, index after it)`` for places like the end of ``recent``, the
        latest first."""
        tokens, before = self._tokens, self._before
        at = self._latest.get((recent[-2], recent[-1]), 0) if len(recent) >= GRAM else 0
        for _ in range(MAX_PLACES):
            if not at:
                return
            if at + 1 < len(tokens):
                yield _common_end(tokens, at + 1, recent), at + 1
            at = before[at]

    def between(self, start: int, end: int) -> list[int]:
        return self._tokens[start:end]

    def _forget(self) -> None:
        """Drop the older half, and start the index afresh."""
        kept = self._tokens[-self._capacity :]
        self._tokens, self._latest, self._before = [], {}, []
        self.extend(kept)


def _common_end(tokens: Sequence[int], after: int, recent: Sequence[int]) -> int:
    length = 0
    limit = min(after, len(recent), MAX_MATCH)
    while length < limit and tokens[after - 1 - length] == recent[-1 - length]:
        length += 1
    return length


class SuffixDrafter:
    """One request: its prompt and reply, and ``earlier`` replies of its tenant."""

    name = "suffix"

    def __init__(self, prompt: Sequence[int], earlier: TokenText):
        self._own = TokenText(capacity=PROMPT_TOKENS)
        self._own.extend(prompt[-PROMPT_TOKENS:])
        self._recent = list(prompt[-MAX_MATCH:])
        self._earlier = earlier
        self._reply: list[int] = []

    def close(self) -> None:
        """The reply has ended: later requests may copy from it."""
        self._earlier.extend(self._reply)
        self._reply = []

    def commit(self, tokens: list[int]) -> None:
        self._own.extend(tokens)
        self._reply += tokens
        self._recent = (self._recent + tokens)[-MAX_MATCH:]

    def propose(self) -> list[DraftPath]:
        found = [
            (length, order, text, after)
            for order, text in enumerate((self._earlier, self._own))
            for length, after in text.matches(self._recent)
        ]
        found.sort(key=lambda match: (-match[0], match[1]))
        paths: dict[tuple[int, ...], DraftPath] = {}
        for rank, (length, _, text, after) in enumerate(found[: 2 * MAX_PATHS]):
            tokens = tuple(text.between(after, after + MAX_AHEAD))
            if tokens and tokens not in paths:
                weights = _weights(length, rank, len(tokens))
                paths[tokens] = DraftPath(tokens, weights, (self.name,) * len(tokens))
        return list(paths.values())[:MAX_PATHS]


def _weights(length: int, rank: int, count: int) -> tuple[float, ...]:
    """Longer matches are likelier; the second best much less so."""
    first = min(0.9, 0.25 + 0.06 * length) / (1 + rank)
    return tuple(first * FADE**i for i in range(count))
