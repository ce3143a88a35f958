"""Corrects the chances that sources claim by how often they came true, while the server runs.

A claim is the chance of a node given that its parent was accepted. Claims of the same sources that
are about as sure, made where a reply stands alike (the automaton's state), share one record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from sglang_toolspec.runtime.tree import Claim, DraftTree, Judge, as_claimed

BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87, 0.93, 0.97, 0.999)
"""Upper bounds of the claims that share a record; the last record is of certain ones."""
PRIOR = 10.0
"""The claim itself counts as much as this many nodes."""
MEMORY = 2000.0
"""Nodes after which older ones count less; so an unused record goes back to its claims' worth."""
CERTAIN = 0.998
"""What is counted of a claim of 1: nothing is certain."""


class _Record:
    __slots__ = ("accepted", "tried")

    def __init__(self) -> None:
        self.tried = 0.0
        self.accepted = 0.0


class Calibration:
    """Mutable; shared by all requests of a server. It holds counts only, nothing of any text.

    ``exclusive``: of branches that one source claims only one can come true (``tree.merge``).
    """

    exclusive = True

    def __init__(self) -> None:
        self._records: dict[tuple[str, str, int], _Record] = {}

    def judge(self, situation: str) -> Judge:
        """What claims are worth where a reply stands in ``situation``."""

        def chance(claim: Claim) -> float:
            claimed = min(claim.chance, CERTAIN)
            record = self._records.get((claim.sources, situation, bisect_left(BOUNDS, claimed)))
            if record is None:
                return claimed
            return (record.accepted + PRIOR * claimed) / (record.tried + PRIOR)

        return chance

    def note(self, tree: DraftTree, accepted: Sequence[int], situation: str) -> None:
        """The target accepted the nodes ``accepted`` of ``tree``: their children were tried."""
        right = set(accepted)
        tried_below = {0, *right}
        for node in range(1, len(tree)):
            if tree.parents[node] in tried_below:
                sources, claimed = tree.claims[node]
                key = (sources, situation, bisect_left(BOUNDS, min(claimed, CERTAIN)))
                record = self._records.setdefault(key, _Record())
                if record.tried >= MEMORY:
                    record.tried /= 2
                    record.accepted /= 2
                record.tried += 1
                record.accepted += node in right

    def table(self) -> list[dict[str, Any]]:
        """What was found, for metrics: by source and situation, tried and accepted nodes."""
        sums: dict[tuple[str, str], list[float]] = {}
        for (source, situation, _), record in sorted(self._records.items()):
            entry = sums.setdefault((source, situation), [0.0, 0.0])
            entry[0] += record.tried
            entry[1] += record.accepted
        return [
            {"source": source, "situation": situation, "tried": round(tried), "accepted": round(accepted)}
            for (source, situation), (tried, accepted) in sums.items()
        ]


class Uncorrected(Calibration):
    """Claims are worth what they say, and nothing is learned: for drafters that are compared as they are."""

    exclusive = False

    def judge(self, situation: str) -> Judge:
        return as_claimed

    def note(self, tree: DraftTree, accepted: Sequence[int], situation: str) -> None:
        pass
