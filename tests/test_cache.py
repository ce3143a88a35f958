"""Compiled grammars in memory: never late, never without bound."""

import json
import threading

import pytest
import xgrammar

from sglang_toolspec.grammars.cache import (
    GrammarCache,
    Limits,
    Recipe,
    Vocabulary,
    constraint_recipe,
    draft_recipe,
)
from sglang_toolspec.grammars.compile import forced_text, matcher
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.layout import COMPACT, SPACED
from sglang_toolspec.grammars.tools import ToolSet
from tests.toolsets import GET_TIME


def literal(text, **more):
    """A recipe of a grammar that is ``text``."""
    ebnf = f"root ::= {json.dumps(text)}"
    return Recipe(f"literal {text}", len(text), lambda: xgrammar.Grammar.from_ebnf(ebnf), **more)


def broken(key="broken", **more):
    def fail():
        raise RuntimeError("no grammar at all")

    return Recipe(key, 1, fail, **more)


def vocabulary(*extra):
    tokens = [bytes([i]) for i in range(256)] + [*extra, b"</s>"]
    return Vocabulary.of(xgrammar.TokenizerInfo(tokens, stop_token_ids=[len(tokens) - 1]))


def forced(cache, recipe):
    return forced_text(matcher(cache.get(recipe)))


@pytest.fixture
def gate():
    """Whoever waits for it hangs until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def hanging(gate, key="hanging", **more):
    def wait():
        assert gate.wait(60)
        return xgrammar.Grammar.from_ebnf('root ::= "late"')

    return Recipe(key, 1, wait, **more)


def test_get_does_not_wait_for_a_compilation(gate):
    cache, recipe = GrammarCache(), hanging(gate)
    cache.prepare([recipe])
    assert cache.get(recipe) is None
    assert not cache.settled([recipe])
    gate.set()
    cache.compile_now([recipe])
    assert cache.settled([recipe])
    assert forced(cache, recipe) == "late"


def test_what_is_prepared_twice_is_compiled_once():
    cache, recipe = GrammarCache(), literal("a")
    for _ in range(3):
        cache.prepare([recipe, recipe])
    cache.compile_now([recipe])
    assert cache.counts.compiled == 1


def test_formats_and_layouts_of_one_tool_set_are_apart():
    cache, tools = GrammarCache(), ToolSet.from_openai([GET_TIME])
    recipes = [draft_recipe(tools, FORMATS["bare"], preset) for preset in (SPACED, COMPACT)]
    recipes += [draft_recipe(tools, FORMATS["hermes"], SPACED)]
    cache.compile_now(recipes)
    assert [forced(cache, recipe)[:9] for recipe in recipes] == ['{"name": ', '{"name":"', "<tool_cal"]


def test_equal_tools_share_an_entry_whoever_sends_them():
    recipes = [draft_recipe(ToolSet.from_openai([GET_TIME]), FORMATS["bare"], SPACED) for _ in range(2)]
    cache = GrammarCache()
    cache.compile_now(recipes)
    assert recipes[0] == recipes[1]
    assert cache.counts.compiled == 1


def test_the_least_recently_used_goes_when_the_bytes_are_used_up():
    cache = GrammarCache()
    first, second, third = literal("a" * 50), literal("b" * 50), literal("c" * 50)
    cache.compile_now([first])
    cache = GrammarCache(limits=Limits(bytes=2 * cache.bytes))
    cache.compile_now([first, second])
    assert cache.get(first) is not None
    cache.compile_now([third])
    assert [cache.get(r) is None for r in (first, second, third)] == [False, True, False]
    assert 0 < cache.bytes <= cache._limits.bytes


def test_a_grammar_larger_than_all_is_kept_alone():
    cache = GrammarCache(limits=Limits(bytes=1))
    cache.compile_now([literal("a"), literal("b")])
    assert [cache.get(literal(t)) is None for t in "ab"] == [True, False]


def test_failures_are_heard_once_for_each_subject():
    heard = []
    cache = GrammarCache(on_failure=heard.append)
    cache.compile_now([broken("x", subject="tool set 1"), broken("y", subject="tool set 1"), literal("a")])
    assert heard == ["tool set 1: no grammar at all"]
    assert cache.failed(broken("x"))
    assert not cache.failed(literal("a"))
    assert cache.counts.failed == 2


def test_what_failed_is_not_tried_again():
    heard = []
    cache = GrammarCache(on_failure=heard.append)
    for _ in range(2):
        cache.compile_now([broken()])
    assert len(heard) == 1
    assert cache.counts.failed == 1


def test_a_callback_that_fails_stops_nothing():
    cache = GrammarCache(on_failure=lambda reason: 1 / 0)
    cache.compile_now([broken(), literal("a")])
    assert forced(cache, literal("a")) == "a"


def test_a_compilation_that_hangs_is_left_to_itself(gate):
    heard = []
    cache = GrammarCache(limits=Limits(seconds=0.05), on_failure=heard.append)
    cache.compile_now([hanging(gate), literal("a")])
    assert "took longer than 0.05 s" in heard[0]
    assert cache.counts.abandoned == 1
    assert forced(cache, literal("a")) == "a"


def test_what_comes_late_is_not_used(gate):
    cache = GrammarCache(limits=Limits(seconds=0.05))
    cache.compile_now([hanging(gate)])
    gate.set()
    while cache._stuck:
        threading.Event().wait(0.01)
    assert cache.get(hanging(gate)) is None
    assert cache.failed(hanging(gate))


def test_nothing_is_compiled_while_too_many_threads_hang(gate):
    heard = []
    limits = Limits(seconds=0.05, abandoned=1)
    cache = GrammarCache(limits=limits, on_failure=heard.append)
    cache.compile_now([hanging(gate), literal("a")])
    assert "still being compiled" in heard[1]
    gate.set()
    while cache._stuck:
        threading.Event().wait(0.01)
    cache.compile_now([literal("b")])
    assert forced(cache, literal("b")) == "b"


def test_what_is_too_large_is_refused_before_it_is_compiled():
    heard = []
    cache = GrammarCache(limits=Limits(source_bytes=10), on_failure=heard.append)
    cache.compile_now([literal("a" * 11)])
    assert "11 bytes of schemas are more than 10" in heard[0]
    assert cache.counts.compiled == 0


def test_a_full_queue_takes_no_more(gate):
    cache = GrammarCache(limits=Limits(waiting=1))
    cache.prepare([hanging(gate)])
    cache.prepare([literal(t) for t in "abc"])
    assert not cache.settled([literal("a")]) or not cache.settled([hanging(gate)])
    assert cache.settled([literal("c")])


def test_constraints_need_a_vocabulary():
    heard = []
    tools = ToolSet.from_openai([GET_TIME])
    recipe = constraint_recipe(tools, "qwen25", "required", True)
    GrammarCache(on_failure=heard.append).compile_now([recipe])
    assert "masks need a vocabulary" in heard[0]


def test_a_constraint_masks_the_tokens_of_its_vocabulary():
    words = vocabulary(b"<tool_call>", b"<tool")
    cache = GrammarCache(words)
    recipe = constraint_recipe(ToolSet.from_openai([GET_TIME]), "qwen25", "required", True)
    cache.compile_now([recipe])
    mask = xgrammar.allocate_token_bitmask(1, words.info.vocab_size)
    xgrammar.GrammarMatcher(cache.get(recipe)).fill_next_token_bitmask(mask)
    allowed = [i for i in range(words.info.vocab_size) if mask[0][i // 32] >> (i % 32) & 1]
    assert allowed == [ord("<"), 256, 257]


def test_nothing_to_constrain_is_no_recipe():
    assert constraint_recipe(ToolSet.from_openai([GET_TIME]), "qwen25", "auto", False) is None
