"""Small tool sets, written for these tests, and an independent writer of calls."""

import json
from functools import cache

from sglang_toolspec.grammars.compile import DraftGrammar
from sglang_toolspec.grammars.formats import DIALECTS
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
def grammar(dialect: str) -> DraftGrammar:
    return DraftGrammar(assistant(), DIALECTS[dialect])


def write_call(dialect: str, name: str, arguments: dict) -> str:
    """The text of one call; written without ``Dialect``, so that the two check each other."""

    def dumps(value, **style):
        return json.dumps(value, ensure_ascii=False, **style)

    call, parameters = {"name": name, "arguments": arguments}, {"name": name, "parameters": arguments}
    tight = dumps(arguments, separators=(", ", ":"))
    return {
        "tag": f"<tool_call>\n{dumps(call)}\n</tool_call>",
        "tag_forced": f'<tool_call>\n{{"name":{dumps(name)}, "arguments":{dumps(arguments)}}}\n</tool_call>',
        "tag_forced_tight": f'<tool_call>\n{{"name":{dumps(name)}, "arguments":{tight}}}\n</tool_call>',
        "fence_pretty": f"```json\n{dumps(call, indent=2)}\n```",
        "fence": f"```json\n{dumps(call)}\n```",
        "bare": dumps(call),
        "bare_parameters": dumps(parameters),
        "array": f"[{dumps(parameters)}]",
    }[dialect]


def chunks(data: bytes, random, longest: int = 12) -> list[bytes]:
    """``data`` cut at random places."""
    cut = []
    while data:
        size = random.randint(1, longest)
        cut.append(data[:size])
        data = data[size:]
    return cut
