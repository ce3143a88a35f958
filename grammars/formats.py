"""How models wrap tool calls in text. Adding a format is one entry in ``FORMATS``.

``call`` is a template; text stands for itself, with white space as usually written:

- ``{object}``: a JSON object that holds the tool's name and its arguments
- ``{name}``: the tool's name; ``{index}``: how many calls came before
- ``{arguments}``: the arguments as a JSON object
- ``{parameters}``: the arguments as repeated ``parameter`` templates with ``{key}`` and ``{value}``

A block of calls reads ``open call (between call)* close``; without a ``close``, every call
after the first is a block of its own that ``between`` opens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglang_toolspec.grammars.layout import COMPACT, PRETTY, SPACED, Layout, Preset, Slot

NAME_KEY = "name"
ARGUMENT_KEYS = ("arguments", "parameters")


@dataclass(frozen=True)
class Format:
    name: str
    call: str
    open: str = ""
    between: str = "\n"
    close: str = ""
    parameter: str = ""
    arguments_key: str = ARGUMENT_KEYS[0]
    layout: Preset = SPACED
    tight_name: bool = False
    """Whether no space stands after the colon of ``{object}``'s own keys at first."""
    mixed_words: bool = False
    """Whether constants in a markup are written as JSON does or as Python does (``True``): models
    write both where their chat template writes the latter."""

    def fresh_layout(self) -> Layout:
        """A layout to start from when nothing was seen."""
        layout = Layout(self.layout, mixed_words=self.mixed_words)
        if self.tight_name:
            layout.seen[Slot.COLON, True, False] = ("", 1)
        return layout


JSON_REPLY = Format("json_reply", "{arguments}", between="")
"""A reply that is one JSON value (``json_schema`` requests); its schema stands for a tool's."""

THOUGHTS = {
    Format("think", "<think>"): "</think>",
    Format("THINK", "[THINK]"): "[/THINK]",
    Format("analysis", "<|channel|>analysis<|message|>"): "<|end|><|start|>assistant",
}
"""What opens a thought, and what closes it."""

FORMATS = {
    f.name: f
    for f in (
        Format("hermes", "<tool_call>\n{object}\n</tool_call>"),
        Format("fence", "```json\n{object}\n```", layout=PRETTY),
        Format("fence_plain", "```\n{object}\n```", layout=PRETTY),
        Format("bare", "{object}"),
        # The paper's API-Bank prompts, and Llama 3's JSON calls.
        Format("bare_parameters", "{object}", arguments_key="parameters"),
        Format("llama3", "{object}", open="<|python_tag|>", between=";", arguments_key="parameters"),
        Format("array", "{object}", open="[", between=", ", close="]", arguments_key="parameters"),
        Format("mistral", "{object}", open="[TOOL_CALLS] [", between=", ", close="]"),
        Format("mistral_compact", "[TOOL_CALLS]{name}[ARGS]{arguments}", between=""),
        Format(
            "deepseekv3",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
            open="<｜tool▁calls▁begin｜>",
            close="<｜tool▁calls▁end｜>",
        ),
        Format(
            "deepseekv31",
            "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
            open="<｜tool▁calls▁begin｜>",
            between="",
            close="<｜tool▁calls▁end｜>",
        ),
        Format(
            "kimi_k2",
            "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
            open="<|tool_calls_section_begin|>",
            between="",
            close="<|tool_calls_section_end|>",
        ),
        Format(
            "glm",
            "<tool_call>{name}{parameters}\n</tool_call>",
            parameter="\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>",
        ),
        Format(
            "glm47",
            "<tool_call>{name}{parameters}</tool_call>",
            between="",
            parameter="<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
        ),
        Format(
            "qwen3_coder",
            "<tool_call>\n<function={name}>{parameters}\n</function>\n</tool_call>",
            parameter="\n<parameter={key}>\n{value}\n</parameter>",
            mixed_words=True,
        ),
        Format(
            "harmony",
            "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>",
            between="<|start|>assistant",
            layout=COMPACT,
        ),
    )
}

# SGLang's --tool-call-parser names: formats, most likely first. The free forms come after the
# parser's own, because small models often ignore their template.
_FREE = ("fence", "bare_parameters", "bare", "fence_plain", "array")
_BY_PARSER = {
    "qwen25": ("hermes", *_FREE),
    "qwen": ("hermes", *_FREE),
    "hermes": ("hermes", *_FREE),
    "llama3": ("llama3", "bare_parameters", "bare", "fence", "fence_plain", "array"),
    "mistral": ("mistral", "mistral_compact", "fence", "bare"),
    "deepseekv3": ("deepseekv3", "deepseekv31", "fence"),
    "deepseekv31": ("deepseekv31", "deepseekv3", "fence"),
    "kimi_k2": ("kimi_k2",),
    "glm": ("glm",),
    "glm45": ("glm",),
    "glm47": ("glm47",),
    "qwen3_coder": ("qwen3_coder", "hermes"),
    "step3p5": ("qwen3_coder",),
    "nanbeige": ("qwen3_coder",),
    "gpt-oss": ("harmony",),
}
_UNKNOWN = ("bare_parameters", "bare", "fence", "hermes", "fence_plain", "array")

# What SGLang's mask enforces for ``required`` and named choices, where that is not the parser's own
# format to the letter: ``{"name":"X", "arguments":`` inside, or other marks around.
_FORCED = {
    "qwen25": Format("hermes", FORMATS["hermes"].call, tight_name=True),
    "qwen": Format("hermes", FORMATS["hermes"].call, tight_name=True),
    "hermes": Format("hermes", "<tool_call>{object}</tool_call>", between="", tight_name=True),
    "llama3": Format("llama3", "{object}", open="<|python_tag|>", between=";", tight_name=True),
    # A list, or a section, of its own for each call.
    "mistral": Format("mistral", "[TOOL_CALLS] [{object}]", between="", tight_name=True),
    "deepseekv3": Format(
        "deepseekv3",
        FORMATS["deepseekv3"].open + FORMATS["deepseekv3"].call + FORMATS["deepseekv3"].close,
        between="",
    ),
    "deepseekv31": Format("deepseekv31", FORMATS["deepseekv31"].call, between=""),
}
_FORCED_AS_ARRAY = ("glm", "glm45")
"""Parsers for which it enforces a JSON array of calls, as without a parser."""


def formats_for(parser: str | None, constrained: bool = False) -> tuple[Format, ...]:
    """Formats for SGLang's ``--tool-call-parser`` name, most likely first.

    ``constrained`` says that SGLang's own mask forces a call (``required`` or a name).
    """
    own = tuple(FORMATS[name] for name in _BY_PARSER.get(parser or "", _UNKNOWN))
    if not constrained:
        return own
    array = FORMATS["array"]
    if parser is None or parser in _FORCED_AS_ARRAY or parser not in _BY_PARSER:
        return (array, *(form for form in own if form is not array))
    return (_FORCED.get(parser, own[0]), array)


def open_thought(prompt: str) -> str:
    """What closes the thought that stands open at the end of a prompt; empty where none does."""
    end = prompt.rstrip()
    return next((closing for form, closing in THOUGHTS.items() if end.endswith(form.call)), "")


_HOLE = re.compile(r"\{(name|index|object|arguments|parameters|key|value)\}")


def pieces(template: str) -> list[tuple[str, bool]]:
    """``template`` cut at its holes: ``(text or hole's name, whether it is a hole)``."""
    found = _HOLE.split(template)
    return [(piece, i % 2 == 1) for i, piece in enumerate(found) if piece]
