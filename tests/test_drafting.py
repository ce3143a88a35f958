"""Which drafters a request gets, and for which tools."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest

from sglang_toolspec.runtime.config import SOURCES, Config
from sglang_toolspec.runtime.engine.drafting import SessionFactory
from sglang_toolspec.runtime.session import Faults
from tests import fakes
from tests.sessions import Request
from tests.toolsets import GET_WEATHER, LIST_ALARMS, write_call

SCHEMA = frozenset({"schema"})
LISTING = f"You may call:\n<tools>\n{json.dumps(GET_WEATHER)}\n</tools>\nIs it cold in Oslo?"
REPLY_SCHEMA = json.dumps({"properties": {"verdict": {"enum": ["guilty"]}}, "required": ["verdict"]})
REPEATING = "Why?\nHello, because. Why?"
"""The suffix drafter knows what follows the line break after it."""
OTHER_BACKEND = Request(ll_matcher=object())


def offered(make: SessionFactory, req: fakes.Request) -> str:
    """The text of all first drafts."""
    session = make(req)
    session.commit(b"\n")
    return "\n".join(fakes.texts_of(session.draft(64)))


def with_schema(schema: str, **more: Any) -> fakes.Request:
    req = fakes.request(grammar=OTHER_BACKEND, **more)
    req.sampling_params.json_schema = schema
    return req


def test_tools_of_the_request_are_drafted() -> None:
    make = fakes.factory(sources=SCHEMA)

    assert "get_weather" in offered(make, fakes.request(tools=[GET_WEATHER]))
    assert offered(make, fakes.request(tools=[GET_WEATHER], choice="none")) == ""
    assert offered(make, fakes.request(tools=[])) == ""


def test_tools_that_only_the_prompt_lists_are_drafted_unless_switched_off() -> None:
    req = fakes.request(LISTING)

    assert "get_weather" in offered(fakes.factory(sources=SCHEMA), req)
    assert offered(fakes.factory(sources=SCHEMA, prompt_tools=False), req) == ""


def test_tools_of_the_request_count_more_than_those_of_the_prompt() -> None:
    make = fakes.factory(sources=SCHEMA)

    assert "get_weather" not in offered(make, fakes.request(LISTING, tools=[LIST_ALARMS]))
    assert offered(make, fakes.request(LISTING, tools=[LIST_ALARMS], choice="none")) == ""


def test_a_reply_with_a_schema_of_its_own_is_drafted() -> None:
    found = offered(fakes.factory(sources=SCHEMA), with_schema(REPLY_SCHEMA))

    assert '{"verdict": "guilty"}' in found


def test_such_a_reply_calls_none_of_the_tools_that_are_offered_besides() -> None:
    make = fakes.factory(sources=SCHEMA)

    for req in (with_schema(REPLY_SCHEMA, prompt=LISTING), with_schema(REPLY_SCHEMA, tools=[GET_WEATHER])):
        found = offered(make, req)
        assert "verdict" in found
        assert "get_weather" not in found


def test_the_schema_of_a_forced_call_is_that_of_its_tools() -> None:
    """SGLang sets one for ``required`` where a parser has no structural tag."""
    forced = json.dumps({"type": "array", "items": {"anyOf": [{"type": "object"}]}})
    req = with_schema(forced, tools=[GET_WEATHER], choice="required")

    assert "get_weather" in offered(fakes.factory(sources=SCHEMA), req)


@pytest.mark.parametrize("schema", ["$$ANY$$", "true", None, "[]", ""])
def test_a_schema_that_says_nothing_is_no_fault(schema: Any) -> None:
    assert offered(fakes.factory(sources=SCHEMA), with_schema(schema)) == ""


@pytest.mark.parametrize("schema", ["{", "{" * 100_000, '{"properties": ' * 90 + "{}" + "}" * 90])
def test_a_malformed_schema_costs_its_own_drafts_only(faults: Faults, schema: str) -> None:
    found = offered(fakes.factory(faults=faults), with_schema(schema, prompt=REPEATING))

    assert "Hello" in found
    assert sum(faults.counts.values()) == 1
    assert next(iter(faults.counts)).startswith("json_schema: ")


@pytest.mark.parametrize("wire", ["", "{", "[]", '{"tools": 1}', '{"tools": [{"name": 1}]}', '{"odd": 1}'])
def test_malformed_custom_params_cost_their_own_drafts_only(faults: Faults, wire: str) -> None:
    req = fakes.request(REPEATING)
    req.sampling_params.custom_params = {"toolspec": wire}

    assert "Hello" in offered(fakes.factory(faults=faults), req)
    assert faults.counts == {"custom_params: UserError": 1}


@pytest.mark.parametrize("custom", [None, {}, {"toolspec": None}, {"toolspec": 3}, {"other": "{"}, "text"])
def test_custom_params_of_others_are_no_fault(custom: Any) -> None:
    req = fakes.request(LISTING)
    req.sampling_params.custom_params = custom

    assert "get_weather" in offered(fakes.factory(sources=SCHEMA), req)


OF_TEXT = tuple(source for source in SOURCES if source not in ("history", "recycling"))
"""Sources that need nothing of the target's states."""


@pytest.mark.parametrize(
    "sources", [(), *combinations(OF_TEXT, 1), *combinations(OF_TEXT, 2), OF_TEXT], ids="+".join
)
def test_only_the_chosen_sources_draft(sources: tuple[str, ...]) -> None:
    make = fakes.factory(sources=frozenset(sources))
    reply = write_call("hermes", "get_weather", {"city": "Oslo", "days": 3})
    prompt = f"For example {reply}. Is it cold in Oslo?"

    for _ in range(2):  # values are remembered from the first reply
        trees = fakes.followed(make, fakes.request(prompt, [GET_WEATHER]), reply)

    found = {name for tree in trees for name in tree.sources} - {""}
    # Guesses of values have a place only in what the schema drafts.
    assert found == (set(sources) if "schema" in sources else set(sources) & {"suffix"})


def test_a_mask_of_another_kind_is_told_to_the_schema_drafter() -> None:
    asked: set[bool] = set()

    class Codec(fakes.ByteCodec):
        def encode(self, text: str, literal: bool = False) -> tuple[int, ...]:
            asked.add(literal)
            return super().encode(text)

    codec = Codec()
    for grammar, literal in ((None, False), (OTHER_BACKEND, True), (Request(grammar=None), False)):
        asked.clear()
        offered(
            fakes.factory(sources=SCHEMA, codec=codec), fakes.request(tools=[GET_WEATHER], grammar=grammar)
        )
        assert asked == {literal}


def test_without_a_codec_nothing_is_drafted(faults: Faults) -> None:
    make = SessionFactory(None, "qwen25", faults, Config())

    session = make(fakes.request(LISTING, tools=[GET_WEATHER]))
    session.commit([1, 2])

    assert session.draft(8).tokens == [2]


def test_a_reply_that_begins_in_a_thought_is_offered_no_call() -> None:
    """A mask keeps a reply from thinking, unless it waits for the end of that."""
    make, prompt = fakes.factory(sources=SCHEMA), "Is it cold?\n<think>\n"

    assert offered(make, fakes.request(prompt, tools=[GET_WEATHER])) == ""
    assert "get_weather" in offered(make, fakes.request(prompt, tools=[GET_WEATHER], grammar=OTHER_BACKEND))
    assert "get_weather" in offered(make, fakes.request(f"{prompt}</think>\n", tools=[GET_WEATHER]))


def test_a_thought_is_drafted_by_the_sources_that_know_no_tools_until_it_ends() -> None:
    session = fakes.factory(sources=frozenset({"schema", "suffix"}))(fakes.request(tools=[GET_WEATHER]))

    session.commit(b"<think>\nI look up the weather, I look up ")
    assert set(session.draft(32).sources) - {""} == {"suffix"}

    session.commit(b"the weather.\n</think>\n")
    assert "schema" in session.draft(32).sources
