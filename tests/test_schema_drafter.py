"""The schema drafter on byte tokens, and drafting that never changes a reply."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import FORMATS, formats_for
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.drafters.schema import MAX_PATH_TOKENS, SchemaDrafter
from sglang_toolspec.runtime.replay import replay
from sglang_toolspec.runtime.session import Faults, Session
from tests.toolsets import GET_TIME, LEGAL_CALLS, PARSERS, shapes, tool, write_call, write_calls

END = 256
WEATHER = write_call("hermes", "get_weather", {"city": "Oslo"})


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


class WordCodec(ByteCodec):
    """Tokens of up to four bytes, which begin anew with every draft."""

    vocab_size = 1 << 20

    def __init__(self):
        super().__init__()
        self._ids = {}

    def encode(self, text, literal=False):
        data = text.encode()
        return tuple(self.id_of(data[i : i + 4]) for i in range(0, len(data), 4))

    def id_of(self, data):
        return self._ids.setdefault(data, 1000 + len(self._ids))

    def text_of(self, token):
        return next((data for data, known in self._ids.items() if known == token), b"")


def drafter(*forms, codec=None, tools=None, habits=None, parser="qwen25", literal=False):
    formats = tuple(FORMATS[form] for form in forms) or formats_for(parser)
    automaton = ToolAutomaton(shapes() if tools is None else CallShapes(tools), formats, habits)
    return SchemaDrafter(automaton, codec or ByteCodec(), literal)


def texts(paths):
    return [bytes(t for t in path.tokens if t != END).decode("utf-8", "ignore") for path in paths]


def no_fault(where, error):
    raise AssertionError(where) from error


def session(*forms, **more):
    return Session([drafter(*forms, **more)], ByteCodec.vocab_size, Faults(no_fault))


# Proposals.


def test_a_reply_starts_with_the_draft_of_a_call():
    tools = ToolSet.from_openai([GET_TIME])
    skeleton = write_call("hermes", "get_time", {"zone": "~"}).partition("~")[0]
    assert skeleton[:MAX_PATH_TOKENS] in texts(drafter("hermes", tools=tools).propose())


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_weights_never_grow_along_a_path(form):
    schema = drafter(parser=PARSERS[form])
    for byte in b"Hm.\n" + write_call(form, *LEGAL_CALLS[0]).encode():
        for path in schema.propose():
            assert list(path.weights) == sorted(path.weights, reverse=True)
            assert all(0 < weight <= 1 for weight in path.weights)
            assert len(path.weights) == len(path.tokens) == len(path.sources) <= MAX_PATH_TOKENS
        schema.commit([byte])


def test_drafts_name_their_drafter():
    assert {source for path in drafter().propose() for source in path.sources} == {"schema"}


def test_after_a_complete_call_the_end_of_the_turn_is_drafted_first():
    schema = drafter("hermes")
    schema.commit(list(WEATHER.encode()))
    assert schema.propose()[0].tokens == (END,)


def test_the_end_of_the_turn_follows_a_call_that_is_drafted_to_its_end():
    schema = drafter("hermes")
    schema.commit(list(WEATHER[:-5].encode()))
    assert schema.propose()[0].tokens == (*WEATHER[-5:].encode(), END)


def test_without_an_end_token_nothing_ends():
    codec = ByteCodec()
    codec.end_of_turn = None
    schema = drafter("hermes", codec=codec)
    schema.commit(list(WEATHER.encode()))
    paths = schema.propose()
    assert paths
    assert all(END not in path.tokens for path in paths)


def test_nothing_is_drafted_after_a_stop_token():
    schema = drafter("hermes")
    schema.commit([*WEATHER.encode(), END])
    assert schema.propose() == []
    schema.commit([END])
    assert schema.propose() == []


def test_nothing_is_drafted_in_a_character():
    schema = drafter("hermes")
    schema.commit(list('<tool_call>\n{"name": "get_time", "arguments": {"zone": "日'.encode()[:-1]))
    assert schema.propose() == []


@pytest.mark.parametrize("literal", [False, True])
def test_drafts_are_encoded_as_the_request_says(literal):
    codec = ByteCodec()
    drafter(codec=codec, literal=literal).propose()
    assert codec.literal == {literal}


def test_an_empty_tool_set_drafts_no_name():
    schema = drafter(tools=ToolSet.from_openai([]))
    schema.commit(list(WEATHER.encode()))
    assert not any("get" in text for text in texts(schema.propose()))


def test_a_schema_that_nobody_can_resolve_costs_only_its_own_arguments():
    tools = ToolSet.from_openai([tool("odd", {"a": {"$ref": "#/$defs/Missing"}}), tool("plain", {"b": {}})])
    schema = drafter("hermes", tools=tools)
    schema.commit(list(b'<tool_call>\n{"name": "'))
    found = texts(schema.propose())
    assert any(text.startswith('odd", "arguments": {"a": ') for text in found)
    assert any(text.startswith('plain", "arguments": {"b": ') for text in found)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_words_that_utf8_cannot_hold_do_no_harm(form):
    odd = "lone\ud800surrogate"
    tools = ToolSet.from_openai(
        [tool(odd), tool("go", {odd: {"type": "string"}, "by": {"enum": [odd, "up"]}})]
    )
    schema = drafter(form, tools=tools)
    for char in write_call(form, "go", {"by": "up"}):
        assert isinstance(schema.propose(), list)
        schema.commit(list(char.encode()))
    assert schema.automaton.calls_done == 1


# What users of this field ran into.


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_a_single_legal_token_is_not_needed_for_a_draft(form):
    """Any two tools: their names differ from the first letter, yet a draft is never empty."""
    tools = ToolSet.from_openai([tool("alpha", {"a": {}}), tool("beta", {"b": {}})])
    schema = drafter(form, tools=tools)
    for char in write_call(form, "alpha", {}):
        assert any(path.tokens for path in schema.propose())
        schema.commit(list(char.encode()))


def test_keys_that_share_a_start_are_proposed_and_never_committed():
    """``orderId`` and ``orderName``: the reply alone decides."""
    tools = ToolSet.from_openai(
        [tool("find", {"orderId": {"type": "string"}, "orderName": {"type": "string"}})]
    )
    for key in ("orderId", "orderName"):
        reply = [*write_call("hermes", "find", {key: "x"}).encode(), END]
        one = session("hermes", tools=tools)
        assert [t for step in replay(one, reply, 32) for t in step.committed] == reply[1:]


def test_the_last_token_before_free_text_is_less_sure():
    """The tokenizer may join it with what the model writes next."""
    schema = drafter("hermes", tools=ToolSet.from_openai([GET_TIME]))
    likeliest = schema.propose()[0]
    assert texts([likeliest])[0].endswith('"zone": "')
    *before, last = likeliest.weights
    assert last < 0.9 * before[-1]


def test_a_step_that_accepts_tokens_behind_the_end_does_no_harm():
    """Drafts behind the end token, with a draft model and a tag, aborted requests elsewhere."""
    schema = drafter("hermes")
    schema.commit([*WEATHER.encode(), END, *WEATHER[:20].encode(), END])
    assert schema.propose() == []


def test_a_model_that_loops_on_white_space_is_not_helped():
    reply = list(b'<tool_call>\n{"name": "get_time", "arguments": {' + b"\n" * 200)
    steps = list(replay(session("hermes"), reply, 32))
    assert sum(len(step.accepted) for step in steps[-100:]) == 0


# Drafting changes how many steps a reply takes, never the reply.


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.lists(st.sampled_from(LEGAL_CALLS[:7]), min_size=1, max_size=2),
    st.sampled_from(["", "\n", "Let me see.\n", "{}\n"]),
)
def test_any_reply_with_calls_is_decoded_unchanged_in_fewer_steps(form, calls, before):
    reply = [*(before + write_calls(form, calls)).encode(), END]
    one = session(parser=PARSERS[form])
    steps = list(replay(one, reply, 32))
    assert all(len(step.tree) <= 32 for step in steps)
    assert reply[:1] + [t for step in steps for t in step.committed] == reply
    assert one.committed == len(reply)
    assert len(steps) < len(reply) // 2


@settings(max_examples=15, deadline=None)
@given(st.binary(min_size=1, max_size=60))
def test_any_reply_without_calls_is_decoded_unchanged(noise):
    reply = [*noise, END]
    steps = list(replay(session(), reply, 32))
    assert reply[:1] + [t for step in steps for t in step.committed] == reply


def test_a_plain_call_takes_a_fraction_of_its_tokens_in_steps():
    reply = [*WEATHER.encode(), END]
    assert len(list(replay(session("hermes"), reply, 64))) <= len(reply) // 4


def test_the_second_call_of_a_kind_takes_fewer_steps_than_the_first():
    habits = Habits()
    reply = [*write_call("fence", *LEGAL_CALLS[0], "compact").encode(), END]
    first, second = (len(list(replay(session(habits=habits), reply, 32))) for _ in range(2))
    assert second < first


def test_tokens_that_part_otherwise_than_in_the_reply_cost_only_drafts():
    codec = WordCodec()
    data = WEATHER.encode()
    reply = [codec.id_of(data[i : i + 3]) for i in range(0, len(data), 3)]
    one = Session([drafter("hermes", codec=codec)], codec.vocab_size, Faults(no_fault))
    assert reply[:1] + [t for step in replay(one, reply, 32) for t in step.committed] == reply
