"""The suffix drafter: what followed the same tokens before, in which text, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.drafters import suffix
from sglang_toolspec.runtime.drafters.suffix import (
    GRAM,
    MAX_AHEAD,
    MAX_MATCH,
    MAX_PATHS,
    MAX_PLACES,
    SuffixDrafter,
    TokenText,
)

# Few tokens, so that they repeat.
texts = st.lists(st.integers(0, 2), max_size=40)


def text_of(tokens: Sequence[int], capacity: int = 1000) -> TokenText:
    text = TokenText(capacity)
    text.extend(tokens)
    return text


def drafter(prompt: Sequence[int], earlier: TokenText | None = None) -> SuffixDrafter:
    return SuffixDrafter(prompt, TokenText(1000) if earlier is None else earlier)


def offers(drafter: SuffixDrafter) -> list[tuple[int, ...]]:
    return [path.tokens for path in drafter.propose()]


def common_end(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    while length < min(len(left), len(right), MAX_MATCH) and left[-1 - length] == right[-1 - length]:
        length += 1
    return length


def searched(tokens: Sequence[int], recent: Sequence[int]) -> list[tuple[int, int]]:
    """``TokenText.matches`` by looking at every place."""
    places = [
        (common_end(tokens[:after], recent), after)
        for after in range(len(tokens), GRAM - 1, -1)
        if tokens[after - GRAM : after] == recent[-GRAM:]
    ]
    return [(length, after) for length, after in places[:MAX_PLACES] if after < len(tokens)]


# One text.


@given(texts, texts)
def test_matches_are_those_of_a_search_through_the_text(tokens: list[int], recent: list[int]) -> None:
    assert list(text_of(tokens).matches(recent)) == searched(tokens, recent)


@given(st.lists(texts, max_size=8), texts, st.integers(1, 12))
def test_a_full_text_forgets_its_beginning_and_answers_for_the_rest(
    chunks: list[list[int]], recent: list[int], capacity: int
) -> None:
    text, kept = TokenText(capacity), []
    for chunk in chunks:
        text.extend(chunk)
        kept += chunk
        kept = kept[-capacity:] if len(kept) > 2 * capacity else kept

        assert len(text) == len(kept) <= 2 * capacity
        assert list(text.matches(recent)) == searched(kept, recent)
        for _, after in text.matches(recent):
            assert text.between(after, after + MAX_AHEAD) == kept[after : after + MAX_AHEAD]


def test_the_index_of_a_text_is_bounded_like_the_text() -> None:
    text = TokenText(50)

    for start in range(0, 10_000, 7):
        text.extend(range(start, start + 7))

    assert len(text) <= 100
    assert len(text._latest) <= len(text)
    assert len(text._before) == len(text)


@given(texts, st.integers(0, 40))
def test_how_a_text_is_cut_into_chunks_changes_nothing(tokens: list[int], at: int) -> None:
    chunked = text_of(tokens[:at])
    chunked.extend(tokens[at:])

    assert list(chunked.matches(tokens)) == list(text_of(tokens).matches(tokens))


# Where it is copied from.


def test_the_longest_match_wins_though_a_shorter_one_is_later() -> None:
    prompt = [5, 1, 2, 30, 31, 6, 1, 2, 40, 41]
    #         ───────  this place               ──── is later

    assert offers(drafter([*prompt, 5, 1, 2])) == [(30, 31, 6, 1, 2, 40, 41, 5, 1, 2), (40, 41, 5, 1, 2)]


def test_of_equal_matches_the_latest_comes_first() -> None:
    assert [path[0] for path in offers(drafter([1, 2, 30, 1, 2, 40, 1, 2, 50, 0, 1, 2]))] == [50, 40, 30]


def test_the_reply_itself_is_copied_from() -> None:
    request = drafter([7])

    request.commit([1, 2, 3, 4])
    assert offers(request) == []
    request.commit([1, 2])

    assert offers(request) == [(3, 4, 1, 2)]


def test_the_match_may_begin_in_the_prompt_and_end_in_the_reply() -> None:
    request = drafter([1, 2, 3, 4, 9, 1])

    request.commit([2])

    assert offers(request) == [(3, 4, 9, 1, 2)]


def test_earlier_replies_and_the_prompt_compete_by_the_length_of_the_match() -> None:
    earlier = text_of([5, 1, 2, 60])

    assert offers(drafter([1, 2, 30, 5, 1, 2], earlier))[0] == (60,)
    assert offers(drafter([5, 1, 2, 30, 5, 1, 2], earlier))[0] == (60,)
    assert offers(drafter([0, 5, 1, 2, 30, 0, 5, 1, 2], earlier))[0][0] == 30


@pytest.mark.parametrize("prompt", [[], [1], [1, 2], [1, 1]], ids=str)
def test_nothing_is_known_at_first(prompt: list[int]) -> None:
    request = drafter(prompt)

    assert offers(request) == []
    request.commit([3])
    assert offers(request) == []


# Requests of one tenant.


def test_a_reply_helps_later_requests_once_it_has_ended() -> None:
    earlier = TokenText(1000)
    first, second = drafter([7], earlier), drafter([8], earlier)
    first.commit([1, 2, 3, 4])
    second.commit([1, 2])
    assert offers(second) == []

    first.close()

    assert offers(second) == [(3, 4)]
    third = drafter([9], earlier)
    third.commit([1, 2])
    assert offers(third) == [(3, 4)]


def test_a_prompt_is_never_handed_to_later_requests() -> None:
    earlier = TokenText(1000)
    first = drafter([1, 2, 3, 4], earlier)
    first.commit([9])

    first.close()

    assert len(earlier) == 1
    assert offers(drafter([1, 2], earlier)) == []


def test_closing_twice_hands_a_reply_over_once() -> None:
    earlier = TokenText(1000)
    request = drafter([7], earlier)
    request.commit([1, 2, 3])

    request.close()
    request.close()

    assert len(earlier) == 3


def test_replies_that_are_written_in_turn_do_not_mix() -> None:
    earlier = TokenText(1000)
    requests = [drafter([7], earlier), drafter([7], earlier)]
    for left, right in zip([1, 2, 3, 4], [11, 12, 13, 14], strict=True):
        requests[0].commit([left])
        requests[1].commit([right])
    for request in requests:
        request.close()

    assert offers(drafter([1, 2], earlier))[0][:2] == (3, 4)
    assert offers(drafter([11, 12], earlier))[0] == (13, 14)
    assert offers(drafter([2, 12], earlier)) == []


# What is offered.


@given(texts, texts, st.lists(texts, max_size=4))
def test_offers_are_texts_that_stand_there_with_falling_weights(
    earlier: list[int], prompt: list[int], steps: list[list[int]]
) -> None:
    request, own = drafter(prompt, text_of(earlier)), list(prompt)
    for step in steps:
        request.commit(step)
        own += step

        paths = request.propose()

        best = max((length for text in (earlier, own) for length, _ in searched(text, own)), default=0)
        assert bool(paths) == (best > 0)
        assert len(paths) <= MAX_PATHS
        assert len({path.tokens for path in paths}) == len(paths)
        for rank, path in enumerate(paths):
            assert 0 < len(path.tokens) <= MAX_AHEAD
            assert len(path.tokens) == len(path.weights) == len(path.sources)
            assert set(path.sources) == {"suffix"}
            assert list(path.weights) == sorted(path.weights, reverse=True)
            assert all(0 < weight <= 1 for weight in path.weights)
            places = [
                length
                for text in (earlier, own)
                for length, after in searched(text, own)
                if tuple(text[after : after + MAX_AHEAD]) == path.tokens
            ]
            assert places
            if rank == 0:
                assert max(places) == best


def test_longer_matches_are_believed_more() -> None:
    long, short = drafter([5, 6, 1, 2, 3, 5, 6, 1, 2]), drafter([1, 2, 3, 5, 1, 2])

    assert long.propose()[0].weights[0] > short.propose()[0].weights[0]


def test_the_second_best_is_believed_less() -> None:
    first, second = drafter([1, 2, 3, 9, 1, 2, 4, 8, 1, 2]).propose()

    assert first.weights[0] > second.weights[0]


def test_a_long_prompt_is_remembered_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix, "PROMPT_TOKENS", 10)

    request = drafter([1, 2, 3, *range(100, 108), 1, 2])

    assert offers(request) == []
    assert len(request._own) == 10
