"""Who proposed what was accepted: per request, and summed over all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sglang_toolspec.runtime.tree import DraftTree

TARGET = ""
"""The source of a token that the target wrote without a draft: the last one of each step."""

MAX_STEPS = 4096
"""Steps that are kept one by one; later ones are counted only."""


@dataclass
class Attribution:
    """Draft tokens by source. Mutable; one per request, or a sum of them."""

    tokens: int = 0
    steps: int = 0
    proposed: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    history: list[tuple[str, ...]] = field(default_factory=list)
    """For each step the source of each of its tokens, ``TARGET`` for the target's own."""

    @property
    def accept_length(self) -> float:
        """Tokens by verify steps, as SGLang's ``spec_accept_length``."""
        return self.tokens / self.steps if self.steps else 0.0

    def note_prefill(self, tokens: int) -> None:
        """Tokens that came without a verify step: the first of a reply."""
        self.tokens += tokens

    def note_step(self, tree: DraftTree, accepted: Sequence[int], tokens: int) -> None:
        """A step committed ``tokens`` tokens, of which the first are the nodes ``accepted``."""
        sources = [tree.sources[node] for node in accepted]
        self.tokens += tokens
        self.steps += 1
        self.proposed.update(tree.sources[1:])
        self.accepted.update(sources)
        if len(self.history) < MAX_STEPS:
            self.history.append((*sources, *[TARGET] * (tokens - len(sources))))

    def add(self, other: Attribution) -> None:
        """Sum; the steps one by one are not kept."""
        self.tokens += other.tokens
        self.steps += other.steps
        self.proposed.update(other.proposed)
        self.accepted.update(other.accepted)
