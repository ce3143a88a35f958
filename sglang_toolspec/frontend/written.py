"""What a model wrote in reply to ``gen(tools=…)``, and its calls."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from sglang.lang.ir import SglConstantText, SglExpr, SglExprList, SglRoleBegin, SglRoleEnd
from sglang.lang.tracer import StopTracing

from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend import arguments
from sglang_toolspec.frontend.offer import Offer
from sglang_toolspec.frontend.reading import Parsers, read_reply

_ENDING_S = 0.2
"""SGLang tells of an error a moment after its variables are there."""


class WrittenText(str):
    """A reply as the model wrote it, which knows what was offered."""

    offer: Offer
    parsers: Parsers

    @classmethod
    def of(cls, text: str, offer: Offer, parsers: Parsers) -> WrittenText:
        written = cls(text)
        written.offer, written.parsers = offer, parsers
        return written


class ToolCall:
    """One call. ``raw`` is the JSON text of its arguments."""

    def __init__(self, name: str, raw: str, offer: Offer):
        self.name = name
        self.raw = raw
        self._tool = offer.tools.by_name.get(name)
        self._described_by = offer.described_by.get(name)

    def __repr__(self) -> str:
        return f"{self.name}({self.raw})"

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Checked against the tool's schema; converted where the tool is a function or a class.

        Raises ``UserError`` with the place of the first fault: text that a model can be told.
        """
        return arguments.converted(self._given, self._known, self._described_by)

    def run(self) -> Any:
        """Call the function, or make an instance of the class; raises ``UserError`` as ``arguments``."""
        return arguments.run(self.arguments, self._given, self._known, self._described_by)

    @cached_property
    def _given(self) -> dict[str, Any]:
        return arguments.loaded(self.raw, self.name)

    @property
    def _known(self) -> Any:
        if self._tool is None:
            raise UserError(f"the reply calls {self.name!r}, which was not offered")
        return self._tool


def tool_calls(state: Any, name: str) -> list[Any]:
    """The calls in ``state[name]``, in order: a list of ``ToolCall``.

    Of several replies (``n``, or forks that were joined), a list of such lists. A program that streams
    runs beside its caller: read its text (``text_iter``) before its calls.
    """
    try:
        value = state[name]
    except KeyError:
        raise _ended(state) or UserError(f"the program has no {name!r}, or has not come to it yet") from None
    if isinstance(value, SglExpr):  # the program is traced, not run
        raise StopTracing
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, WrittenText) for text in texts):
        raise _ended(state) or UserError(f"{name!r} was not written by gen(tools=…)")
    return [_calls(text) for text in texts] if isinstance(value, list) else _calls(value)


def _ended(state: Any) -> Exception | None:
    """Why the program has ended before its time, if it has."""
    executor = state.stream_executor
    if executor.use_thread:
        executor.worker.join(_ENDING_S)
    error: Exception | None = executor.error_
    return error


def _calls(text: WrittenText) -> list[ToolCall]:
    if text.parsers.tool_call is None and not text.offer.forced:
        raise UserError("the server has no tool-call parser; start it with --tool-call-parser")
    _, found = read_reply(text, text.offer, text.parsers)
    return [ToolCall(called, raw, text.offer) for called, raw in found]


def tool_result(result: Any) -> SglExpr:
    """The result of a call as a message of the role ``tool``; results stand in the order of the calls."""
    if isinstance(result, BaseModel):
        text = result.model_dump_json()
    else:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    return SglExprList([SglRoleBegin("tool"), SglConstantText(text), SglRoleEnd("tool")])
