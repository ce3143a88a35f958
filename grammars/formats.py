"""How models write tool calls: dialects, and which of them a tool-call parser suggests.

A dialect is pure data. One block of calls reads ``open call (separator call)* close``;
a call is a JSON object with the tool's name and its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """One way of writing a block of calls.

    ``head``, when given, is the literal start of a call with ``{name}`` as a JSON string,
    for writers whose spacing differs between the call and its arguments.
    """

    name: str
    open: str = ""
    close: str = ""
    separator: str | None = None
    name_key: str = "name"
    arguments_key: str = "arguments"
    indent: int | None = None
    item_separator: str = ", "
    key_separator: str = ": "
    head: str | None = None


DIALECTS = {
    d.name: d
    for d in (
        # The template of Qwen2.5 and Hermes.
        Dialect("tag", open="<tool_call>\n", close="\n</tool_call>"),
        # What SGLang's qwen25 detector enforces for required and named choices.
        Dialect(
            "tag_forced",
            open="<tool_call>\n",
            close="\n</tool_call>",
            head='{{"name":{name}, "arguments":',
        ),
        Dialect(
            "tag_forced_tight",
            open="<tool_call>\n",
            close="\n</tool_call>",
            key_separator=":",
            head='{{"name":{name}, "arguments":',
        ),
        # What Qwen2.5-Coder writes when it is free.
        Dialect("fence_pretty", open="```json\n", close="\n```", indent=2, item_separator=","),
        Dialect("fence", open="```json\n", close="\n```"),
        # One object a line; each is a block of its own.
        Dialect("bare"),
        # The paper's API-Bank prompts.
        Dialect("bare_parameters", arguments_key="parameters"),
        # SGLang's JSON-schema constraint for parsers without a structural tag.
        Dialect("array", open="[", close="]", separator=", ", arguments_key="parameters"),
    )
}

_TAGGED_FIRST = (
    "tag",
    "fence_pretty",
    "bare_parameters",
    "bare",
    "fence",
    "tag_forced",
    "tag_forced_tight",
    "array",
)
_BARE_FIRST = ("bare_parameters", "bare", "fence_pretty", "tag", "fence", "array", "tag_forced")

FORMATS = {
    "qwen25": _TAGGED_FIRST,
    "qwen": _TAGGED_FIRST,
    "hermes": _TAGGED_FIRST,
    "llama3": _BARE_FIRST,
}


def dialects_for(parser: str | None, constrained: bool = False) -> tuple[Dialect, ...]:
    """Dialects for SGLang's ``--tool-call-parser`` name, most likely first.

    ``constrained`` says that SGLang's own mask forces a call (``required`` or a name).
    """
    names = FORMATS.get(parser or "", _BARE_FIRST)
    if constrained:
        tagged = ("tag_forced", "tag_forced_tight")
        forced = (*tagged, "array") if names is _TAGGED_FIRST else ("array", *tagged)
        names = (*forced, *(n for n in names if n not in forced))
    return tuple(DIALECTS[n] for n in names)
