"""Who proposed what was accepted: per request, and summed over all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang_toolspec.runtime.tree import DraftTree

TARGET = "target"
"""The source of a token that the target wrote without a draft: the last one of each step."""
PREFILL = "prefill"
"""The source of a token that the prompt's prefill brought, without a verify step."""

MAX_STEPS = 4096
"""Steps that are kept one by one; later ones are counted only."""


@dataclass
class Attribution:
    """Draft tokens by source. Mutable; one per request, or a sum of them."""

    tokens: int = 0
    steps: int = 0
    proposed: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    steps_in: Counter[str] = field(default_factory=Counter)
    tokens_in: Counter[str] = field(default_factory=Counter)
    """Verify steps and their tokens by where the reply stood when they were drafted; only in sums."""
    resumes: bool = False
    """Of a request: whether it was retracted and prefilled again; what came before is counted elsewhere."""
    history: list[tuple[str, ...]] = field(default_factory=list)
    """Of a request, in order: for each step the source of each of its tokens, ``TARGET`` for the
    target's own, and ``(PREFILL,)`` for a prefill."""

    def __str__(self) -> str:
        return f"{self.tokens} tokens in {self.steps} verify steps, accept length {self.accept_length:.2f}"

    @property
    def accept_length(self) -> float:
        """Tokens by verify steps, as SGLang's ``spec_accept_length``."""
        return self.tokens / self.steps if self.steps else 0.0

    def note_prefill(self, tokens: int) -> None:
        """``tokens`` tokens came without a verify step; with several at first the request ``resumes``."""
        if tokens > 1 and not self.tokens:
            self.resumes, tokens = True, 1
        self.tokens += tokens
        self._keep((PREFILL,) * tokens)

    def note_step(self, tree: DraftTree, accepted: Sequence[int], tokens: int, situation: str = "") -> None:
        """A step committed ``tokens`` tokens, of which the first are the nodes ``accepted``; the reply
        stood in ``situation``, if that is known."""
        sources = [tree.sources[node] for node in accepted]
        self.tokens += tokens
        self.steps += 1
        self.proposed.update(tree.sources[1:])
        self.accepted.update(sources)
        if situation:
            self.steps_in[situation] += 1
            self.tokens_in[situation] += tokens
        self._keep((*sources, *[TARGET] * (tokens - len(sources))))

    def add(self, other: Attribution) -> None:
        """Sum; the steps one by one are not kept."""
        self.tokens += other.tokens
        self.steps += other.steps
        self.proposed.update(other.proposed)
        self.accepted.update(other.accepted)
        self.steps_in.update(other.steps_in)
        self.tokens_in.update(other.tokens_in)

    def append(self, other: Attribution) -> None:
        """``other`` goes on with the same reply."""
        self.add(other)
        for step in other.history:
            self._keep(step)

    def sums(self) -> dict[str, Any]:
        """As plain data, the likeliest sources first."""
        return {
            "tokens": self.tokens,
            "verify_steps": self.steps,
            "accept_length": round(self.accept_length, 3),
            "proposed": dict(self.proposed.most_common()),
            "accepted": dict(self.accepted.most_common()),
        }

    def to_json(self) -> dict[str, Any]:
        """``sums``, and under ``steps`` the source of each token."""
        return {**self.sums(), "steps": [list(step) for step in self.history]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Attribution:
        """The inverse of ``to_json``. Other data raise ``LookupError``, ``TypeError``, ``ValueError``."""
        return cls(
            tokens=int(value["tokens"]),
            steps=int(value["verify_steps"]),
            proposed=_counts(value["proposed"]),
            accepted=_counts(value["accepted"]),
            history=[tuple(str(source) for source in step) for step in value["steps"]],
        )

    def _keep(self, step: tuple[str, ...]) -> None:
        if len(self.history) < MAX_STEPS:
            self.history.append(step)


def _counts(value: Mapping[str, Any]) -> Counter[str]:
    return Counter({str(source): int(count) for source, count in dict(value).items()})
