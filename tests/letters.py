"""Grammars of a few letters, with a vocabulary of their own, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import xgrammar

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


def mask(matcher: Any) -> list[int]:
    """The tokens' bits; ``matcher`` must not have ended."""
    bits = xgrammar.allocate_token_bitmask(1, len(VOCAB))
    matcher.fill_next_token_bitmask(bits)
    return list(bits.tolist())
