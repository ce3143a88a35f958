"""One request's access to the history of its tenant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.runtime.history.entry import Entry
from sglang_toolspec.runtime.history.history import History


@dataclass(frozen=True)
class TenantRecall:
    """Implements ``drafters.history.Recall``.

    ``vector`` float32 ``[dimension]`` is the prompt's; ``tools`` are the names that may be called;
    ``text_of`` decodes a reply. ``neighbours`` is the paper's k.
    """

    history: History
    tenant: str
    vector: NDArray[np.float32]
    tools: Iterable[str]
    text_of: Callable[[Sequence[int]], str]
    neighbours: int

    def similar(self) -> list[tuple[Entry, float]]:
        found = self.history.similar(self.tenant, self.vector, self.neighbours)
        return [(neighbour.entry, neighbour.similarity) for neighbour in found]

    def credit(self, past: Entry, accepted: int) -> None:
        self.history.credit(past, accepted)

    def keep(self, tokens: Sequence[int]) -> None:
        text = self.text_of(tokens)
        called = [name for name in self.tools if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
        self.history.add(self.tenant, self.vector, tokens, called)
