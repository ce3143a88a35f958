"""Sessions without an engine: a replay's are those of a server, whatever the request."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_toolspec.runtime.assembly import Assembler, DraftRequest
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.engine.drafting import draft_request
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.tree import DraftPath
from tests import fakes
from tests.toolsets import GET_WEATHER, LIST_ALARMS, write_call

REPLY = write_call("hermes", "get_weather", {"city": "Oslo", "days": 3})
LISTING = f"<tools>\n{json.dumps(GET_WEATHER)}\n</tools>\nIs it cold in Oslo?"
SCHEMA = json.dumps({"properties": {"verdict": {"enum": ["guilty"]}}, "required": ["verdict"]})
MASK = SimpleNamespace(ll_matcher=object())


def assembler(codec: Any = None) -> Assembler:
    return Assembler(codec or fakes.ByteCodec(), "qwen25", Faults(fakes.no_fault), Config())


def with_schema(schema: Any, **fields: Any) -> fakes.Request:
    req = fakes.request(**fields)
    req.sampling_params.json_schema = schema
    return req


REQUESTS = {
    "tools": fakes.request("Oslo?", [GET_WEATHER, LIST_ALARMS]),
    "forced call": fakes.request("Oslo?", [GET_WEATHER], choice="required", grammar=MASK),
    "tools of the prompt": fakes.request(LISTING),
    "schema of the reply": with_schema(SCHEMA, grammar=MASK),
    "nothing": fakes.request("Oslo?"),
}


@pytest.mark.parametrize("req", REQUESTS.values(), ids=REQUESTS)
def test_a_request_drafts_the_same_without_its_engine(req: fakes.Request) -> None:
    server, alone = fakes.factory(), assembler()

    for _ in range(2):  # the second time with what was remembered
        found = fakes.followed(alone, draft_request(req), REPLY)

        assert found == fakes.followed(server, req, REPLY)
        assert any(len(tree) > 1 for tree in found)


def test_a_request_of_the_engine_is_read_whole() -> None:
    req = with_schema(SCHEMA, tools=[LIST_ALARMS], grammar=MASK, extra_key="k", cache_salt="s")

    assert draft_request(req) == DraftRequest(
        prompt=req.origin_input_ids,
        tools=req.sampling_params.custom_params["toolspec"],
        json_schema=SCHEMA,
        masked=True,
        may_think=False,
        tenant='["k", "s"]',
    )


@pytest.mark.parametrize("custom", [None, {}, {"toolspec": None}, {"toolspec": 3}, "text"])
def test_what_is_not_ours_in_a_request_is_left_out(custom: Any) -> None:
    req = with_schema(7)
    req.sampling_params.custom_params = custom

    assert draft_request(req) == DraftRequest(req.origin_input_ids, tenant='["", ""]')


class OneToken:
    """A drafter of the engine's own."""

    name = "engine"

    def commit(self, tokens: list[int]) -> None: ...

    def close(self) -> None: ...

    def propose(self) -> list[DraftPath]:
        return [DraftPath((90,), (0.9,), (self.name,))]


def test_drafters_of_the_engine_join_the_others() -> None:
    session = assembler()(DraftRequest([1], tools='{"tools": []}'), [OneToken()])
    session.commit([2])

    assert session.draft(8).sources == ["", "engine"]
