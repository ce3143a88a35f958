"""Which replies hold a whole call."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sglang_toolspec.bench.adherence import adheres
from sglang_toolspec.bench.measure import Measurement
from sglang_toolspec.bench.request import Asking, request_for
from sglang_toolspec.bench.rows import Row, user
from tests.toolsets import GET_WEATHER, write_call

REPLY = Measurement(1, 1, 0, 0.0, 0.0, 0.0, 0.0, 1, "stop", [1], [(1, 0.0)], [])
CALL = write_call("hermes", "get_weather", {"city": "Lima"})


def judged(text, finish="stop", tools=(GET_WEATHER,), asking=None, **row):
    request = request_for(Row("0", user("Weather?"), list(tools), **row), asking or Asking())
    return adheres(request, replace(REPLY, text=text, finish=finish))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL, True),
        (f"Let me look.\n{CALL}", True),
        ('```json\n{"name": "get_weather", "arguments": {"city": "Lima"}}\n```', True),
        ('{"name": "get_weather", "parameters": {"city": "Lima"}}', True),
        (CALL[: len(CALL) // 2], False),
        ("I would call get_weather.", False),
        ("", False),
    ],
)
def test_a_whole_call_in_any_known_layout_counts(text, expected):
    assert judged(text) is expected
    assert judged(text, raw_system="Tools: get_weather") is expected


def test_calls_that_the_server_took_out_of_the_text_count():
    assert judged("", finish="tool_calls") is True


def test_without_tools_that_could_be_called_there_is_nothing_to_adhere_to():
    assert judged(CALL, tools=()) is None
    assert judged(CALL, tool_choice="none") is None
    assert judged(CALL, tools=(GET_WEATHER, GET_WEATHER)) is None  # refused: two tools of one name


def test_texts_with_known_tools_are_judged_too():
    request = request_for(Row("0", prompt="Weather?", tools=[GET_WEATHER]), Asking())
    assert adheres(request, replace(REPLY, text=CALL)) is True
    assert json.loads(request.hint)["tools"]
