"""Where the calls stand in a reply, for each of SGLang's parsers whose format we draft.

What is a call, and which text around calls is content, is as in the parser's ``detect_and_parse``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from sglang_toolspec.grammars.formats import NAME_KEY
from sglang_toolspec.grammars.json_text import JsonText
from sglang_toolspec.runtime.engine.reply_text import Reading, Reply

Reader = Callable[[Reply], Reading[None]]

_ARGUMENT_KEYS = ("parameters", "arguments")  # SGLang prefers the first


def object_call(reply: Reply) -> Reading[bool]:
    """``{"name": …, "arguments": {…}}``; whether it is JSON, else nothing is read."""
    call, value = reply.begin(), JsonText()

    def note() -> None:
        name = value.member(NAME_KEY)
        if name is not None and name.ended and name.text.startswith('"'):
            call.name = json.loads(name.text)
        members = (value.member(key) for key in _ARGUMENT_KEYS)
        call.arguments = next((m.text for m in members if m is not None and m.text.startswith("{")), "")

    call.ended = yield from reply.json(value, note)
    if call.ended and not call.arguments:
        call.arguments = _other_arguments(json.loads(value.text))
    return call.ended


def _other_arguments(call: Any) -> str:
    """Arguments that are no object, or absent, as ``parse_base_json`` has them."""
    if not isinstance(call, dict):
        return ""
    return json.dumps(call.get("parameters") or call.get("arguments", {}), ensure_ascii=False)


def arguments_call(reply: Reply, name: str) -> Reading[bool]:
    """The arguments of a call whose name stood before them; whether they are JSON."""
    call, value = reply.begin(name), JsonText()

    def note() -> None:
        call.arguments = value.text

    call.ended = yield from reply.json(value, note)
    return call.ended


def call_list(reply: Reply) -> Reading[bool]:
    """Objects behind a ``[``, through its ``]``; whether all are JSON."""
    while True:
        _, mark = yield from reply.upto("{", "]")
        if mark != "{":
            return True
        reply.unread(mark)
        if not (yield from object_call(reply)):
            return False


def tagged(tag: str) -> Reader:
    """Each object, or list of them, behind a tag of its own; text behind the first tag is dropped."""

    def read(reply: Reply) -> Reading[None]:
        mark = yield from reply.until(tag, out=reply.say)
        if mark:
            reply.drop_space()
        while mark:
            if (yield from reply.peek()) == "[":
                yield from reply.until("[")
                yield from call_list(reply)
            else:
                yield from object_call(reply)
            mark = yield from reply.until(tag)

    return read


def json_array(reply: Reply) -> Reading[None]:
    """A reply that a mask forced to be a list of objects; there is no other content."""
    first = yield from reply.peek()
    if first == "{":
        yield from object_call(reply)
    elif first == "[":
        yield from reply.until("[")
        yield from call_list(reply)
    elif first:
        reply.say((yield from reply.rest()))


def llama3(reply: Reply) -> Reading[None]:
    """Objects from the reply's start or behind a tag; text behind the last is content."""
    if not (yield from reply.starts_with("{")):
        if not (yield from reply.until("<|python_tag|>", out=reply.say)):
            return
        reply.keep_space()
    while True:
        text, mark = yield from reply.upto("{")
        if text.strip("; ,\t\r\n"):  # prose: a brace in it begins no call
            reply.unread(mark)
            more, mark = yield from reply.upto('{"name":')
            text += more
        if not mark:
            break
        reply.unread(mark)
        at = len(reply.calls)
        if not (yield from object_call(reply)):  # perhaps a dictionary as Python writes it
            text, calls = reply.parse((yield from reply.rest()))
            reply.put_calls(at, calls)
            if reply.calls[at].name and not calls:  # a call that breaks off
                return
            break
    reply.say(text.strip())


def mistral(reply: Reply) -> Reading[None]:
    """``[TOOL_CALLS] [{…}, …]`` or ``[TOOL_CALLS]name[ARGS]{…}…``; text behind the last is content."""
    mark = yield from reply.until("[TOOL_CALLS", out=reply.say)
    if not mark:
        return
    reply.drop_space()
    text = ""
    while mark:
        name, _ = yield from reply.upto("[")
        if name := name.removeprefix("]").strip():
            yield from reply.until("{")
            reply.unread("{")
            whole = yield from arguments_call(reply, name)
        else:
            whole = yield from call_list(reply)
        text, mark = yield from reply.upto("[TOOL_CALLS")
        text = text if whole else ""
    reply.set_apart()
    reply.say(text.strip())


def headed(
    section: str,
    begin: str,
    header_end: str,
    call: Callable[[Reply, str], Reading[Any]],
    settle: Callable[[Reply], None],
) -> Reader:
    """Calls in a section; each has a header and arguments. Text behind ``section`` is dropped."""

    def read(reply: Reply) -> Reading[None]:
        mark = yield from reply.until(section, begin, out=reply.say)
        if mark:
            settle(reply)
        while mark:
            if mark == begin:
                header, mark = yield from reply.upto(header_end, begin)
                if mark == begin:  # a call that broke off
                    continue
                if mark:
                    yield from call(reply, header)
            mark = yield from reply.until(begin)

    return read


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>")


def _deepseek_call(reply: Reply, header: str) -> Reading[bool]:
    name = header.rpartition(_DEEPSEEK[2])[2].strip()
    return (yield from arguments_call(reply, name))


_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>")
_KIMI_END = "<|tool_call_end|>"
_KIMI_ID = re.compile(r"(?:functions\.)?([\w.\-]+):\d+")


def _kimi_call(reply: Reply, header: str) -> Reading[None]:
    """SGLang takes the arguments as written, and infers a name that is missing."""
    named = _KIMI_ID.fullmatch(header.strip())
    at, call, raw = len(reply.calls), reply.begin(named[1] if named else ""), ""

    def add(text: str) -> None:
        nonlocal raw
        raw += text
        call.arguments = raw.strip()

    call.ended = bool((yield from reply.until(_KIMI_END, out=add)))
    if call.ended and named is None:
        section, begin, header_end = _KIMI
        reply.put_calls(at, reply.parse(f"{section}{begin}{header}{header_end}{raw}{_KIMI_END}")[1])


_TAG, _TAG_END = "<tool_call>", "</tool_call>"
_UNIONS = ("anyOf", "oneOf", "allOf", "$ref")


def markup(value: str, value_end: str, closing: str, settle: Callable[[Reply], None] | None) -> Reader:
    """Calls whose arguments are marked up; SGLang's parser decides on their types.

    A block so far is read as if it were ``closing`` there: so each value is sent when it has ended.
    Without ``settle``, text behind a block is content too.
    """

    def block(reply: Reply) -> Reading[None]:
        at, text = len(reply.calls), _TAG
        while True:
            piece, mark = yield from reply.upto(_TAG_END, value, value_end)
            text += piece + mark
            if mark in ("", _TAG_END):
                break
            _, found = reply.parse(text + closing)
            reply.put_calls(at, found, certain=False)
            if found and not _independent(reply.tools, found[-1].name):
                reply.calls[-1].arguments = ""
        reply.put_calls(at, reply.parse(text)[1])

    def read(reply: Reply) -> Reading[None]:
        mark = yield from reply.until(_TAG, out=reply.say)
        if mark and settle is not None:
            settle(reply)
        found = bool(mark)
        while mark:
            yield from block(reply)
            mark = yield from (reply.until(_TAG, out=reply.say) if settle is None else reply.until(_TAG))
        if found and settle is None:
            reply.drop_space()

    return read


def _independent(tools: list[Any], name: str | None) -> bool:
    """Whether the type of a value depends on no other value."""
    schemas = [tool.function.parameters or {} for tool in tools if tool.function.name == name]
    return not any(key in schema for schema in schemas for key in _UNIONS)


_BEGIN, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>")
_RETURN = "<|return|>"
_RECIPIENT = re.compile(r"to=([a-zA-Z_][a-zA-Z0-9_.-]*)\s*<\|constrain\|>json\s*\Z")


def harmony(reply: Reply) -> Reading[None]:
    """Messages in channels: calls have a recipient; what is not analysis is content."""
    while True:
        mark = yield from reply.until(_BEGIN, _CHANNEL, _MESSAGE, *_ENDS, _RETURN, out=reply.say)
        if not mark:
            break
        if mark == _BEGIN:  # the role
            _, mark = yield from reply.upto(_CHANNEL, _MESSAGE)
        header = ""
        if mark == _CHANNEL:
            header, mark = yield from reply.upto(_MESSAGE)
        if mark == _MESSAGE:
            reply.set_apart()
            yield from _harmony_message(reply, header)
        reply.set_apart()
    if reply.calls:
        reply.drop_space()


def _harmony_message(reply: Reply, header: str) -> Reading[None]:
    recipient = _RECIPIENT.search(header)
    channel = header.strip().lower()
    if recipient is not None:
        name = recipient[1].rpartition(".")[2]
        if (yield from reply.peek()) == "<":  # nothing stands for no arguments
            reply.unread("{}")
        yield from arguments_call(reply, name)
        yield from reply.until(*_ENDS)
    elif channel.startswith("final"):
        yield from reply.until(_RETURN, out=reply.say)
    elif channel.startswith("analysis") or "to=" in header:
        yield from reply.until(*_ENDS)
    else:
        yield from reply.until(*_ENDS, _RETURN, out=reply.say)


READERS: dict[str, Reader] = {
    "Qwen25Detector": tagged("<tool_call>\n"),
    "HermesDetector": tagged("<tool_call>"),
    "Llama32Detector": llama3,
    "MistralDetector": mistral,
    "DeepSeekV3Detector": headed(*_DEEPSEEK[:2], "\n```json\n", _deepseek_call, Reply.drop_space),
    "DeepSeekV31Detector": headed(*_DEEPSEEK, _deepseek_call, Reply.drop_space),
    "KimiK2Detector": headed(*_KIMI, _kimi_call, Reply.keep_space),
    "Glm4MoeDetector": markup("<arg_key>", "</arg_value>", _TAG_END, Reply.drop_space),
    "Glm47MoeDetector": markup("<arg_key>", "</arg_value>", _TAG_END, None),
    "Qwen3CoderDetector": markup("<parameter=", "</parameter>", f"</function>{_TAG_END}", Reply.keep_space),
    "GptOssDetector": harmony,
    "JsonArrayParser": json_array,
}
"""By the class of SGLang's detector."""

BEGINS = {
    "DeepSeekV3Detector": _DEEPSEEK[1],
    "DeepSeekV31Detector": _DEEPSEEK[1],
    "KimiK2Detector": _KIMI[1],
    "GptOssDetector": "<|channel|>commentary to=",
}
"""What begins a call for these detectors' streaming and is missing in their ``has_tool_call``."""

FORWARDS_UNKNOWN = frozenset({"KimiK2Detector", "Qwen3CoderDetector", "JsonArrayParser"})
"""Detectors that pass on calls of tools that the request does not have."""
