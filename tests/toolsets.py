"""Small tool sets, written for these tests, and an independent writer of calls."""

import json
from functools import cache

from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.tools import ToolSet


def tool(name, properties=None, required=(), **more):
    parameters = {"type": "object", "properties": properties or {}, "required": list(required), **more}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


STRING, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}

GET_WEATHER = tool(
    "get_weather",
    {
        "city": STRING,
        "days": INTEGER,
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit", "kelvin"]},
        "hourly": BOOLEAN,
    },
    required=["city"],
)
GET_TIME = tool("get_time", {"zone": STRING}, required=["zone"])
SEND_EMAIL = tool(
    "send_email",
    {"to": STRING, "subject": STRING, "body": STRING, "cc": {"type": "array", "items": STRING}},
    required=["to", "subject", "body"],
)
BOOK_TABLE = tool(
    "book_table",
    {"restaurant": STRING, "people": INTEGER, "time": STRING, "smoking": BOOLEAN},
    required=["restaurant", "people"],
)
LIST_ALARMS = tool("list_alarms")
ADD_CONTACT = tool(
    "add_contact",
    {"name": STRING, "arguments": {"type": "object", "properties": {"name": STRING}, "required": ["name"]}},
    required=["name"],
)
DRAW_LINE = tool(
    "draw_line",
    {"start": {"$ref": "#/$defs/Point"}, "end": {"$ref": "#/$defs/Point"}},
    required=["start"],
    **{"$defs": {"Point": {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}}},
)
ODD_NAME = tool('home.lights "é"', {'le"vel': INTEGER, "größe": STRING})

ASSISTANT = [
    GET_WEATHER, GET_TIME, SEND_EMAIL, BOOK_TABLE, LIST_ALARMS, ADD_CONTACT, DRAW_LINE, ODD_NAME,
]  # fmt: skip

LEGAL_CALLS = [
    ("get_weather", {"city": "Oslo", "days": 3, "unit": "celsius", "hourly": True}),
    ("get_time", {"zone": "Europe/Oslo"}),
    ("send_email", {"to": "a@b.c", "subject": "}{", "body": "see </tool_call>\n[1]", "cc": ["x", "y"]}),
    ("book_table", {"restaurant": "Café \"Zoë\"", "people": 12, "time": "19:30", "smoking": False}),
    ("list_alarms", {}),
    ("add_contact", {"name": "get_time", "arguments": {"name": "name"}}),
    ("draw_line", {"start": {"x": -1, "y": 2}, "end": {"x": 30}}),
    ('home.lights "é"', {'le"vel': 7, "größe": "groß"}),
]  # fmt: skip


@cache
def assistant() -> ToolSet:
    return ToolSet.from_openai(ASSISTANT)


@cache
def shapes() -> CallShapes:
    return CallShapes(assistant())


LAYOUTS = {
    "spaced": {},
    "pretty": {"indent": 2},
    "compact": {"separators": (",", ":")},
    "tight_colon": {"separators": (", ", ":")},
}
"""How ``json.dumps`` is asked to write."""

PARSERS = {
    "hermes": "qwen25", "fence": "qwen25", "fence_plain": "qwen25", "bare": "qwen25",
    "bare_parameters": "qwen25", "array": "qwen25", "llama3": "llama3", "mistral": "mistral",
    "mistral_compact": "mistral", "deepseekv3": "deepseekv3", "deepseekv31": "deepseekv31",
    "kimi_k2": "kimi_k2", "glm": "glm45", "glm47": "glm47", "qwen3_coder": "qwen3_coder",
    "harmony": "gpt-oss",
}  # fmt: skip
"""A parser of SGLang's for each format."""

SHARED_BLOCK = ("array", "mistral", "deepseekv3", "deepseekv31", "kimi_k2")
"""Formats that put all calls between one opening and one closing mark."""


def dumps(value, layout="spaced"):
    return json.dumps(value, ensure_ascii=False, **LAYOUTS[layout])


def fits(form: str, name: str) -> bool:
    """Whether a tool's name can be written in a format at all."""
    return form != "harmony" or " " not in name


def write_calls(form: str, calls, layout: str = "spaced") -> str:
    """The text of calls one after another; written without ``Format``, so that the two check each
    other."""
    parts = [_call(form, name, arguments, layout, i) for i, (name, arguments) in enumerate(calls)]
    opening, between, closing = {
        "array": ("[", ", ", "]"),
        "mistral": ("[TOOL_CALLS] [", ", ", "]"),
        "mistral_compact": ("", "", ""),
        "glm47": ("", "", ""),
        "llama3": ("<|python_tag|>", ";", ""),
        "deepseekv3": ("<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"),
        "deepseekv31": ("<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"),
        "kimi_k2": ("<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>"),
        "harmony": ("", "<|start|>assistant", ""),
    }.get(form, ("", "\n", ""))
    return opening + between.join(parts) + closing


def write_call(form: str, name: str, arguments: dict, layout: str = "spaced") -> str:
    """The text of a block with one call."""
    return write_calls(form, [(name, arguments)], layout)


def _call(form: str, name: str, arguments: dict, layout: str, index: int) -> str:
    key = "parameters" if form in ("bare_parameters", "llama3", "array") else "arguments"
    whole, own = dumps({"name": name, key: arguments}, layout), dumps(arguments, layout)
    values = {k: v if isinstance(v, str) else dumps(v, layout) for k, v in arguments.items()}
    glm = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in values.items())
    glm47 = "".join(f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in values.items())
    qwen3 = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return {
        "hermes": f"<tool_call>\n{whole}\n</tool_call>",
        "fence": f"```json\n{whole}\n```",
        "fence_plain": f"```\n{whole}\n```",
        "mistral_compact": f"[TOOL_CALLS]{name}[ARGS]{own}",
        "deepseekv3": f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{own}\n```"
        "<｜tool▁call▁end｜>",
        "deepseekv31": f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{own}<｜tool▁call▁end｜>",
        "kimi_k2": f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{own}"
        "<|tool_call_end|>",
        "glm": f"<tool_call>{name}\n{glm}</tool_call>",
        "glm47": f"<tool_call>{name}{glm47}</tool_call>",
        "qwen3_coder": f"<tool_call>\n<function={name}>\n{qwen3}</function>\n</tool_call>",
        "harmony": f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{own}<|call|>",
    }.get(form, whole)


def chunks(data, random, longest: int = 12) -> list:
    """``data`` cut at random places."""
    cut = []
    while data:
        size = random.randint(1, longest)
        cut.append(data[:size])
        data = data[size:]
    return cut
