"""One request's drafting state, from its first committed token to its last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.calibration import Calibration
from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.rests import Rests
from sglang_toolspec.runtime.tree import DraftPath, DraftTree, Legal, merge

MAX_PATHS = 64
"""Paths of one drafter that are looked at."""


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
    """``commit`` what the target accepted, ``draft`` what may follow, say what was ``sent`` of it.

    A drafter that raises is dropped for this request; the request goes on without it.
    ``calibration`` and ``rests`` are shared by the requests of a server; ``situation`` names where
    the reply stands.
    """

    def __init__(
        self,
        drafters: list[Drafter],
        vocab_size: int,
        faults: Faults,
        calibration: Calibration | None = None,
        rests: Rests | None = None,
        situation: Callable[[], str] = str,
    ):
        self._drafters = drafters
        self._vocab_size = vocab_size
        self._faults = faults
        self._calibration = calibration or Calibration()
        self._rests = rests or Rests()
        self._situation = situation
        self._committed = 0
        self._last = -1
        self._drafted_in = ""
        self._sent: DraftTree | None = None
        self._first_tokens: dict[str, set[int]] = {}
        """Of the paths of each drafter."""
        self.attribution = Attribution()

    @property
    def committed(self) -> int:
        """Number of reply tokens this session has followed."""
        return self._committed

    def commit(self, tokens: Sequence[int]) -> None:
        """Follow newly committed reply tokens, in order, each exactly once."""
        if not tokens:
            return
        self._account(tokens)
        self._committed += len(tokens)
        self._last = tokens[-1]
        for drafter in list(self._drafters):
            try:
                drafter.commit(list(tokens))
            except Exception as error:  # a drafter's fault may cost only its draft
                self._drop(drafter, error)

    def draft(self, budget: int, legal: Legal | None = None) -> DraftTree:
        """The tree below the last committed token, at most ``budget`` nodes with the root."""
        self._rests.step()
        self._drafted_in = self._situation()
        self._first_tokens = {}
        paths = [
            path
            for drafter in list(self._drafters)
            if self._rests.awake(drafter.name)
            for path in self._proposals(drafter)
        ]
        judge, exclusive = self._calibration.judge(self._drafted_in), self._calibration.exclusive
        return merge(self._last, paths, budget, self._vocab_size, judge, legal, exclusive)

    def _proposals(self, drafter: Drafter) -> list[DraftPath]:
        began = time.perf_counter()
        try:
            paths = list(islice(drafter.propose(), MAX_PATHS))
        except Exception as error:  # as above
            self._drop(drafter, error)
            return []
        self._rests.drafted(drafter.name, time.perf_counter() - began)
        if paths:
            self._first_tokens[drafter.name] = {path.tokens[0] for path in paths if path.tokens}
        return paths

    def sent(self, tree: DraftTree) -> None:
        """``tree``, the draft or a part of it, is what the target verifies next."""
        self._sent = tree

    def _account(self, tokens: Sequence[int]) -> None:
        """Learn from what became of the tree that was sent."""
        tree, self._sent = self._sent, None
        if tree is None:
            self.attribution.note_prefill(len(tokens))
            return
        accepted = tree.follow(tokens)
        self.attribution.note_step(tree, accepted, len(tokens), self._drafted_in)
        self._calibration.note(tree, accepted, self._drafted_in)
        for name, first in self._first_tokens.items():
            self._rests.outcome(name, tokens[0] in first)

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
        self._rests.fault(drafter.name)
