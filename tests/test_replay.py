"""Replays of recorded replies: the steps a server would take, and their sums."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.assembly import Assembler
from sglang_toolspec.runtime.attribution import PREFILL, TARGET, Attribution
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.recording import Recorded
from sglang_toolspec.runtime.replay import Simulation, replay
from sglang_toolspec.runtime.request import ToolRequest
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tree import DraftPath, DraftTree
from sglang_toolspec.runtime.width import StepCosts
from tests.fakes import END, ByteCodec, no_fault
from tests.toolsets import GET_WEATHER, write_call

VOCAB = 100


class Scripted:
    """Proposes, after each number of committed tokens, what the script says."""

    name = "scripted"

    def __init__(self, script=None):
        self.script = script or {}
        self.committed = []

    def commit(self, tokens):
        self.committed += tokens

    def propose(self):
        paths = self.script.get(len(self.committed), [])
        return [DraftPath(tuple(p), (0.9,) * len(p), (self.name,) * len(p)) for p in paths if p]

    def close(self):
        pass


def replayed(reply, script=None, width=8):
    drafter = Scripted(script)
    steps = list(replay(Session([drafter], VOCAB, Faults(None)), reply, width))
    assert drafter.committed == list(reply)
    return steps


def tree(*nodes):
    """A tree of ``(token, parent)`` below root 0."""
    return DraftTree([0, *(t for t, _ in nodes)], [-1, *(p for _, p in nodes)])


#         0
#       / | \
#      5  6  7
#     / \     \
#    8   9     8
WIDE = tree((5, 0), (6, 0), (7, 0), (8, 1), (9, 1), (8, 3))


@pytest.mark.parametrize(
    ("following", "nodes"),
    [
        ([5, 9, 1], [1, 5]),
        ([5, 8], [1, 4]),
        ([7, 8, 8], [3, 6]),
        ([6, 8], [2]),
        ([8], []),
        ([], []),
        ([5], [1]),
    ],
)
def test_the_accepted_nodes_spell_what_follows(following, nodes):
    assert WIDE.follow(following) == nodes


def test_without_drafts_each_token_but_the_first_takes_a_step():
    steps = replayed([1, 2, 3])
    assert [step.committed for step in steps] == [[2], [3]]
    assert all(step.accepted == [] for step in steps)


def test_accepted_tokens_and_one_more_are_committed():
    steps = replayed([1, 2, 3, 4, 5], {1: [[2, 3, 9], [7]]})
    assert [step.committed for step in steps] == [[2, 3, 4], [5]]
    assert len(steps[0].accepted) == 2


def test_a_draft_to_the_end_of_the_reply_has_no_bonus_token():
    (step,) = replayed([1, 2, 3], {1: [[2, 3]]})
    assert step.committed == [2, 3]
    assert len(step.accepted) == 2


def test_a_draft_beyond_the_end_of_the_reply_is_cut():
    (step,) = replayed([1, 2, 3], {1: [[2, 3, 4, 5]]})
    assert (step.committed, len(step.accepted)) == ([2, 3], 2)


@pytest.mark.parametrize("reply", [[], [1]])
def test_a_reply_of_at_most_one_token_takes_no_step(reply):
    assert replayed(reply) == []


def test_the_width_bounds_each_tree():
    steps = replayed([1, 2, 3, 4], {1: [[2, 3, 4]]}, width=2)
    assert [len(step.tree) for step in steps] == [2, 1]
    assert steps[0].committed == [2, 3]


def test_a_width_of_one_is_plain_decoding():
    assert len(replayed([1, 2, 3, 4], {1: [[2, 3, 4]]}, width=1)) == 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=20),
    st.dictionaries(st.integers(1, 20), st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=4)),
    st.integers(1, 12),
)
def test_any_drafts_leave_the_reply_as_it_is(reply, script, width):
    steps = replayed(reply, script, width)
    assert reply[:1] + [token for step in steps for token in step.committed] == reply
    for step in steps:
        assert 1 <= len(step.committed) <= len(step.accepted) + 1
        assert [step.tree.tokens[node] for node in step.accepted] == step.committed[: len(step.accepted)]


def test_a_session_tells_what_each_source_gave():
    session = Session([Scripted({1: [[2, 3, 9], [7]]})], VOCAB, Faults(None))
    assert session.attribution.accept_length == 0
    assert len(list(replay(session, [1, 2, 3, 4, 5], width=8))) == 2
    told = session.attribution
    assert (told.tokens, told.steps, told.accept_length) == (5, 2, 2.5)
    assert told.proposed == {"scripted": 4}
    assert told.accepted == {"scripted": 2}
    assert told.history == [(PREFILL,), ("scripted", "scripted", TARGET), (TARGET,)]


def test_attributions_add_up():
    total, sums = Attribution(), []
    for reply, script in (([1, 2, 3, 4, 5], {1: [[2, 3, 9], [7]]}), ([1, 2], {})):
        session = Session([Scripted(script)], VOCAB, Faults(None))
        list(replay(session, reply, width=8))
        total.add(session.attribution)
        sums.append((session.attribution.tokens, session.attribution.steps))
    assert (total.tokens, total.steps) == tuple(map(sum, zip(*sums, strict=True))) == (7, 3)
    assert total.accepted == {"scripted": 2}


def test_a_step_without_a_sent_tree_is_no_verify_step():
    session = Session([Scripted()], VOCAB, Faults(None))
    session.commit([1])
    session.draft(8)
    session.commit([2, 3])
    assert (session.attribution.tokens, session.attribution.steps) == (3, 0)


def test_with_costs_a_tree_is_as_wide_as_it_pays():
    script = {1: [[2, 3, 9]]}
    cheap, dear = StepCosts.of([(1, 1.0), (8, 1.01)]), StepCosts.of([(1, 1.0), (2, 9.0), (8, 9.0)])

    def widths(costs):
        session = Session([Scripted(script)], VOCAB, Faults(None))
        return [len(step.tree) for step in replay(session, [1, 2, 3, 4], 8, costs)]

    assert widths(cheap) == [4]
    assert widths(dear) == [1, 1, 1]


# Many requests, one after another.

CALL = write_call("hermes", "get_weather", {"city": "Oslo", "days": 3})
WIRE = ToolRequest(ToolSet.from_openai([GET_WEATHER])).to_wire()


def recorded(text, **more):
    more = {"tools": WIRE, "tenant": "t", **more}
    ids = [*text.encode(), END]
    return Recorded(prompt_ids=[*b"Is it cold?"], output_ids=ids, stopped=True, **more)


def simulated(*replies, width=16, costs=None, **settings):
    assemble = Assembler(ByteCodec(), "qwen25", Faults(no_fault), Config(**settings))
    simulation = Simulation(width, costs)
    for reply in replies:
        simulation.add(assemble, reply)
    return simulation


def test_a_simulation_sums_tokens_steps_and_sources():
    found = simulated(recorded(CALL), recorded(CALL))

    assert (found.replies, found.sums.tokens) == (2, 2 * len(CALL) + 2)
    behind_first = found.sums.steps + found.sums.accepted.total()
    assert 0 <= behind_first - (found.sums.tokens - found.replies) <= 2  # a drafted end has no bonus token
    assert found.sums.accept_length > 2
    assert 1 < found.nodes_per_step <= 16


def test_without_sources_each_token_but_the_first_takes_a_step():
    found = simulated(recorded(CALL), recorded("no"), sources=frozenset())

    assert found.sums.steps == len(CALL) + 2
    assert found.nodes_per_step == 1


def test_what_one_request_teaches_helps_the_next_of_its_tenant_only():
    alone = simulated(recorded(CALL)).sums.steps

    def pair(tenant):
        return simulated(recorded(CALL), recorded(CALL, tenant=tenant)).sums.steps

    assert pair("other") == 2 * alone
    assert pair("t") < 2 * alone


def test_seconds_follow_from_the_width_of_each_step():
    costs = StepCosts.of([(1, 1.0), (16, 2.0)])

    plain = simulated(recorded(CALL), costs=costs, sources=frozenset())
    drafted = simulated(recorded(CALL), costs=costs)

    assert plain.seconds == len(CALL)
    assert drafted.sums.steps < drafted.seconds < 2 * drafted.sums.steps
    assert plain.tokens_per_s < drafted.tokens_per_s == drafted.sums.tokens / drafted.seconds
    assert simulated(recorded(CALL)).tokens_per_s is None


def test_candidates_are_noted_as_they_came_on_the_server():
    text = "abcabc"
    after = dict(pairwise(text))
    likely = [[(ord(after.get(c, "x")), 0.9), *[(0, 0.01)] * 7] for c in text]

    only = {"sources": frozenset({"recycling"}), "width": 8}
    assert simulated(recorded(text), **only).sums.accepted.total() == 0
    assert simulated(recorded(text, candidates=likely), **only).sums.accepted == {"recycling": 2}
