"""Automata that have followed a text, for tests."""

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import FORMATS, formats_for
from tests.toolsets import shapes

FORMS = sorted(FORMATS)
WEATHER = ("get_weather", {"city": "Oslo"})
FULL = ("get_weather", {"city": "Oslo, {no}", "days": 31, "unit": "celsius", "hourly": False})
NATIVE = {"fence": "pretty", "fence_plain": "pretty", "harmony": "compact"}
"""The layout in which a format's first call is expected, where it is not spaced."""


def automaton(*forms, parser="qwen25", habits=None, tools=None, thinks=""):
    formats = tuple(FORMATS[form] for form in forms) or formats_for(parser)
    return ToolAutomaton(shapes() if tools is None else CallShapes(tools), formats, habits, thinks=thinks)


def followed(text, *forms, **more):
    reader = automaton(*forms, **more)
    for byte in text.encode() if isinstance(text, str) else text:
        reader.advance(bytes([byte]))
    return reader


def at_once(text, *forms, **more):
    reader = automaton(*forms, **more)
    reader.advance(text if isinstance(text, bytes) else text.encode())
    return reader


def seen(reader):
    """All that can be asked."""
    return (
        reader.state, reader.tool, reader.path, reader.value_so_far, reader.in_open_value,
        reader.calls_done, reader.spans(), reader.continuations(),
    )  # fmt: skip


def offers(text, *forms, **more):
    return [c.text for c in followed(text, *forms, **more).continuations()]
