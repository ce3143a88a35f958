"""The drafts of a masked request are those that its grammar allows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import xgrammar
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.engine.masked import Legality
from sglang_toolspec.runtime.tree import DraftPath, DraftTree, merge
from tests.letters import AB, CA, END, GRAMMARS, VOCAB, A, B, C, allowed, mask, matcher
from tests.random_trees import path_of

ROOT = 99


def draft(*tokens: int, weight: float = 0.9) -> DraftPath:
    return DraftPath(tokens, (weight,) * len(tokens), ("schema",) * len(tokens))


def legal_tree(paths: Iterable[DraftPath], matcher: Any, budget: int = 1000) -> DraftTree:
    return merge(ROOT, paths, budget, len(VOCAB), legal=Legality(matcher))


def tokens_to(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[i] for i in path_of(tree.parents, node)[1:])


PATHS = st.lists(
    st.builds(
        lambda tokens, weight: draft(*tokens, weight=weight),
        st.lists(st.integers(0, len(VOCAB) - 1), min_size=1, max_size=5),
        st.floats(0.1, 1),
    ),
    max_size=8,
)


@given(st.sampled_from(sorted(GRAMMARS.values())), PATHS, st.integers(1, 12), st.data())
def test_a_tree_holds_the_likeliest_drafts_of_those_that_the_grammar_accepts(
    grammar: str, paths: list[DraftPath], budget: int, data: st.DataObject
) -> None:
    requests = matcher(grammar)
    committed: list[int] = []
    for _ in range(data.draw(st.integers(0, 4))):
        if choices := [token for token in allowed(requests) if token != END]:
            committed.append(data.draw(st.sampled_from(choices)))
            requests.accept_token(committed[-1])

    def accepted(path: Sequence[int]) -> bool:
        fresh = matcher(grammar, committed)
        return all(not fresh.is_terminated() and fresh.accept_token(token) for token in path)

    every = merge(ROOT, paths, 1000, len(VOCAB))
    legal = [0, *(node for node in range(1, len(every)) if accepted(tokens_to(every, node)))]
    found = legal_tree(paths, requests, budget)

    assert [tokens_to(found, node) for node in range(len(found))] == [
        tokens_to(every, node) for node in legal[:budget]
    ]
    assert found.weights == [every.weights[node] for node in legal[:budget]]


def test_the_drawn_example() -> None:
    """
    99 ─┬─ ab ─┬─ c ── ⏹          "abc" is the only text
        │      └─ b ── c
        └─ a ─── b ── c ── c
    """
    paths = [draft(AB, C, END), draft(AB, B, C), draft(A, B, C, C)]

    found = legal_tree(paths, matcher(GRAMMARS["one text"]))

    assert {tokens_to(found, node) for node in range(len(found))} == {
        (), (AB,), (AB, C), (AB, C, END), (A,), (A, B), (A, B, C),
    }  # fmt: skip


def test_drafts_that_are_refused_take_no_room() -> None:
    """They are likelier than the one that is legal, and more than the tree may hold."""
    refused = [draft(token, B, C, weight=0.95) for token in (B, C, CA)]

    found = legal_tree([*refused, draft(AB, C, weight=0.2)], matcher(GRAMMARS["one text"]), budget=3)

    assert found.tokens == [ROOT, AB, C]


def test_nothing_follows_the_end() -> None:
    assert legal_tree([draft(C, END, C)], matcher(GRAMMARS["any"])).tokens == [ROOT, C, END]


def test_a_sibling_of_the_end_is_tried_as_if_it_had_not_ended() -> None:
    paths = [draft(END, C), draft(C, weight=0.5)]

    assert legal_tree(paths, matcher(GRAMMARS["any"])).tokens == [ROOT, END, C]


def test_the_requests_own_matcher_stays_where_it_is() -> None:
    requests = matcher(GRAMMARS["pairs"], [AB])
    before = allowed(requests), mask(requests), requests.find_jump_forward_string()

    legal_tree([draft(C, A, END, B), draft(AB, C), draft(END)], requests)

    assert (allowed(requests), mask(requests), requests.find_jump_forward_string()) == before
    assert not requests.is_terminated()
    requests.rollback(1)
    assert allowed(requests) == allowed(matcher(GRAMMARS["pairs"]))


class Counting:
    """A matcher that accepts anything, and notes what it is told."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self.rolled_back: list[int] = []

    def fork(self) -> Counting:
        return self

    def is_terminated(self) -> bool:
        return False

    def accept_token(self, token: int) -> bool:
        self.accepted.append(token)
        return True

    def rollback(self, count: int) -> None:
        self.rolled_back.append(count)


def test_only_the_tokens_after_the_branching_are_taken_back() -> None:
    """Rolling back nothing empties the history of some matchers, and a longer way costs more."""
    counting = Counting()
    legal = Legality(counting)

    for path in ([1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 5], [6]):
        assert legal(path)

    assert counting.accepted == [1, 2, 3, 4, 5, 6]
    assert counting.rolled_back == [1, 4]


# What users of this field ran into.


def test_nothing_is_drafted_behind_the_end_of_a_constant() -> None:
    """SGLang's scheduler died of the mask of a matcher that had ended (a schema ``{const: 1}``)."""
    tokens = [b"1", b"2", b"</s>"]
    info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, stop_token_ids=[2])
    grammar = xgrammar.GrammarCompiler(info).compile_json_schema(json.dumps({"const": 1}))
    paths = [draft(0, 2, 2, 2), draft(0, 0), draft(1)]

    found = merge(ROOT, paths, 64, 3, legal=Legality(xgrammar.GrammarMatcher(grammar)))

    assert found.tokens == [ROOT, 0, 2]


def test_a_stop_token_that_a_tag_ends_with_does_no_harm() -> None:
    """xgrammar may refuse it there: its draft is left out, and the rest stays."""
    tokens = [b"<", b"x", b">", b"</s>"]
    info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, stop_token_ids=[2, 3])
    tag = {"type": "tag", "begin": "<", "content": {"type": "const_string", "value": "x"}, "end": ">"}
    text = json.dumps({"type": "structural_tag", "format": tag})
    grammar = xgrammar.GrammarCompiler(info).compile_structural_tag(text)

    found = merge(ROOT, [draft(0, 1, 2, 3)], 64, 4, legal=Legality(xgrammar.GrammarMatcher(grammar)))

    assert found.tokens[:3] == [ROOT, 0, 1]


def test_accepting_the_end_is_taken_back_as_any_other_token() -> None:
    requests = matcher(GRAMMARS["pairs"], [AB])
    before = mask(requests)
    fork = requests.fork()
    assert fork.accept_token(END)

    fork.rollback(1)

    assert not fork.is_terminated()
    assert mask(fork) == before
    assert fork.accept_token(C)
