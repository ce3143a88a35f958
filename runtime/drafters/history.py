"""Drafts from past calls of similar prompts (paper, section 3.3): the replies of the nearest
neighbours of the prompt's hidden state, continued where they stand like this reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from sglang_toolspec.runtime.drafters.suffix import MAX_MATCH, TokenText
from sglang_toolspec.runtime.history.entry import Entry
from sglang_toolspec.runtime.retrieval import Retrieval
from sglang_toolspec.runtime.tree import DraftPath


class Recall(Protocol):
    """What one request may ask of its tenant's history, and leave there."""

    def similar(self) -> Sequence[tuple[Entry, float]]:
        """Entry replies to similar prompts and the cosine of each, best first."""

    def credit(self, past: Entry, accepted: int) -> None:
        """``accepted`` tokens that ``past`` proposed were right."""

    def keep(self, tokens: Sequence[int]) -> None:
        """The reply has ended as it should; it may help later requests."""


WHOLE_AHEAD = 48
MAX_REPLY = 4096
SAME_PROMPT = 0.9995
"""Cosine from which two prompts are taken as the same."""
SAME, OTHER = 0.97, 0.5
"""Chance that the reply to the same prompt, and to another one, is the same from its start."""
FADE = 0.98


class _Neighbour(NamedTuple):
    past: Entry
    tokens: tuple[int, ...]
    cosine: float


class HistoryDrafter:
    """One request. ``complete`` tells whether a reply ended by itself and holds a call: only such
    replies are kept."""

    name = "history"

    def __init__(
        self,
        recall: Recall,
        complete: Callable[[Sequence[int]], bool],
        retrieval: Retrieval,
    ):
        self._recall = recall
        self._complete = complete
        self._shortest, self._longest = retrieval.suffixes
        self._ahead = retrieval.continuations
        self._reply: list[int] = []
        neighbours = [_Neighbour(p, tuple(map(int, p.tokens[:MAX_REPLY])), c) for p, c in recall.similar()]
        self._agreeing = neighbours if retrieval.whole else []
        """Those whose replies began like this one."""
        self._text = TokenText(capacity=len(neighbours) * MAX_REPLY)
        self._ends: list[tuple[int, Entry]] = []
        """Where in ``_text`` each neighbour's reply ends."""
        for neighbour in reversed(neighbours):  # what was added last is found first
            self._text.extend(neighbour.tokens)
            self._ends.append((len(self._text), neighbour.past))
        self._proposed: dict[tuple[int, ...], Entry] = {}

    def commit(self, tokens: list[int]) -> None:
        for path, past in self._proposed.items():
            self._recall.credit(past, _common_start(path, tokens))
        self._proposed = {}
        at, end, new = len(self._reply), len(self._reply) + len(tokens), tuple(tokens)
        self._agreeing = [n for n in self._agreeing if n.tokens[at:end] == new]
        self._reply += tokens

    def close(self) -> None:
        if self._complete(self._reply):
            self._recall.keep(self._reply)

    def propose(self) -> list[DraftPath]:
        found: dict[tuple[int, ...], tuple[float, Entry]] = {}
        for tokens, chance, past in self._whole():
            found.setdefault(tokens, (chance, past))
        for tokens, chance, past in self._continued():
            found.setdefault(tokens[: self._ahead[min(len(found), len(self._ahead) - 1)]], (chance, past))
        best = [item for item in found.items() if item[0]][: len(self._ahead)]
        self._proposed = {tokens: past for tokens, (_, past) in best}
        return [self._path(t, chance / (1 + rank)) for rank, (t, (chance, _)) in enumerate(best)]

    def _whole(self) -> Iterator[tuple[tuple[int, ...], float, Entry]]:
        """The rest of replies that began like this one; surer the more they have in common."""
        done = len(self._reply)
        for neighbour in self._agreeing:
            doubt = 1 - (SAME if neighbour.cosine >= SAME_PROMPT else OTHER)
            chance = 1 - doubt * 8 / (8 + done)
            yield neighbour.tokens[done : done + WHOLE_AHEAD], chance, neighbour.past

    def _continued(self) -> Iterator[tuple[tuple[int, ...], float, Entry]]:
        """What followed the last tokens in past replies, the longest match first."""
        matches = [
            (min(length, self._longest), after)
            for length, after in self._text.matches(self._reply[-MAX_MATCH:])
            if length >= self._shortest
        ]
        for length, after in sorted(matches, key=lambda match: -match[0]):
            end, past = next(entry for entry in self._ends if after < entry[0])
            chance = min(0.9, 0.3 + 0.08 * length)
            yield tuple(self._text.between(after, min(after + max(self._ahead), end))), chance, past

    def _path(self, tokens: tuple[int, ...], chance: float) -> DraftPath:
        weights = tuple(chance * FADE**i for i in range(len(tokens)))
        return DraftPath(tokens, weights, (self.name,) * len(tokens))


def _common_start(path: Sequence[int], tokens: Sequence[int]) -> int:
    pairs = zip(path, tokens, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(path), len(tokens)))
