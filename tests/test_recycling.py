"""Token Recycling: candidates of the target, drafted again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.drafters import recycling
from sglang_toolspec.runtime.drafters.recycling import CANDIDATES, MAX_NODES, Candidates, RecyclingDrafter


def noted(table):
    """``token → [(candidate, chance), …]``, the rest is unlikely."""
    candidates = Candidates()
    for token, likely in table.items():
        rest = CANDIDATES - len(likely)
        ids = [c for c, _ in likely] + [1000 + i for i in range(rest)]
        chances = [p for _, p in likely] + [0.0] * rest
        candidates.note([token], np.array([ids], np.int32), np.array([chances], np.float32))
    return candidates


def drafts(candidates, last):
    drafter = RecyclingDrafter(candidates)
    drafter.commit([last])
    return {path.tokens: path.weights for path in drafter.propose()}


def test_nothing_known_nothing_drafted():
    assert drafts(Candidates(), 1) == {}


def test_chains_of_likely_candidates_are_drafted():
    paths = drafts(noted({1: [(2, 0.9)], 2: [(3, 0.9)], 3: [(4, 0.01)]}), 1)
    assert list(paths) == [(2, 3)]
    assert paths[2, 3][0] > paths[2, 3][1]


def test_several_candidates_make_a_tree():
    assert set(drafts(noted({1: [(2, 0.9), (5, 0.4)], 2: [(3, 0.9)]}), 1)) == {(2, 3), (5,)}


def test_what_was_seen_last_counts():
    candidates = noted({1: [(2, 0.9)]})
    candidates.note([1], np.array([[7] * CANDIDATES]), np.array([[0.9] + [0.0] * 7], np.float32))
    assert {path[0] for path in drafts(candidates, 1)} == {7}


def test_a_loop_ends():
    assert sum(map(len, drafts(noted({1: [(1, 1.0)]}), 1))) <= MAX_NODES


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(recycling, "MAX_TOKENS", 10)
    candidates = Candidates()
    for token in range(95):
        candidates.note([token], np.zeros((1, CANDIDATES), np.int32), np.zeros((1, CANDIDATES), np.float32))
        assert len(candidates) <= 10
    assert candidates.after(94)
    assert not candidates.after(1)


likely = st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1)), max_size=3)


@given(st.dictionaries(st.integers(0, 20), likely))
def test_drafts_are_bounded_and_weights_never_grow(table):
    paths = drafts(noted(table), 1)
    assert len(paths) <= MAX_NODES * CANDIDATES
    for weights in paths.values():
        assert all(0 <= b <= a <= 1 for a, b in zip((1.0, *weights), weights, strict=False))
        assert weights[-1] >= recycling.MIN_CHANCE


def test_tokens_that_grow_the_table_stay():
    candidates = Candidates()
    ids = np.arange(300 * CANDIDATES, dtype=np.int32).reshape(300, CANDIDATES)
    candidates.note(range(300), ids, np.full((300, CANDIDATES), 0.5, np.float32))
    assert candidates.after(299)[0] == (299 * CANDIDATES, pytest.approx(0.5))
    assert candidates.after(0)[0] == (0, pytest.approx(0.5))
