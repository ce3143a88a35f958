"""Prompt lookup decoding (Saxena, 2023): what followed the last tokens where they stand first.

The longest of three, two or one last tokens that stands earlier in the prompt or the reply decides; the ten
tokens behind its first place are the draft, if there are ten.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_toolspec.runtime.tree import DraftPath

LONGEST = 3
AHEAD = 10
SURE = 0.999
"""Weight of each token given those before it: all of a draft is verified."""


class PromptLookup:
    """One request; a ``Drafter``."""

    name = "prompt lookup"

    def __init__(self, prompt: Sequence[int]):
        self._tokens: list[int] = []
        self._first: dict[tuple[int, ...], int] = {}
        """Index after the first place of each gram of up to ``LONGEST`` tokens."""
        self.commit(prompt)

    def commit(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._tokens.append(token)
            after = len(self._tokens)
            for length in range(1, min(LONGEST, after) + 1):
                self._first.setdefault(tuple(self._tokens[-length:]), after)

    def close(self) -> None:
        """Nothing is remembered between requests."""

    def propose(self) -> list[DraftPath]:
        end = len(self._tokens)
        for length in range(min(LONGEST, end), 0, -1):
            after = self._first[tuple(self._tokens[-length:])]
            if after < end - length and after + AHEAD <= end:
                tokens = tuple(self._tokens[after : after + AHEAD])
                weights = tuple(SURE**i for i in range(1, AHEAD + 1))
                return [DraftPath(tokens, weights, (self.name,) * AHEAD)]
        return []
