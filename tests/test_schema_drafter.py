"""The schema drafter on byte tokens, its grammar cache, and drafting that never changes a reply."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.compile import GrammarCache
from sglang_toolspec.grammars.formats import DIALECTS, dialects_for
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.drafters.schema import MAX_PATH_TOKENS, SchemaDrafter
from sglang_toolspec.runtime.session import Faults, Session
from tests.toolsets import ASSISTANT, LEGAL_CALLS, assistant, tool, write_call

END = 256
TAG = (DIALECTS["tag"],)
ALL = dialects_for("qwen25")
WEATHER = write_call("tag", "get_weather", {"city": "Oslo"})


class ByteCodec:
    """One token a byte, and an end token."""

    vocab_size = 257
    stop_ids = frozenset([END])
    end_of_turn = END

    def __init__(self):
        self.literal = set()

    def encode(self, text, literal=False):
        self.literal.add(literal)
        return tuple(text.encode())

    def text_of(self, token):
        return bytes([token]) if 0 <= token < 256 else b""


class HeldCache(GrammarCache):
    """Its background thread starts to compile when ``go`` is set."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()
        self.compiled = 0

    def _compile_all(self, tools, dialects):
        assert self.go.wait(10)
        self.compiled += 1
        super()._compile_all(tools, dialects)


@pytest.fixture(scope="module")
def cache():
    shared = GrammarCache()
    shared.compile_now(assistant(), ALL)
    return shared


def drafter(cache, dialects=TAG, tools=None, codec=None, **more):
    return SchemaDrafter(tools or assistant(), dialects, cache, codec or ByteCodec(), prior={}, **more)


def texts(paths):
    return [bytes(t for t in path.tokens if t != END).decode() for path in paths]


def until_settled(cache, tools, dialects):
    deadline = time.monotonic() + 10
    while not cache.settled(tools, dialects):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def no_fault(where, error):
    raise AssertionError(where) from error


# Proposals.


def test_a_reply_starts_with_drafts_of_a_call(cache):
    skeleton = WEATHER.partition("Oslo")[0]
    assert skeleton[:MAX_PATH_TOKENS] in texts(drafter(cache).propose())


def test_weights_never_grow_along_a_path(cache):
    for path in drafter(cache, ALL).propose():
        assert list(path.weights) == sorted(path.weights, reverse=True)
        assert len(path.weights) == len(path.tokens) <= MAX_PATH_TOKENS
        assert path.source == "schema"


def test_after_a_complete_call_the_end_of_the_turn_is_drafted_first(cache):
    schema = drafter(cache)
    schema.commit(list(WEATHER.encode()))
    assert schema.propose()[0].tokens == (END,)


def test_the_end_of_the_turn_follows_a_call_that_is_drafted_to_its_end(cache):
    schema = drafter(cache)
    schema.commit(list(WEATHER[:-5].encode()))
    assert schema.propose()[0].tokens == (*WEATHER[-5:].encode(), END)


def test_without_an_end_token_nothing_ends(cache):
    codec = ByteCodec()
    codec.end_of_turn = None
    schema = drafter(cache, codec=codec)
    schema.commit(list(WEATHER.encode()))
    paths = schema.propose()
    assert paths
    assert all(END not in path.tokens for path in paths)


def test_nothing_is_drafted_after_a_stop_token(cache):
    schema = drafter(cache)
    schema.commit([*WEATHER.encode(), END])
    assert schema.propose() == []
    schema.commit([END])
    assert schema.propose() == []


@pytest.mark.parametrize("literal", [False, True])
def test_drafts_are_encoded_as_the_request_says(cache, literal):
    codec = ByteCodec()
    drafter(cache, codec=codec, literal=literal).propose()
    assert codec.literal == {literal}


def test_each_finished_call_reports_its_dialect(cache):
    heard = []
    schema = drafter(cache, ALL, on_dialect=heard.append)
    for token in f"{WEATHER}\n{write_call('bare', 'list_alarms', {})}".encode():
        schema.commit([token])
    assert heard == ["tag", "bare"]


# Grammars that come late, or never.


def test_nothing_is_proposed_before_grammars_are_compiled_and_then_all_is_caught_up():
    cache = HeldCache()
    schema = drafter(cache)
    schema.commit(list(b'<tool_call>\n{"name": "get_t'))
    assert schema.automaton is None
    assert schema.propose() == []
    cache.go.set()
    until_settled(cache, assistant(), TAG)
    assert texts(schema.propose())[0].startswith('ime", "arguments": {"zone": "')


def test_an_empty_tool_set_yields_nothing_and_keeps_nothing():
    nobody = ToolSet.from_openai([])
    cache = GrammarCache(on_failure=pytest.fail)
    schema = drafter(cache, tools=nobody)
    schema.commit(list(WEATHER.encode()))
    assert schema.propose() == []
    assert cache.settled(nobody, TAG)
    cache.compile_now(nobody, TAG)
    assert cache.get(nobody, TAG[0]) is None
    assert not schema._pending


@pytest.fixture
def impossible():
    return ToolSet.from_openai([{"name": "lone \ud800 surrogate"}])


def test_tools_that_cannot_compile_are_reported_once(impossible):
    reasons = []
    cache = GrammarCache(on_failure=reasons.append)
    for _ in range(3):
        schema = drafter(cache, ALL, tools=impossible)
        until_settled(cache, impossible, ALL)
        cache.compile_now(impossible, ALL)
        schema.commit(list(WEATHER.encode()))
        assert schema.propose() == []
    assert len(reasons) == 1
    assert impossible.key[:12] in reasons[0]


def test_a_schema_that_xgrammar_cannot_express_costs_only_its_own_arguments():
    tools = ToolSet.from_openai([tool("odd", {"a": {"$ref": "#/$defs/Missing"}}), tool("plain", {"b": {}})])
    cache = GrammarCache(on_failure=pytest.fail)
    cache.compile_now(tools, TAG)
    schema = drafter(cache, tools=tools)
    schema.commit(list(b'<tool_call>\n{"name": "'))
    found = texts(schema.propose())
    assert any(text.startswith('odd", "arguments": {') for text in found)
    assert any(text.startswith('plain", "arguments": {"b": ') for text in found)


@pytest.mark.parametrize("error", [RuntimeError, KeyError, RecursionError, MemoryError])
def test_whatever_goes_wrong_in_a_compile_no_drafter_waits_for_it(monkeypatch, error):
    def fail(self, any_order):
        raise error("out of luck")

    monkeypatch.setattr("sglang_toolspec.grammars.compile.DraftGrammar._compile", fail)
    reasons = []
    cache = GrammarCache(on_failure=reasons.append)
    cache.prepare(assistant(), TAG)
    until_settled(cache, assistant(), TAG)
    assert cache.get(assistant(), TAG[0]) is None
    assert len(reasons) == 1


# The cache.


def test_grammars_are_compiled_once_and_shared(cache):
    first = cache.get(assistant(), TAG[0])
    cache.compile_now(assistant(), ALL)
    assert first is not None
    assert cache.get(ToolSet.from_openai(ASSISTANT), TAG[0]) is first


def test_preparing_twice_compiles_once():
    cache = HeldCache()
    for _ in range(5):
        cache.prepare(assistant(), TAG)
    cache.go.set()
    until_settled(cache, assistant(), TAG)
    cache._compiler.shutdown(wait=True)
    assert cache.compiled == 1


def test_the_cache_is_bounded_and_forgets_what_was_used_longest_ago():
    sets = [ToolSet.from_openai([tool(f"tool{i}")]) for i in range(3)]
    cache = GrammarCache(capacity=2)
    cache.compile_now(sets[0], TAG)
    cache.compile_now(sets[1], TAG)
    assert cache.get(sets[0], TAG[0])
    cache.compile_now(sets[2], TAG)
    assert [cache.get(s, TAG[0]) is not None for s in sets] == [True, False, True]


# Drafting changes how many steps a reply takes, never the reply.


def walked(session, target, at, budget=32):
    """How many of ``target[at:]`` one verify step commits: drafted tokens and one of its own."""
    tree = session.draft(budget)
    assert len(tree) <= budget
    node, taken = 0, 0
    while True:
        wanted = target[at + taken]
        taken += 1
        children = [i for i, parent in enumerate(tree.parents) if parent == node and tree.tokens[i] == wanted]
        if not children or at + taken == len(target):
            return taken
        (node,) = children


def decode(session, target):
    """Greedy decoding of the scripted ``target``: ``(tokens committed, steps)``."""
    reply, steps = [target[0]], 1
    session.commit(reply)
    while len(reply) < len(target):
        fresh = target[len(reply) : len(reply) + walked(session, target, len(reply))]
        session.commit(fresh)
        reply += fresh
        steps += 1
    return reply, steps


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(sorted(DIALECTS)),
    st.lists(st.sampled_from(LEGAL_CALLS), min_size=1, max_size=2),
    st.sampled_from(["", "\n", "Let me see.\n", "{}\n"]),
)
def test_any_reply_with_calls_is_decoded_unchanged_in_fewer_steps(cache, dialect, calls, before):
    text = before + "\n".join(write_call(dialect, *call) for call in calls)
    target = [*text.encode(), END]
    session = Session([drafter(cache, ALL)], ByteCodec.vocab_size, Faults(no_fault))
    reply, steps = decode(session, target)
    assert reply == target
    assert session.committed == len(target)
    assert steps < len(target)


@settings(max_examples=15, deadline=None)
@given(st.binary(min_size=1, max_size=60))
def test_any_reply_without_calls_is_decoded_unchanged(cache, noise):
    target = [*noise, END]
    session = Session([drafter(cache, ALL)], ByteCodec.vocab_size, Faults(no_fault))
    assert decode(session, target)[0] == target


def test_a_plain_call_takes_a_fraction_of_its_tokens_in_steps(cache):
    target = [*WEATHER.encode(), END]
    _, steps = decode(Session([drafter(cache)], ByteCodec.vocab_size, Faults(no_fault)), target)
    assert steps <= len(target) // 4
