"""Masked requests: which drafts their grammar allows, and which text it forces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import xgrammar
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.engine.masked import (
    ForcedTextDrafter,
    is_masked,
    legal_nodes,
    matcher_of,
)
from sglang_toolspec.runtime.tree import DraftTree
from tests.random_trees import path_of

VOCAB = [b"a", b"b", b"c", b"ab", b"ca", b"\xc3", b"\xa9", b"\xa8", b"</s>"]
A, B, C, AB, CA, END = 0, 1, 2, 3, 4, 8

GRAMMARS = {
    "one text": 'root ::= "abc"',
    "any": "root ::= [abc]*",
    "pairs": 'root ::= ("ab" | "c")* "a"?',
    "nested": 'root ::= "a" root "b" | "c"',
    "characters": 'root ::= "a" ("é" | "è") "b"*',
}


@cache
def compiled(grammar: str) -> Any:
    info = xgrammar.TokenizerInfo(VOCAB, xgrammar.VocabType.RAW, stop_token_ids=[END])
    return xgrammar.GrammarCompiler(info).compile_grammar(grammar)


def matcher(grammar: str, committed: Sequence[int] = ()) -> Any:
    found = xgrammar.GrammarMatcher(compiled(grammar))
    assert all(map(found.accept_token, committed))
    return found


def allowed(matcher: Any) -> list[int]:
    """Every next token, by asking for each; empty once the end is accepted."""
    if matcher.is_terminated():
        return []
    return [token for token in range(len(VOCAB)) if matcher.fork().accept_token(token)]


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    tree = DraftTree.root_only(99)
    for node in range(1, draw(st.integers(1, 14))):
        parent = draw(st.integers(0, node - 1))
        token = draw(st.integers(0, len(VOCAB) - 1))
        tree.add(token, parent, 1.0 / node, f"from {node}")
    return tree


def tokens_to(tree: DraftTree, node: int) -> list[int]:
    return [tree.tokens[i] for i in path_of(tree.parents, node)[1:]]


# Legal nodes.


@given(st.sampled_from(sorted(GRAMMARS.values())), trees(), st.data())
def test_the_nodes_that_stay_are_those_whose_path_the_grammar_accepts(
    grammar: str, tree: DraftTree, data: st.DataObject
) -> None:
    requests = matcher(grammar)
    committed: list[int] = []
    for _ in range(data.draw(st.integers(0, 4))):
        if choices := [token for token in allowed(requests) if token != END]:
            committed.append(data.draw(st.sampled_from(choices)))
            requests.accept_token(committed[-1])

    kept = legal_nodes(tree, requests)

    def accepted(path: list[int]) -> bool:
        fresh = matcher(grammar, committed)
        return all(not fresh.is_terminated() and fresh.accept_token(token) for token in path)

    legal = [0, *(i for i in range(1, len(tree)) if accepted(tokens_to(tree, i)))]
    assert kept.tokens == [tree.tokens[i] for i in legal]
    assert kept.weights == [tree.weights[i] for i in legal]
    assert kept.sources == [tree.sources[i] for i in legal]
    assert [tokens_to(kept, i) for i in range(len(kept))] == [tokens_to(tree, i) for i in legal]
    assert all(0 <= parent < i for i, parent in enumerate(kept.parents) if i)


def chain(*tokens: int) -> DraftTree:
    tree = DraftTree.root_only(99)
    for token in tokens:
        tree.add(token, len(tree) - 1, 0.5, "schema")
    return tree


def test_the_drawn_example() -> None:
    """
    99 ─┬─ ab ─┬─ c ── ⏹          "abc" is the only text
        │      └─ b ── c
        └─ a ─── b ── c ── c
    """
    tree = DraftTree(
        [99, AB, A, C, B, B, END, C, C, C], [-1, 0, 0, 1, 1, 2, 3, 4, 5, 8], [0.5] * 10, ["s"] * 10
    )

    kept = legal_nodes(tree, matcher(GRAMMARS["one text"]))

    assert kept.tokens == [99, AB, A, C, B, END, C]
    assert kept.parents == [-1, 0, 0, 1, 2, 3, 4]


def test_a_tree_that_is_legal_as_a_whole_is_left_alone() -> None:
    tree = chain(A, B, C, END)

    assert legal_nodes(tree, matcher(GRAMMARS["one text"])) is tree


def test_nothing_follows_the_end() -> None:
    kept = legal_nodes(chain(C, END, C), matcher(GRAMMARS["any"]))

    assert kept.tokens == [99, C, END]


def test_a_sibling_of_the_end_is_tried_as_if_it_had_not_ended() -> None:
    tree = DraftTree([99, END, C, C], [-1, 0, 0, 1], [1.0] * 4, [""] * 4)

    assert legal_nodes(tree, matcher(GRAMMARS["any"])).tokens == [99, END, C]


def test_the_requests_own_matcher_stays_where_it_is() -> None:
    requests = matcher(GRAMMARS["pairs"], [AB])
    before = allowed(requests), requests.find_jump_forward_string()

    legal_nodes(chain(C, A, END, B), requests)

    assert (allowed(requests), requests.find_jump_forward_string()) == before
    assert not requests.is_terminated()
    requests.rollback(1)
    assert allowed(requests) == allowed(matcher(GRAMMARS["pairs"]))


# A request's matcher.


def test_the_matcher_of_an_xgrammar_request_is_found_until_the_reply_ends() -> None:
    grammar = SimpleNamespace(matcher=matcher(GRAMMARS["one text"], [A, B, C]))
    assert matcher_of(grammar) is grammar.matcher

    grammar.matcher.accept_token(END)

    assert matcher_of(grammar) is None


@pytest.mark.parametrize(
    "grammar", [None, SimpleNamespace(ll_matcher=object()), SimpleNamespace(matcher=None)]
)
def test_other_backends_have_no_matcher(grammar: Any) -> None:
    assert matcher_of(grammar) is None


def reasoner(inner: Any) -> Any:
    """SGLang's wrapper, with token 7 as the end of thinking."""
    from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarObject

    wrapper = ReasonerGrammarObject(inner, think_end_ids=[7])
    wrapper.maybe_init_reasoning(True)
    return wrapper


def test_while_a_model_thinks_its_grammar_rests() -> None:
    inner = SimpleNamespace(matcher=matcher(GRAMMARS["one text"]), accept_token=None)
    wrapper = reasoner(inner)
    assert matcher_of(wrapper) is None

    wrapper.transfer_state(7)

    assert matcher_of(wrapper) is inner.matcher


def test_a_wrapper_without_a_grammar_masks_nothing() -> None:
    assert not is_masked(None)
    assert not is_masked(reasoner(None))
    assert is_masked(reasoner(SimpleNamespace(matcher=None)))
    assert is_masked(SimpleNamespace(matcher=None))
    assert matcher_of(reasoner(None)) is None


# Forced text.


class Codec:
    """Longest tokens first; characters that no token spells cannot be encoded."""

    end_of_turn: int | None = END

    def encode(self, text: str, literal: bool = False) -> tuple[int, ...]:
        assert literal
        data, tokens = text.encode(), []
        while data:
            token = max((i for i, t in enumerate(VOCAB) if data.startswith(t)), key=lambda i: len(VOCAB[i]))
            tokens.append(token)
            data = data[len(VOCAB[token]) :]
        return tuple(tokens)


def forced(grammar: str, committed: Sequence[int] = (), codec: Codec | None = None) -> tuple[int, ...]:
    """Tokens of the only path that is offered; empty where there is none."""
    req = SimpleNamespace(grammar=SimpleNamespace(matcher=matcher(grammar, committed)))
    paths = ForcedTextDrafter(req, codec or Codec()).propose()
    assert len(paths) <= 1
    for path in paths:
        assert len(path.tokens) == len(path.weights) == len(path.sources)
        assert list(path.weights) == sorted(path.weights, reverse=True)
        assert set(path.sources) == {"grammar"}
    return paths[0].tokens if paths else ()


def test_the_only_text_is_offered_to_its_end() -> None:
    assert forced(GRAMMARS["one text"]) == (AB, C, END)
    assert forced(GRAMMARS["one text"], [A]) == (B, C, END)
    assert forced(GRAMMARS["one text"], [A, B, C]) == (END,)


def test_forced_text_stops_at_a_choice() -> None:
    assert forced('root ::= "ab" ("a" | "c")') == (AB,)
    assert forced('root ::= "ab" ("a" | "c")', [AB]) == ()


def test_the_end_is_offered_where_a_reply_may_end_but_need_not() -> None:
    assert forced(GRAMMARS["any"]) == (END,)
    assert forced('root ::= "ab" "c"*') == (AB, END)


def test_the_text_of_a_regular_expression_is_offered() -> None:
    grammar = str(xgrammar.Grammar.from_regex("ab(c|ca)"))

    assert forced(grammar) == (AB, C, END)


def test_half_of_a_character_is_not_offered() -> None:
    """``é`` and ``è`` share their first byte, which is forced."""
    assert forced(GRAMMARS["characters"]) == (A,)
    assert forced(GRAMMARS["characters"], [A]) == ()
    assert forced(GRAMMARS["characters"], [A, 5]) == ()


def test_without_an_end_token_nothing_ends() -> None:
    codec = Codec()
    codec.end_of_turn = None

    assert forced(GRAMMARS["one text"], codec=codec) == (AB, C)
    assert forced(GRAMMARS["any"], codec=codec) == ()


def test_a_reply_that_has_ended_is_offered_nothing() -> None:
    assert forced(GRAMMARS["one text"], [AB, C, END]) == ()


def test_what_is_offered_is_legal_and_asking_moves_nothing() -> None:
    requests = matcher(GRAMMARS["nested"], [A, A])
    drafter = ForcedTextDrafter(SimpleNamespace(grammar=SimpleNamespace(matcher=requests)), Codec())
    before = allowed(requests)

    assert drafter.propose() == drafter.propose() == []
    drafter.commit([C])  # SGLang moves the matcher, not the drafter
    assert allowed(requests) == before

    requests.accept_token(C)
    (path,) = drafter.propose()
    assert path.tokens == (B, B, END)
    assert len(legal_nodes(chain(*path.tokens), requests)) == 4


def test_other_backends_force_nothing() -> None:
    req = SimpleNamespace(grammar=SimpleNamespace(ll_matcher=object()))
    drafter = ForcedTextDrafter(req, Codec())

    assert drafter.propose() == []
    drafter.close()
