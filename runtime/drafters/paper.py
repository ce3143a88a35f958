"""Algorithm 1 of ToolSpec (arXiv 2604.13519) as written, to compare with: one source a step.

Retrieved text first, else what the schema forces, else (inside values and outside calls) the
static tree of Token Recycling.
"""

from __future__ import annotations

from sglang_toolspec.grammars.states import State
from sglang_toolspec.runtime.drafters.history import HistoryDrafter
from sglang_toolspec.runtime.drafters.recycling import RecyclingDrafter
from sglang_toolspec.runtime.drafters.schema import SchemaDrafter
from sglang_toolspec.runtime.tree import DraftPath

NODES = 64
"""Of a tree, root included."""
BY_RANK = (0.8, 0.4, 0.25, 0.18, 0.13, 0.1, 0.08, 0.06)
"""Shape of the static tree."""


class PaperDrafter:
    """One request; any of the three may be missing."""

    name = "paper"

    def __init__(
        self,
        retrieval: HistoryDrafter | None,
        schema: SchemaDrafter | None,
        recycling: RecyclingDrafter | None,
    ):
        self._retrieval = retrieval
        self._schema = schema
        self._recycling = recycling
        self._all = [drafter for drafter in (schema, retrieval, recycling) if drafter is not None]

    def commit(self, tokens: list[int]) -> None:
        for drafter in self._all:
            drafter.commit(tokens)

    def close(self) -> None:
        for drafter in self._all:
            drafter.close()

    def propose(self) -> list[DraftPath]:
        if self._retrieval is not None and (paths := self._retrieval.propose()):
            return paths
        if self._schema is not None and (paths := self._forced(self._schema)):
            return paths
        return self._recycling.propose() if self._recycling is not None else []

    def _forced(self, schema: SchemaDrafter) -> list[DraftPath]:
        """Only in tool names and parameter names does the schema say what comes next."""
        state = schema.automaton.state
        if state in (State.PARAMETER_VALUE, State.OTHER) and not schema.automaton.spans():
            return []
        return schema.propose()
