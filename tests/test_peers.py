"""Others' drafters, by examples that can be checked by hand, and the table that compares them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.replay_variants import NGRAM, PAPER, peers, variants
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.drafters.paper import BY_RANK
from sglang_toolspec.runtime.drafters.recycling import CANDIDATES, Candidates, RecyclingDrafter
from sglang_toolspec.runtime.engine.ngram_peer import NgramDrafter, ways
from sglang_toolspec.runtime.peers import prompt_lookup, suffix_decoding
from sglang_toolspec.runtime.peers.prompt_lookup import AHEAD, PromptLookup
from sglang_toolspec.runtime.peers.sessions import PEERS, PeerSessions
from sglang_toolspec.runtime.peers.suffix_decoding import Places, SuffixDecoding, grow, leaves
from sglang_toolspec.runtime.recording import Recorded
from sglang_toolspec.runtime.replay import Simulation
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.width import StepCosts
from tests.fakes import no_fault

VOCAB = 100


def proposed(drafter, *committed):
    for tokens in committed:
        drafter.commit(list(tokens))
    return [path.tokens for path in drafter.propose()]


# Prompt lookup


def test_prompt_lookup_copies_ten_tokens_behind_the_first_place():
    prompt = [1, 2, 3, *range(10, 30), 1, 2, 3, *range(40, 60)]
    assert proposed(PromptLookup(prompt), [1], [2, 3]) == [tuple(range(10, 20))]


def test_the_longest_match_decides():
    prompt = [3, *range(60, 72), 2, 3, *range(10, 30)]
    assert proposed(PromptLookup(prompt), [2, 3]) == [tuple(range(10, 20))]
    assert proposed(PromptLookup(prompt), [99, 3]) == [tuple(range(60, 70))]


def test_prompt_lookup_wants_all_ten_tokens_and_no_match_with_itself():
    assert proposed(PromptLookup([1, 2, 3, 4]), [1, 2]) == []
    assert proposed(PromptLookup([]), [7]) == []


def slow_lookup(tokens):
    """As Saxena's code searches."""
    for size in range(prompt_lookup.LONGEST, 0, -1):
        if len(tokens) < size:
            continue
        for at in range(len(tokens) - size + 1):
            start = at + size
            fits = start + AHEAD <= len(tokens) and start < len(tokens) - size
            if tokens[at:start] == tokens[-size:] and fits:
                return [tuple(tokens[start : start + AHEAD])]
    return []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 39))
def test_prompt_lookup_finds_what_a_search_finds(tokens, cut):
    drafter = PromptLookup(tokens[:cut])
    assert proposed(drafter, tokens[cut:]) == slow_lookup(tokens)


# SuffixDecoding


def text(*replies):
    places = Places()
    for reply in replies:
        places.extend(reply)
        places.end()
    return places


def test_ways_are_as_likely_as_they_were_often():
    earlier = text([1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 7], [1, 2, 6], [1, 2, 6])
    drafter = SuffixDecoding([], earlier, width=16)
    drafter.commit([1, 2])
    weights = {path.tokens: path.weights for path in drafter.propose()}
    assert weights == {(3,): pytest.approx((0.6,)), (6,): pytest.approx((0.4,))}  # two nodes for two tokens


def test_a_longer_suffix_draws_a_larger_tree():
    earlier = text([1, 2, 3, 4, 5, 6, 7, 8])
    assert proposed(SuffixDecoding([], earlier, 16), [1]) == [(2,)]
    assert proposed(SuffixDecoding([], earlier, 16), [1, 2, 3]) == [(4, 5, 6)]
    assert proposed(SuffixDecoding([], earlier, 3), [1, 2, 3]) == [(4, 5)]


def test_the_prompt_and_the_own_reply_are_looked_through_too():
    assert proposed(SuffixDecoding([7, 8, 9], Places(), 16), [7]) == [(8,)]
    assert proposed(SuffixDecoding([], Places(), 16), [7, 8, 9, 7]) == [(8,)]


def test_a_reply_does_not_go_on_into_the_next_one():
    assert proposed(SuffixDecoding([], text([1, 2], [3, 4]), 16), [1, 2]) == []


def test_a_finished_reply_helps_the_next():
    earlier = Places()
    first = SuffixDecoding([], earlier, 16)
    assert proposed(first, [1, 2, 3]) == []
    first.close()
    assert proposed(SuffixDecoding([], earlier, 16), [1, 2]) == [(3,)]


def test_unlikely_ways_are_left_out():
    many = text(*([1, 2, i] for i in range(10, 30)))
    assert proposed(SuffixDecoding([], many, 16), [1, 2]) == []


def test_places_are_bounded(monkeypatch):
    monkeypatch.setattr(suffix_decoding, "MAX_TOKENS", 5)
    places = text([1, 2, 3], [4, 5, 6, 7])
    assert [t for t in places.tokens if t >= 0] == [1, 2, 3, 4]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(1, 8), st.integers(1, 10))
def test_a_tree_is_whole_bounded_and_never_likelier_below(tokens, length, nodes):
    places = text(tokens)
    for _, at in places.after(tokens[:length]):
        tree = grow(places.tokens, at, nodes)
        assert len(tree) <= nodes
        for way, chance in tree.items():
            assert suffix_decoding.MIN_CHANCE <= chance <= tree.get(way[:-1], 1.0) + 1e-9
        assert {way[:i] for way in leaves(tree) for i in range(1, len(way) + 1)} == set(tree)


# Token Recycling's static tree


def chain(count=8):
    candidates = Candidates()
    ids = np.array([[(t + 1 + i) % 50 for i in range(CANDIDATES)] for t in range(50)], np.int32)
    candidates.note(range(50), ids, np.full((50, CANDIDATES), 0.01, np.float32))
    return candidates


def test_the_static_tree_has_as_many_nodes_as_asked_whatever_the_chances():
    """Its shape is the paper's; an earlier version cut it to a handful of nodes."""
    for nodes in (1, 15, 63):
        drafter = RecyclingDrafter(chain(), nodes, BY_RANK)
        drafter.commit([0])
        ways = {path.tokens[:i] for path in drafter.propose() for i in range(1, len(path.tokens) + 1)}
        assert len(ways) == nodes


# NGRAM, with a corpus that is none


class Corpus:
    """Answers as SGLang's does, with a tree that was written by hand."""

    def __init__(self, tokens, mask):
        self.answer = np.array(tokens), np.array(mask).flatten()
        self.put = []
        self.calls = []

    def synchronize(self):
        self.calls.append("synchronize")

    def batch_get(self, rids, tails, lengths):
        self.calls.append((rids, [list(tail) for tail in tails], lengths))
        return self.answer

    def batch_put(self, tails):
        self.put += [list(tail) for tail in tails]

    def erase_match_state(self, rids):
        self.calls.append(("erased", rids))


#   9 ─ 1 ─ 2
#     └ 3
TREE = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]


def test_ngram_is_asked_as_its_worker_asks_it():
    corpus = Corpus([9, 1, 3, 2], TREE)
    drafter = NgramDrafter(corpus, "r", [5, 6, 7], depth=3)
    drafter.commit([8, 9])
    assert [path.tokens for path in drafter.propose()] == [(1,), (3,), (1, 2)]
    assert corpus.calls == ["synchronize", (["r"], [[7, 8, 9]], [5])]
    assert corpus.put == [[7, 8, 9]]
    drafter.close()
    assert corpus.calls[-1] == ("erased", ["r"])


def test_a_mask_names_the_way_to_each_node():
    assert ways(np.array([9, 1, 3, 2]), np.array(TREE)) == [(1,), (3,), (1, 2)]


# Side by side


def recorded(ids, **more):
    return Recorded(prompt_ids=[50, 51], output_ids=ids, stopped=True, tenant="t", **more)


@pytest.mark.parametrize("name", list(PEERS))
def test_every_peer_replays_a_reply_as_it_is(name):
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    likely = [[(i + 1, 0.9), *[(0, 0.01)] * 7] for i in ids]
    faults = Faults(no_fault)
    simulation = Simulation(16)
    sessions = PeerSessions(PEERS[name](16), VOCAB, faults)
    for _ in range(2):
        simulation.add(sessions, recorded(ids, candidates=likely))
    assert simulation.sums.tokens == 2 * len(ids)
    assert simulation.sums.accept_length > 1.2
    assert simulation.nodes_per_step <= 16
    assert not faults.counts


def test_a_drafter_that_is_compared_is_never_given_a_rest():
    class Wrong:
        name = "wrong"

        def commit(self, tokens): ...
        def close(self): ...

        def propose(self):
            from sglang_toolspec.runtime.tree import DraftPath

            return [DraftPath((99,), (0.9,), ("wrong",))]

    simulation = Simulation(4)
    simulation.add(PeerSessions(lambda *_: Wrong(), VOCAB, Faults(no_fault)), recorded([1] * 900))
    assert simulation.sums.proposed == {"wrong": 899}


def test_whole_trees_are_verified_whatever_they_cost():
    dear = StepCosts.of([(1, 1.0), (2, 90.0), (16, 90.0)])
    ids = [1, 2, 3, 4, 5, 6]
    for whole, nodes in ((True, 2), (False, 1)):
        simulation = Simulation(16, dear, whole)
        sessions = PeerSessions(PEERS["suffix decoding"](16), VOCAB, Faults(no_fault))
        for _ in range(2):
            simulation.add(sessions, recorded(ids))
        assert (simulation.nodes_per_step > 1) is (nodes > 1)


def test_what_cannot_be_built_is_told_and_left_out(monkeypatch):
    def broken(width):
        raise RuntimeError("no compiler\n here")

    told = []
    monkeypatch.setattr("sglang_toolspec.runtime.engine.ngram_peer.ngram", broken)
    names = [variant.name for variant in peers(told.append)]
    assert names == [*PEERS, PAPER]
    assert told == [f"{NGRAM} is left out, its corpus cannot be built here: no compiler here"]


def test_ours_come_before_those_of_others():
    assert [variant.name for variant in variants(Config(), ablate=False)] == ["all"]
