"""Chances that sources claim, corrected by what came of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.calibration import MEMORY, Calibration
from sglang_toolspec.runtime.tree import NO_CLAIM, Claim, DraftPath, DraftTree, merge


def path(*weights, source="s", first=1):
    return DraftPath(tuple(range(first, first + len(weights))), weights, (source,) * len(weights))


def drafted(calibration, *paths, situation=""):
    return merge(0, paths, 64, 100, calibration.judge(situation))


def weights(calibration, *claimed, source="s", situation=""):
    return drafted(calibration, path(*claimed, source=source), situation=situation).weights[1:]


def tried(calibration, times, right, claim=0.8, source="s", situation=""):
    """A node of ``claim`` was tried ``times`` times and right so many of them."""
    for i in range(times):
        tree = DraftTree([0, 1], [-1, 0], [1.0, claim], ["", source], [NO_CLAIM, Claim(source, claim)])
        calibration.note(tree, [1] if i < right else [], situation)


def test_claims_stand_until_something_is_known():
    assert weights(Calibration(), 0.5, 0.4, 0.1) == pytest.approx([0.5, 0.4, 0.1])


def test_a_source_that_promises_too_much_is_believed_less():
    calibration = Calibration()
    tried(calibration, 400, right=40)
    assert weights(calibration, 0.8) == pytest.approx([0.1], abs=0.05)


def test_a_modest_source_is_believed_more():
    calibration = Calibration()
    tried(calibration, 400, right=390, claim=0.3)
    assert weights(calibration, 0.3)[0] > 0.85


def test_sources_and_situations_are_kept_apart():
    calibration = Calibration()
    tried(calibration, 300, right=0, source="a", situation="value")
    assert weights(calibration, 0.8, source="a", situation="name") == pytest.approx([0.8])
    assert weights(calibration, 0.8, source="b", situation="value") == pytest.approx([0.8])


def test_only_nodes_whose_parent_was_accepted_were_tried():
    calibration = Calibration()
    tree = drafted(calibration, path(0.8, 0.4))
    for _ in range(100):
        calibration.note(tree, [], "")  # the second node was never looked at
    first, second = drafted(calibration, path(0.8, 0.4)).weights[1:]
    assert first < 0.3
    assert second / first == pytest.approx(0.5)


def test_sources_that_agree_are_surer_and_learned_of_together():
    calibration = Calibration()
    both = [path(0.5, source="a"), path(0.6, source="b")]
    tree = drafted(calibration, *both)
    assert tree.weights[1:] == pytest.approx([0.8])
    assert tree.claims[1].sources == "a+b"
    assert tree.sources[1] == "b"
    for _ in range(300):
        calibration.note(tree, [], "")
    assert drafted(calibration, *both).weights[1:] == pytest.approx([0.03], abs=0.02)
    assert weights(calibration, 0.6, source="b") == pytest.approx([0.6])


def test_what_was_long_ago_counts_less():
    calibration = Calibration()
    tried(calibration, int(MEMORY), right=0)
    tried(calibration, int(MEMORY), right=int(MEMORY))
    assert weights(calibration, 0.8)[0] > 0.6


def test_nothing_is_certain():
    a, b, c = weights(Calibration(), 1.0, 1.0, 1.0)
    assert 0.97 < c < b < a < 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(0, 50), st.integers(0, 50))
def test_weights_are_chances_that_never_grow(chances, times, right):
    calibration = Calibration()
    tried(calibration, times, right)
    claimed, weight = [], 1.0
    for chance in chances:
        weight *= chance
        claimed.append(weight)
    found = weights(calibration, *claimed)
    assert all(0 <= b <= a <= 1 for a, b in zip((1.0, *found), found, strict=False))
