"""One request's drafting state, from its first committed token to its last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.tree import DraftPath, DraftTree, Legal, merge


@dataclass
class Faults:
    """Drafting faults by reason. A reason is reported the first time only."""

    report: Callable[[str, BaseException], None]
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, where: str, error: BaseException) -> None:
        reason = f"{where}: {type(error).__name__}"
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            self.report(reason, error)


class Session:
    """``commit`` what the target accepted, ``draft`` what may follow.

    A drafter that raises is dropped for this request; the request goes on without it.
    """

    def __init__(self, drafters: list[Drafter], vocab_size: int, faults: Faults):
        self._drafters = drafters
        self._vocab_size = vocab_size
        self._faults = faults
        self._committed = 0
        self._last = -1

    @property
    def committed(self) -> int:
        """Number of reply tokens this session has followed."""
        return self._committed

    def commit(self, tokens: Sequence[int]) -> None:
        """Follow newly committed reply tokens, in order, each exactly once."""
        if not tokens:
            return
        self._committed += len(tokens)
        self._last = tokens[-1]
        for drafter in list(self._drafters):
            try:
                drafter.commit(list(tokens))
            except Exception as error:  # a drafter's fault may cost only its draft
                self._drop(drafter, error)

    def draft(self, budget: int, legal: Legal | None = None) -> DraftTree:
        """The tree below the last committed token, at most ``budget`` nodes with the root."""
        paths: list[DraftPath] = []
        for drafter in list(self._drafters):
            try:
                paths.extend(drafter.propose())
            except Exception as error:  # as above
                self._drop(drafter, error)
        return merge(self._last, paths, budget, self._vocab_size, legal)

    def close(self) -> None:
        """The request has left the batch."""
        for drafter in list(self._drafters):
            try:
                drafter.close()
            except Exception as error:  # as above
                self._drop(drafter, error)

    def _drop(self, drafter: Drafter, error: Exception) -> None:
        self._drafters.remove(drafter)
        self._faults.note(drafter.name, error)
