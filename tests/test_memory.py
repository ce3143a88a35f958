"""What is remembered stays with its tenant: another one drafts as if nobody had been there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.runtime import memory
from sglang_toolspec.runtime.engine.drafting import SessionFactory
from sglang_toolspec.runtime.memory import Memories
from sglang_toolspec.runtime.tree import DraftTree
from tests.fakes import factory, followed, request, texts_of
from tests.toolsets import GET_WEATHER, SEND_EMAIL, tool, write_call

SECRET = "Qzx7Jwv9"
TOOLS = [GET_WEATHER, SEND_EMAIL, tool("note", {"title": {"type": "string"}}, additionalProperties=True)]
PROMPT = "Mail zoe@example.org what the weather is like in Oslo."
EMAIL = {"to": "zoe@example.org", "subject": "Weather", "body": "It is fine."}
ORDINARY = [write_call("hermes", "send_email", EMAIL), write_call("hermes", "get_weather", {"city": "Oslo"})]
TELLING = {
    "value": write_call(
        "hermes", "send_email", {"to": f"{SECRET}@example.org", "subject": SECRET, "body": SECRET}
    ),
    "value of a shape": write_call("hermes", "note", {"title": "2031-07-09"}),
    "number": write_call("hermes", "get_weather", {"city": "Oslo", "days": 739173}),
    "undeclared key": write_call("hermes", "note", {SECRET: 1, "title": "x", "more": {SECRET: {SECRET: 2}}}),
    "text": f"The weather in Oslo is {SECRET}, and so it will stay.\n{ORDINARY[0]}",
    "unknown tool": write_call("hermes", SECRET, {"city": SECRET}),
    "habits": write_call(
        "fence", "get_weather", {"unit": "kelvin", "hourly": True, "city": "Oslo"}, layout="compact"
    ),
}
"""What one tenant's reply may give away."""
MARKS = (SECRET, "2031-07", "739173")


def trees(make: SessionFactory, reply: str, prompt: str = PROMPT, **tenant: Any) -> list[DraftTree]:
    return followed(make, request(prompt, TOOLS, **tenant), reply)


def shown(found: list[DraftTree]) -> str:
    return "\n".join(text for tree in found for text in texts_of(tree))


A, B = {"extra_key": "A"}, {"extra_key": "B"}


@pytest.mark.parametrize("telling", TELLING.values(), ids=TELLING)
def test_a_tenant_drafts_as_if_no_other_had_written(telling: str) -> None:
    make, alone = factory(), factory()
    trees(make, telling, f"My password is {SECRET}. {PROMPT}", **A)

    for reply in ORDINARY:
        found = trees(make, reply, **B)

        assert found == trees(alone, reply, **B)
        assert not any(mark in shown(found) for mark in MARKS)


@pytest.mark.parametrize("telling", TELLING.values(), ids=TELLING)
def test_the_same_tenant_does_remember(telling: str) -> None:
    make = factory()
    trees(make, telling, **A)

    assert trees(make, telling, **A) != trees(factory(), telling, **A)


def test_a_value_shows_up_for_its_own_tenant() -> None:
    make = factory()
    trees(make, TELLING["value"], **A)

    assert SECRET in shown(trees(make, ORDINARY[0], **A))


def test_a_prompt_is_forgotten_with_its_request_even_for_its_own_tenant() -> None:
    make = factory()
    trees(make, ORDINARY[0], f"My password is {SECRET}. {PROMPT}", **A)

    assert not any(mark in shown(trees(make, reply, **A)) for reply in ORDINARY for mark in MARKS)


KEYS = st.sampled_from([None, "", "a", "b", "ab"])


@settings(max_examples=20)
@given(KEYS, KEYS, KEYS, KEYS)
def test_tenants_are_told_apart_by_extra_key_and_cache_salt_together(
    key: str | None, salt: str | None, other_key: str | None, other_salt: str | None
) -> None:
    make = factory(sources=frozenset({"suffix"}))
    first = followed(make, request("x", extra_key=key, cache_salt=salt), SECRET, chunk=3)
    second = followed(make, request("x", extra_key=other_key, cache_salt=other_salt), SECRET, chunk=3)

    same = (key or "", salt or "") == (other_key or "", other_salt or "")
    assert (SECRET[5:] in shown(second)) == same
    assert (first == second) == (not same)


def test_two_tenants_at_once_do_not_mix() -> None:
    make = factory()
    sessions = [make(request(PROMPT, TOOLS, **tenant)) for tenant in (A, B)]
    replies = [TELLING["value"].encode(), ORDINARY[0].encode()]
    found = []
    for at in range(0, max(map(len, replies)), 5):
        for session, reply in zip(sessions, replies, strict=True):
            session.commit(reply[at : at + 5])
        found.append(sessions[1].draft(64))
    for session in sessions:
        session.close()

    assert SECRET not in shown(found)
    assert SECRET not in shown(trees(make, ORDINARY[0], **B))


# The longest unused tenants are forgotten.


@pytest.fixture
def two_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_TENANTS", 2)


@pytest.mark.usefixtures("two_tenants")
@pytest.mark.parametrize("telling", TELLING.values(), ids=TELLING)
def test_a_forgotten_tenant_starts_afresh_and_leaves_nothing_to_others(telling: str) -> None:
    make = factory()
    trees(make, telling, **A)
    for name in "CD":
        trees(make, ORDINARY[1], extra_key=name)

    assert trees(make, ORDINARY[0], **B) == trees(factory(), ORDINARY[0], **B)
    assert trees(make, telling, **A) == trees(factory(), telling, **A)


@pytest.mark.usefixtures("two_tenants")
def test_a_reply_that_ends_after_its_tenant_was_forgotten_is_lost() -> None:
    make = factory()
    late = make(request(PROMPT, TOOLS, **A))
    late.commit(TELLING["value"].encode())
    for name in "BCD":
        trees(make, ORDINARY[1], extra_key=name)
    late.close()

    for tenant in (*({"extra_key": name} for name in "BCD"), A):
        assert SECRET not in shown(trees(make, ORDINARY[0], **tenant))


def test_the_number_of_tenants_is_bounded_and_the_ones_in_use_stay() -> None:
    memories = Memories()
    first = memories.of("first")

    for i in range(2 * memory.MAX_TENANTS):
        memories.of(i)
        assert memories.of("first") is first

    assert len(memories._tenants) == memory.MAX_TENANTS


def test_the_habits_of_a_tenant_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_KINDS", 3)
    tenant = Memories().of("A")
    free = tenant.habits("free")

    for i in range(10):
        tenant.habits(f"schema {i}")
        assert tenant.habits("free") is free

    assert len(tenant._habits) == 3
