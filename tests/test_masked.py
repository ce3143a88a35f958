"""Masked requests: the matcher behind a grammar, and the text that it forces."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import xgrammar

from sglang_toolspec.runtime.engine.masked import (
    ForcedTextDrafter,
    is_masked,
    legality,
    matcher_of,
    may_think,
)
from sglang_toolspec.runtime.tree import merge
from tests.letters import AB, END, GRAMMARS, VOCAB, A, B, C, allowed, matcher

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


def test_while_a_model_thinks_its_grammar_rests_and_begins_right_behind() -> None:
    inner = SimpleNamespace(matcher=matcher(GRAMMARS["one text"]), accept_token=None)
    wrapper = reasoner(inner)
    assert matcher_of(wrapper) is None
    assert legality(wrapper) is None

    wrapper.transfer_state(7)

    assert matcher_of(wrapper) is inner.matcher
    legal = legality(wrapper)
    assert legal is not None
    assert legal([A])
    assert not legal([B])


def test_a_wrapper_without_a_grammar_masks_nothing() -> None:
    assert not is_masked(None)
    assert not is_masked(reasoner(None))
    assert is_masked(reasoner(SimpleNamespace(matcher=None)))
    assert is_masked(SimpleNamespace(matcher=None))
    assert matcher_of(reasoner(None)) is None
    assert legality(reasoner(None)) is None


def test_a_reply_thinks_unless_a_mask_holds_it_at_once() -> None:
    assert may_think(None)
    assert may_think(reasoner(SimpleNamespace(matcher=None)))
    assert not may_think(SimpleNamespace(matcher=None))


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
    assert len(merge(0, [path], 8, len(VOCAB), legal=legality(SimpleNamespace(matcher=requests)))) == 4


def test_other_backends_force_nothing() -> None:
    req = SimpleNamespace(grammar=SimpleNamespace(ll_matcher=object()))
    drafter = ForcedTextDrafter(req, Codec())

    assert drafter.propose() == []
    drafter.close()
