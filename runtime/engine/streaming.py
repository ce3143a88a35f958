"""Tool calls of a streamed reply, the same however its text is cut.

SGLang's streaming parsers expect a few characters at a time: when a long accepted draft brings a
whole call, or two, they lose arguments, calls or the text before (docs/upstream.md). For the parsers
whose formats we draft, the reply is read by ``call_readers`` instead; all others are left alone.
The functions below run AROUND the methods of their names, of ``FunctionCallParser`` and ``JsonArrayParser``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sglang.srt.environ import envs
from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem

from sglang_toolspec.runtime.engine.call_readers import BEGINS, FORWARDS_UNKNOWN, READERS
from sglang_toolspec.runtime.engine.reply_text import Call, Reply

Parsed = tuple[str, list[ToolCallItem]]
"""Content and calls, or what is new of them."""

_STREAM = "_toolspec_stream"


class CallStream:
    """One reply's calls in OpenAI's field rules: indices in order, each name once, arguments in pieces."""

    def __init__(self, detector: Any, tools: list[Any]):
        kind = type(detector).__name__
        self._reply = Reply(detector, tools)
        self._reading = READERS[kind](self._reply)
        self._known = {tool.function.name for tool in tools}
        self._any_name = kind in FORWARDS_UNKNOWN or bool(envs.SGLANG_FORWARD_UNKNOWN_TOOLS.get())
        self._sent = 0
        self._settled = 0

    def feed(self, text: str) -> Parsed:
        self._reply.add(text)
        next(self._reading, None)
        return self._reply.take_content(), list(self._news())

    def finish(self) -> Parsed:
        """What was held back for text that did not come."""
        self._reply.end()
        next(self._reading, None)
        self._reply.keep_space()
        return self._reply.take_content(), list(self._news())

    def whole(self, text: str) -> Parsed:
        """A whole reply at once; calls that it breaks off are left out."""
        content = self.feed(text)[0] + self.finish()[0]
        calls = [
            ToolCallItem(tool_index=call.index, name=call.name, parameters=call.arguments)
            for call in self._reply.calls
            if call.index is not None and call.ended
        ]
        return content, calls

    @property
    def has_call(self) -> bool:
        """Whether a call was read to its end, also one of no tool."""
        return any(call.name and call.ended for call in self._reply.calls)

    def _news(self) -> Iterator[ToolCallItem]:
        for call in self._reply.calls[self._settled :]:
            if not self._is_tool(call):
                continue
            if call.index is None:
                call.index = self._sent
                self._sent += 1
                yield ToolCallItem(tool_index=call.index, name=call.name, parameters="")
            # A key that repeats may change what was sent; that cannot be taken back.
            if len(call.arguments) > len(call.sent) and call.arguments.startswith(call.sent):
                yield ToolCallItem(tool_index=call.index, parameters=call.arguments[len(call.sent) :])
                call.sent = call.arguments
        self._settled = self._reply.settled

    def _is_tool(self, call: Call) -> bool:
        return bool(call.name) and (self._any_name or call.name in self._known)


def _covers(parser: Any) -> bool:
    return bool(parser.tools) and type(parser.detector).__name__ in READERS


def _stream(parser: Any, detector: Any, tools: list[Any]) -> CallStream:
    """The parser's stream, which lives as long as the parser: for one reply."""
    if not hasattr(parser, _STREAM):
        setattr(parser, _STREAM, CallStream(detector, tools))
    stream: CallStream = getattr(parser, _STREAM)
    return stream


def parse_stream_chunk(original: Callable[..., Parsed], parser: Any, chunk_text: str) -> Parsed:
    if not _covers(parser):
        return original(parser, chunk_text)
    return _stream(parser, parser.detector, parser.tools).feed(chunk_text)


def parse_stream_end(original: Callable[..., Parsed], parser: Any) -> Parsed:
    if not _covers(parser):
        return original(parser)
    return _stream(parser, parser.detector, parser.tools).finish()


def parse_non_stream(original: Callable[..., Parsed], parser: Any, full_text: str, **options: Any) -> Parsed:
    """SGLang's own result, unless streaming finds calls in the same text that it loses."""
    text, calls = original(parser, full_text, **options)
    if not _covers(parser):
        return text, calls
    stream = CallStream(parser.detector, parser.tools)
    found = stream.whole(full_text)
    lost = len(found[1]) > len(calls) or (not calls and stream.has_call)
    return found if lost else (text, calls)


def has_tool_call(original: Callable[..., bool], parser: Any, text: str) -> bool:
    """SGLang's own result, or whether streaming would find the beginning of a call."""
    if original(parser, text):
        return True
    begin = BEGINS.get(type(parser.detector).__name__)
    return begin is not None and _covers(parser) and begin in text


def parse_streaming_increment(
    original: Any, parser: Any, new_text: str, tools: list[Any]
) -> StreamingParseResult:
    content, calls = _stream(parser, parser, tools).feed(new_text)
    return StreamingParseResult(normal_text=content, calls=calls)


def finish(original: Any, parser: Any, tools: list[Any]) -> StreamingParseResult:
    content, calls = _stream(parser, parser, tools).finish()
    return StreamingParseResult(normal_text=content, calls=calls)
