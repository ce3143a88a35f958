"""Attribution: counts that add up, and a table of recent requests that stays small."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime import attribution
from sglang_toolspec.runtime.attribution import PREFILL, TARGET, Attribution
from sglang_toolspec.runtime.ledger import MAX_RID, Ledger
from sglang_toolspec.runtime.tree import DraftTree

SOURCES = ("schema", "copy", "suffix")


def told(*steps: str, prefilled: int = 1) -> Attribution:
    """Each step accepts a chain of nodes whose sources start with these letters; one node is refused."""
    made = Attribution()
    made.note_prefill(prefilled)
    for step in steps:
        tree = DraftTree.root_only(0)
        for i, letter in enumerate(step):
            tree.add(i, i, 1.0, next(s for s in SOURCES if s.startswith(letter)))
        tree.add(99, 0, 0.5, "suffix")
        made.note_step(tree, list(range(1, len(step) + 1)), len(step) + 1)
    return made


step_letters = st.text(st.sampled_from(["c", "s"]), max_size=6)


@given(st.lists(step_letters, max_size=8))
def test_tokens_are_those_of_the_prefill_the_accepted_and_one_of_each_step(steps):
    found = told(*steps)
    assert found.tokens == 1 + found.accepted.total() + found.steps == sum(map(len, found.history))
    flat = [source for step in found.history for source in step]
    assert flat.count(TARGET) == found.steps
    assert flat.count(PREFILL) == 1
    assert found.proposed.total() == found.accepted.total() + found.steps


@given(st.lists(step_letters, max_size=8))
def test_an_attribution_survives_the_way_to_the_client(steps):
    found = told(*steps)
    assert Attribution.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("value", [{}, {"tokens": "many"}, {**told("s").to_json(), "steps": 3}])
def test_other_data_is_no_attribution(value):
    with pytest.raises((LookupError, TypeError, ValueError)):
        Attribution.from_json(value)


def test_the_likeliest_sources_come_first():
    assert list(told("csss", "c").sums()["accepted"]) == ["schema", "copy"]


def test_steps_past_the_limit_are_counted_only(monkeypatch):
    monkeypatch.setattr(attribution, "MAX_STEPS", 3)
    found = told(*"sssss")
    assert (found.steps, len(found.history)) == (5, 3)
    whole = Attribution()
    whole.append(told("s"))
    whole.append(found)
    assert (whole.steps, len(whole.history)) == (6, 3)


def test_a_request_is_found_with_its_own_steps():
    ledger = Ledger()
    ledger.note("a", told("ss"), True)
    ledger.note("b", told("c"), True)
    found = ledger.find("a")
    assert found["steps"] == [[PREFILL], ["schema", "schema", TARGET]]
    assert (found["rid"], found["finished"], found["tokens"], found["verify_steps"]) == ("a", True, 4, 1)
    assert ledger.find("b")["accepted"] == {"copy": 1}
    assert ledger.find("c") is None
    assert (ledger.finished, ledger.total.tokens, ledger.total.history) == (2, 7, [])


def test_a_running_request_is_told_so_far():
    ledger = Ledger()
    found = ledger.find("a", told("s"))
    assert (found["finished"], found["tokens"]) == (False, 3)
    assert ledger.find("a") is None
    assert ledger.total.tokens == 0


def test_the_parts_of_a_retracted_request_are_one():
    ledger, first, second = Ledger(), told("ss"), told("c", prefilled=5)
    ledger.note("a", first, False)
    assert ledger.find("a")["finished"] is False
    assert ledger.find("a", second)["tokens"] == 7
    whole = ledger.note("a", second, True)
    assert (whole.tokens, whole.steps) == (7, 2)
    assert ledger.find("a")["steps"] == [
        [PREFILL], ["schema", "schema", TARGET], [PREFILL], ["copy", TARGET],
    ]  # fmt: skip
    assert (ledger.finished, ledger.total.tokens) == (1, 7)


@pytest.mark.parametrize("finished", [False, True])
def test_an_id_that_is_used_again_tells_of_the_later_request(finished):
    ledger = Ledger()
    ledger.note("a", told("ss"), finished)
    ledger.note("a", told("c"), True)
    assert ledger.find("a")["accepted"] == {"copy": 1}
    assert ledger.total.accepted == {"schema": 2, "copy": 1}


def test_the_oldest_requests_are_forgotten_and_stay_in_the_sums():
    ledger = Ledger(max_requests=2)
    for rid in "abca":
        ledger.note(rid, told("s"), True)
    assert [rid for rid in "abc" if ledger.find(rid)] == ["a", "c"]
    assert ledger.finished == 4


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=40))
def test_no_stream_of_requests_keeps_more_than_the_limits(stream):
    ledger = Ledger(max_requests=4, max_steps=12)
    for rid, steps in stream:
        ledger.note(rid, told(*"s" * steps), True)
        kept = [found for r in "abcdef" if (found := ledger.find(r))]
        assert len(kept) <= 4
        assert sum(len(found["steps"]) for found in kept) <= 12
        assert ledger.find(rid)


def test_an_endless_id_is_summed_but_not_kept():
    ledger, rid = Ledger(), "x" * (MAX_RID + 1)
    ledger.note(rid, told("s"), True)
    assert ledger.find(rid) is None
    assert ledger.finished == 1
