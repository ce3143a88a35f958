"""What a drafter is."""

from __future__ import annotations

from typing import Protocol

from sglang_toolspec.runtime.tree import DraftPath


class Drafter(Protocol):
    """One source of drafts for one request; mutable, never shared."""

    name: str

    def commit(self, tokens: list[int]) -> None:
        """Follow tokens that the target has committed to the reply."""

    def close(self) -> None:
        """The reply has ended, or its request is gone. Nothing is asked afterwards."""

    def propose(self) -> list[DraftPath]:
        """Paths that may follow the last committed token; empty when nothing is known."""
