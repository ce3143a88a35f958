"""What ``sglang-toolspec compile`` finds out about a set of tools, as plain data."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from sglang_toolspec.grammars.explain import Explained, explain
from sglang_toolspec.grammars.formats import Format
from sglang_toolspec.grammars.layout import Layout, Preset
from sglang_toolspec.grammars.piece import Counts
from sglang_toolspec.grammars.tools import ToolSet


@dataclass(frozen=True)
class Unenforceable:
    """A keyword that no mask can enforce; ``pointer`` is a JSON pointer into the tool's schema."""

    tool: str
    pointer: str
    keyword: str
    why: str


@dataclass(frozen=True)
class Compiled:
    """The xgrammar draft grammar of the tools; ``skipped`` says why there is none."""

    ms: float | None = None
    bytes: int | None = None
    skipped: str = ""


@dataclass(frozen=True)
class Report:
    """Tools in one format and layout; what takes time is found out when it is asked."""

    tools: ToolSet
    form: Format
    preset: Preset | None = None
    """``None`` stands for the format's own."""

    @cached_property
    def calls(self) -> tuple[Explained, ...]:
        return explain(self.tools, self.form, None if self.preset is None else Layout(self.preset))

    @property
    def usable(self) -> bool:
        """Whether calls of every tool can be drafted from the first character to the last."""
        return bool(self.calls) and all(call.complete for call in self.calls)

    @property
    def typical(self) -> Counts:
        """Over one typical call of each tool."""
        return sum((call.typical for call in self.calls), Counts())

    @cached_property
    def unenforceable(self) -> tuple[Unenforceable, ...]:
        from sglang_toolspec.grammars.enforce import unenforceable  # loads xgrammar

        return tuple(
            Unenforceable(tool.name, found.pointer, found.keyword, found.why)
            for tool in self.tools.tools
            for found in unenforceable(tool.parameters)
        )

    @cached_property
    def compiled(self) -> Compiled:
        from sglang_toolspec.grammars.compile import compiled, draft_grammar  # loads xgrammar

        if not self.tools.tools:
            return Compiled(skipped="there are no tools")
        began = time.perf_counter()
        try:
            grammar = compiled(draft_grammar(self.tools, self.form, self.preset or self.form.layout))
        except Exception as error:  # a report says what went wrong, whatever it is
            return Compiled(skipped=f"{type(error).__name__}: {error}")
        ms = 1000 * (time.perf_counter() - began)
        return Compiled(round(ms, 2), grammar.memory_size_bytes)

    def to_json(self) -> dict[str, Any]:
        return {
            "usable": self.usable,
            "format": self.form.name,
            "typical": asdict(self.typical),
            "tools": [
                {"name": call.tool.name, "complete": call.complete, **asdict(call.typical)}
                for call in self.calls
            ],
            "unenforceable": [asdict(found) for found in self.unenforceable],
            "compile": asdict(self.compiled),
        }
