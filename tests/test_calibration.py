"""Chances that sources claim, corrected by what came of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.calibration import MEMORY, Calibration
from sglang_toolspec.runtime.tree import DraftPath, merge


def path(*weights, source="s", first=1):
    return DraftPath(tuple(range(first, first + len(weights))), weights, (source,) * len(weights))


def tried(calibration, times, right, claim=0.8, source="s", situation=""):
    """A node of ``claim`` was tried ``times`` times and right so many of them."""
    for i in range(times):
        tree = merge(0, [calibration.corrected(path(claim, source=source), situation)], 8, 100)
        calibration.note(tree, [1] if i < right else [], situation)


def test_claims_stand_until_something_is_known():
    corrected = Calibration().corrected(path(0.5, 0.4, 0.1), "")
    assert corrected.weights == pytest.approx((0.5, 0.4, 0.1))
    assert corrected.claims == pytest.approx((0.5, 0.8, 0.25))


def test_a_source_that_promises_too_much_is_believed_less():
    calibration = Calibration()
    tried(calibration, 400, right=40)
    assert calibration.corrected(path(0.8), "").weights[0] == pytest.approx(0.1, abs=0.05)


def test_a_modest_source_is_believed_more():
    calibration = Calibration()
    tried(calibration, 400, right=390, claim=0.3)
    assert calibration.corrected(path(0.3), "").weights[0] > 0.85


def test_sources_and_situations_are_kept_apart():
    calibration = Calibration()
    tried(calibration, 300, right=0, source="a", situation="value")
    assert calibration.corrected(path(0.8, source="a"), "name").weights[0] == pytest.approx(0.8)
    assert calibration.corrected(path(0.8, source="b"), "value").weights[0] == pytest.approx(0.8)


def test_only_nodes_whose_parent_was_accepted_were_tried():
    calibration = Calibration()
    tree = merge(0, [calibration.corrected(path(0.8, 0.4), "")], 8, 100)
    for _ in range(100):
        calibration.note(tree, [], "")  # the second node was never looked at
    assert calibration.corrected(path(0.8, 0.4), "").claims[1] == pytest.approx(0.5)
    weights = calibration.corrected(path(0.8, 0.4), "").weights
    assert weights[1] / weights[0] == pytest.approx(0.5)


def test_what_was_long_ago_counts_less():
    calibration = Calibration()
    tried(calibration, int(MEMORY), right=0)
    tried(calibration, int(MEMORY), right=int(MEMORY))
    assert calibration.corrected(path(0.8), "").weights[0] > 0.6


def test_nothing_is_certain():
    weights = Calibration().corrected(path(1.0, 1.0, 1.0), "").weights
    assert 0.97 < weights[2] < weights[1] < weights[0] < 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(0, 50), st.integers(0, 50))
def test_weights_are_chances_that_never_grow(chances, times, right):
    calibration = Calibration()
    tried(calibration, times, right)
    claimed, weight = [], 1.0
    for chance in chances:
        weight *= chance
        claimed.append(weight)
    weights = calibration.corrected(path(*claimed), "").weights
    assert all(0 <= b <= a <= 1 for a, b in zip((1.0, *weights), weights, strict=False))
