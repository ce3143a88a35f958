"""Where replies end: what the last step accepted behind the end is nobody's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sglang_toolspec.runtime.engine.ending import Ending
from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.session import Faults
from tests import fakes


def ending(tokenizer: Any = None, eos: set[int] | None = None, **params: Any) -> Ending:
    return Ending.of(
        fakes.request(tokenizer=tokenizer, eos_token_ids=eos, sampling_params=fakes.sampling(**params))
    )


TOKENIZER = SimpleNamespace(eos_token_id=7, additional_stop_token_ids={8})


@pytest.mark.parametrize(
    ("found", "cut"),
    [
        (ending(), [1, 2, 7, 8, 9, 7]),
        (ending(eos={9}), [1, 2, 7, 8, 9]),
        (ending(eos={9}, stop_token_ids={8}), [1, 2, 7, 8]),
        (ending(TOKENIZER, eos={9}), [1, 2, 7]),
        (ending(SimpleNamespace(eos_token_id=None), eos={1}), [1]),
        (ending(TOKENIZER, eos={9}, stop_token_ids={8}, ignore_eos=True), [1, 2, 7, 8, 9, 7]),
        (ending(TOKENIZER, max_new_tokens=2), [1, 2]),
        (ending(TOKENIZER, max_new_tokens=3), [1, 2, 7]),
        (ending(max_new_tokens=6), [1, 2, 7, 8, 9, 7]),
    ],
)
def test_a_reply_ends_where_the_engine_ends_it(found: Ending, cut: list[int]) -> None:
    assert list(found.cut([1, 2, 7, 8, 9, 7])) == cut


def test_an_unfinished_reply_stays_whole() -> None:
    assert list(ending(eos={9}, max_new_tokens=50).cut([1, 2])) == [1, 2]
    assert list(ending().cut([])) == []


def test_what_was_accepted_behind_the_end_of_a_reply_is_not_learned() -> None:
    """Replies are kept one after another: behind an end the next reply is drafted, and some of it
    may be accepted."""
    faults = Faults(fakes.no_fault)
    table = SessionTable(fakes.factory(sources=frozenset({"suffix"})), faults)
    first = fakes.request("q", rid="first")
    first.output_ids.extend(b"a")
    table.draft(first, [], 8)

    first.output_ids.extend([*b"bc", fakes.END, *b"secret"])
    table.keep_only([])

    second = fakes.request("q", rid="second")
    second.output_ids.extend(b"ab")
    tree = table.draft(second, [], 32)
    assert tree.tokens[1:] == [*b"c", fakes.END]
