"""What a history in memory remembers, for whom, and what it lets go of."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from sglang_toolspec.runtime.history import entry as entries
from sglang_toolspec.runtime.history.history import VARIANTS, History
from tests.histories import DIM, A, B, Clock, beside, contents, direction, found_tokens, tokens_of


def history(count: int = 0, tenant: str = A, **options: Any) -> History:
    """With entries of tokens [0], [1], … at ``direction(0)``, ``direction(1)``, …"""
    made = History(now=Clock(), **options)
    for number in range(count):
        assert made.add(tenant, direction(number), [number], ["tool"])
    return made


def test_the_reply_to_the_most_similar_prompt_comes_first() -> None:
    made = history(20)

    found = made.similar(A, 7 * beside(direction(3), 0.9))

    assert len(found) == 10
    assert found[0].entry.tokens.tolist() == [3]
    assert found[0].similarity == pytest.approx(0.9, abs=1e-3)
    assert [n.similarity for n in found] == sorted((n.similarity for n in found), reverse=True)


def test_an_entry_keeps_what_it_was_made_from() -> None:
    made = history()
    given = np.array([5, 6, 7])
    made.add(A, direction(0), given, ("b", "a"))
    given[:] = 0

    [entry] = made.entries(A)

    assert (entry.tenant, entry.tokens.tolist(), entry.tools) == (A, [5, 6, 7], ("b", "a"))
    assert (entry.created, entry.used, entry.drafted) == (1001.0, 0, 0)
    with pytest.raises(ValueError, match="read-only"):
        entry.tokens[0] = 1


@pytest.mark.parametrize(("k", "count"), [(-1, 0), (0, 0), (2, 2), (3, 3), (1000, 3)])
def test_more_neighbours_than_there_are_is_no_error(k: int, count: int) -> None:
    assert len(history(3).similar(A, direction(0), k)) == count


def test_nothing_is_found_where_nothing_is() -> None:
    assert history().similar(A, direction(0)) == []
    assert history(3).similar(B, direction(0)) == []
    assert list(history().entries(A)) == []


def test_asking_for_an_unknown_tenant_does_not_make_it_known() -> None:
    made = history(1)
    made.similar(B, direction(0))
    assert made.tenants() == [A]


# The same prompt again.


def test_the_same_prompt_and_reply_is_one_entry_made_new_again() -> None:
    made = history(3)
    made.add(A, 2 * beside(direction(0), 0.99999), [0], ["tool"])

    assert tokens_of(made.entries(A)) == [[0], [2], [1]]
    assert next(made.entries(A)).created == 1004.0


def test_a_thousand_near_identical_prompts_do_not_crowd_out_others() -> None:
    made = history(3)
    for number in range(1000):
        made.add(A, beside(direction(0), 0.99999, number), [100 + number % 7], ["tool"])

    assert made.stats()["entries"] <= 3 + VARIANTS
    assert {(1,), (2,)} <= {tuple(tokens) for tokens in tokens_of(made.entries(A))}


def test_other_replies_to_the_same_prompt_are_kept_and_the_oldest_makes_room() -> None:
    made = history()
    for number in range(VARIANTS + 1):
        made.add(A, direction(0), [number], [])

    assert tokens_of(made.entries(A)) == [[number] for number in range(VARIANTS, 0, -1)]


def test_the_same_reply_to_another_prompt_is_another_entry() -> None:
    made = history(1)
    made.add(A, beside(direction(0), 0.99), [0], ["tool"])
    assert len(list(made.entries(A))) == 2


def test_the_same_prompt_of_another_tenant_is_another_entry() -> None:
    made = history(1)
    made.add(B, direction(0), [0], ["tool"])
    assert made.stats()["entries"] == 2


# Room.


def test_without_use_the_oldest_entry_makes_room() -> None:
    made = history(7, capacity=5)
    assert tokens_of(made.entries(A)) == [[6], [5], [4], [3], [2]]
    assert made.stats()["evicted"] == 2


def test_an_entry_whose_drafts_were_accepted_outlives_newer_ones() -> None:
    made = history(5, capacity=5)
    useful = list(made.entries(A))[-1]
    made.credit(useful, 40)
    for number in range(5, 12):
        made.add(A, direction(number), [number], [])

    assert useful in list(made.entries(A))
    assert (useful.used, useful.drafted) == (40, 1)


def test_an_entry_that_was_useful_once_is_not_kept_for_ever() -> None:
    made = history(5, capacity=5)
    useful = list(made.entries(A))[-1]
    made.credit(useful, 10**6)
    for number in range(5, 20):
        made.add(A, direction(number), [number], [])

    assert useful not in list(made.entries(A))


def test_a_draft_of_which_nothing_was_accepted_is_no_use() -> None:
    made = history(5, capacity=5)
    made.credit(list(made.entries(A))[-1], 0)
    made.add(A, direction(5), [5], [])

    assert [0] not in tokens_of(made.entries(A))


def test_credit_for_an_entry_that_has_left_changes_nothing() -> None:
    made = history(6, capacity=5)
    [gone] = history(1).entries(A)
    first = next(made.entries(A))
    made.forget()
    made.credit(first, 5)
    made.credit(gone, 5)

    assert first.used == 0
    assert made.stats()["entries"] == 0


def test_the_tenant_that_was_not_asked_about_for_longest_makes_room() -> None:
    made = history(max_tenants=3)
    for tenant in "abc":
        made.add(tenant, direction(0), [1], [])
    made.similar("a", direction(5))
    made.add("d", direction(0), [1], [])

    assert sorted(made.tenants()) == ["a", "c", "d"]
    assert made.stats()["entries"] == 3


def test_one_slot_is_enough_for_a_history() -> None:
    made = history(5, capacity=1)
    made.add(B, direction(9), [9], [])
    assert contents(made) == {B: [([9], (), 1006.0, 0, 0, B)]}


def test_forgetting_by_tenant_and_age() -> None:
    made = history(4)
    for number in range(3):
        made.add(B, direction(number), [number], [])

    assert made.forget(tenant="nobody") == 0
    assert made.forget(tenant=A, older_than=5.5) == 2  # made in seconds 1 to 4, and now is 8
    assert tokens_of(made.entries(A)) == [[3], [2]]
    assert made.forget(older_than=4.5) == 2  # and now it is 9: A's last
    assert made.forget() == 3
    assert made.stats()["entries"] == made.stats()["token_bytes"] == 0
    assert made.similar(A, direction(3)) == []


# What cannot be kept.

BAD_VECTORS = {
    "nan": [float("nan")] * DIM,
    "one nan": [1.0] * (DIM - 1) + [float("nan")],
    "infinite": [1.0] * (DIM - 1) + [float("-inf")],
    "beyond float32": [1e300] * DIM,
    "zero": [0.0] * DIM,
    "empty": [],
    "a number": 1.0,
    "a matrix": [[1.0] * DIM],
    "ragged": [[1.0], [1.0, 2.0]],
    "text": "vector",
    "none": None,
    "objects": [object()] * DIM,
    "another dimension": [1.0] * (DIM + 1),
}


@pytest.mark.parametrize("vector", BAD_VECTORS.values(), ids=BAD_VECTORS)
def test_a_vector_without_a_direction_makes_no_entry_and_finds_none(vector: Any) -> None:
    made = history(3)

    assert made.add(A, vector, [9], []) is False
    assert made.similar(A, vector) == []
    assert made.stats()["entries"] == 3
    assert made.stats()["refused"] == 1
    assert found_tokens(made, A, direction(1), 1) == [[1]]


@pytest.mark.parametrize(
    ("tenant", "tokens", "tools"),
    [
        (A, [], []),
        (A, [-1], []),
        (A, [2**31], []),
        (A, [2**70], []),
        (A, [1.5], []),
        (A, ["1"], []),
        (A, [[1], [2]], []),
        (A, None, []),
        (A, 7, []),
        (A, {1: 2}, []),
        (A, [1], "tool"),
        (A, [1], [None]),
        (A, [1], ["x" * (entries.MAX_NAME + 1)]),
        (A, [1], None),
        (None, [1], []),
        (["A"], [1], []),
        ("x" * (entries.MAX_TENANT + 1), [1], []),
    ],
)
def test_what_a_request_cannot_have_meant_is_refused_without_an_exception(
    tenant: Any, tokens: Any, tools: Any
) -> None:
    made = history()
    assert made.add(tenant, direction(0), tokens, tools) is False
    assert made.similar(tenant, direction(0)) == []
    assert made.stats()["entries"] == 0


def test_a_long_reply_and_many_tools_are_cut() -> None:
    made = history()
    made.add(A, direction(0), range(entries.MAX_TOKENS + 5), [str(n) for n in range(entries.MAX_TOOLS + 5)])

    [entry] = made.entries(A)
    assert entry.tokens.tolist() == list(range(entries.MAX_TOKENS))
    assert len(entry.tools) == entries.MAX_TOOLS


@pytest.mark.parametrize("bad", [{"capacity": 0}, {"max_tenants": 0}])
def test_a_history_without_room_is_misuse(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        History(**bad)


# One lock.


@pytest.mark.usefixtures("small_tables")
def test_threads_that_search_add_credit_and_forget_at_once() -> None:
    made = History(capacity=60)
    errors: list[BaseException] = []
    done = threading.Event()

    def adding(tenant: str) -> None:
        for number in range(150):
            made.add(tenant, direction(number % 90), [ord(tenant), number], [])
            if number % 50 == 49:
                made.forget(tenant)

    def asking(tenant: str) -> None:
        number = 0
        while not done.is_set():
            number += 1
            for entry, _ in made.similar(tenant, direction(number % 90), 5):
                assert entry.tokens[0] == ord(tenant)
                made.credit(entry, 1)
            made.stats()

    def guarded(work: Any, tenant: str) -> None:
        try:
            work(tenant)
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=guarded, args=(adding, tenant)) for tenant in "ab"]
    readers = [threading.Thread(target=guarded, args=(asking, tenant)) for tenant in "abab"]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()

    assert errors == []
    assert made.stats()["entries"] <= 60
