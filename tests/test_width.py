"""How wide a verify step is: what steps cost, and the width that gives most tokens per second."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.tree import DraftTree
from sglang_toolspec.runtime.width import FIRST_STEPS, FORGET, PRIOR_PER_ROW, RECENT, StepCosts

SECONDS = st.floats(1e-6, 10)
MEASURED = st.lists(st.tuples(st.integers(1, 2000), SECONDS), max_size=40)


def measured(*steps: tuple[int, float]) -> StepCosts:
    """Steps of ``rows`` rows and some seconds, behind one of each size, which does not count."""
    costs = StepCosts()
    for rows in {rows for rows, _ in steps}:
        costs.note(rows, 1e3)
    for rows, seconds in steps:
        costs.note(rows, seconds)
    return costs


def chain(*weights: float) -> DraftTree:
    """A root, and below it one node for each weight."""
    tree = DraftTree.root_only(0)
    for weight in weights:
        tree.add(1, len(tree) - 1, weight, "")
    return tree


weights = st.lists(st.floats(0, 1), max_size=20).map(lambda found: sorted(found, reverse=True))
chains = weights.map(lambda found: chain(*found))


# What a step costs.


def test_before_a_measurement_each_row_costs_a_little_more() -> None:
    assert StepCosts().seconds(1) == 1.0
    assert StepCosts().seconds(11) == pytest.approx(1 + 10 * PRIOR_PER_ROW)


def test_the_median_of_the_last_steps_counts() -> None:
    costs = measured(*[(4, 9.0)] * 50, *[(4, 1.0)] * (RECENT - 2), (4, 100.0), (4, 100.0))

    assert costs.seconds(4) == 1.0


def test_the_first_step_of_a_size_does_not_count() -> None:
    costs = StepCosts()

    costs.note(16, 9.0)
    assert (costs.seconds(1), costs.measured) == (1.0, [])
    costs.note(16, 2.0)

    assert costs.seconds(16) == 2.0


def test_between_two_sizes_the_cost_is_interpolated() -> None:
    costs = measured((8, 1.0), (16, 3.0))

    assert [costs.seconds(rows) for rows in (8, 10, 12, 16)] == [1.0, 1.5, 2.0, 3.0]


def test_beyond_what_was_measured_the_prior_scales_the_nearest_size() -> None:
    costs = measured((8, 2.0), (16, 3.0))

    assert costs.seconds(1) == pytest.approx(2.0 / (1 + 7 * PRIOR_PER_ROW))
    assert costs.seconds(31) == pytest.approx(3.0 * (1 + 30 * PRIOR_PER_ROW) / (1 + 15 * PRIOR_PER_ROW))


def test_costs_of_another_server_are_taken_over() -> None:
    measured_there = [(16, 3.0), (1, 2.0), (8, 4.0)]

    costs = StepCosts.of(measured_there)

    assert costs.measured == [(1, 2.0), (8, 3.0), (16, 3.0)]  # fewer rows never cost more
    assert StepCosts.of(costs.measured).measured == costs.measured
    assert costs.seconds(4) == pytest.approx(2 + 3 / 7)


def test_sizes_are_shared_by_neighbours_and_end_somewhere() -> None:
    assert measured((7, 2.0)).seconds(8) == 2.0
    assert measured((5000, 2.0)).seconds(1024) == 2.0


def test_where_more_rows_were_faster_fewer_are_taken_to_be_too() -> None:
    costs = measured((4, 2.0), (8, 1.0), (16, 4.0))

    assert [costs.seconds(rows) for rows in (4, 8, 16)] == [1.0, 1.0, 4.0]


def test_a_size_that_is_no_longer_used_is_forgotten() -> None:
    costs = measured((1, 1.0), (8, 9.0))

    for _ in range(FORGET + 1):
        costs.note(1, 1.0)

    assert costs.measured == [(1, 1.0)]
    assert costs.seconds(8) == pytest.approx(1 + 7 * PRIOR_PER_ROW)
    assert len(costs._seconds) == len(costs._used) == 1


@pytest.mark.parametrize("slow", [range(1), range(2), range(3, 9), range(40, 60)], ids=str)
def test_slow_steps_do_not_keep_drafts_from_being_verified_for_ever(slow: range) -> None:
    costs, widths = StepCosts(), []
    for step in range(3 * FORGET):
        widths.append(costs.best_width([chain(*[0.9] * 15)]))
        costs.note(widths[-1], (1 + 0.05 * widths[-1]) * (50 if step in slow else 1))

    assert widths[-1] == 16
    assert widths.count(16) > FORGET


def test_what_was_measured_is_told_by_size() -> None:
    costs = measured((16, 4.0), (3, 1.0), (3, 2.0), (3, 3.0))

    costs.measured.clear()

    assert costs.measured == [(3, 2.0), (16, 4.0)]


@pytest.mark.parametrize("requests", [1, 3, 40])
@pytest.mark.parametrize("widest", [1, 5, 32])
def test_a_new_server_learns_what_narrow_and_wide_steps_cost(requests: int, widest: int) -> None:
    costs, tried = StepCosts(), []
    while (width := costs.unknown_width(requests, widest)) is not None:
        tried.append(width)
        costs.note(requests * width, 1.0 + width)

    assert tried == [width for width in sorted({1, min(8, widest), widest}) for _ in range(2)]
    assert [seconds for _, seconds in costs.measured] == [1.0 + width for width in sorted({*tried})]


def test_a_server_that_is_at_work_tries_no_widths() -> None:
    costs = measured(*[(4, 1.0)] * FIRST_STEPS)

    assert costs.unknown_width(1, 32) is None


@given(MEASURED, st.lists(st.integers(1, 3000), min_size=2, max_size=10))
def test_costs_are_positive_and_never_fall_with_rows(steps: list[tuple[int, float]], rows: list[int]) -> None:
    costs = measured(*steps)

    found = [costs.seconds(n) for n in sorted(rows)]

    assert found[0] > 0
    assert all(b >= a * (1 - 1e-9) for a, b in pairwise(found))


# The best width.


def test_worthless_drafts_are_not_verified() -> None:
    assert StepCosts().best_width([chain(0.001, 0.001, 0.001)]) == 1


def test_sure_drafts_are_all_verified() -> None:
    assert StepCosts().best_width([chain(*[0.95] * 31)]) == 32


def test_a_tree_is_cut_where_its_nodes_are_no_longer_worth_their_rows() -> None:
    assert StepCosts().best_width([chain(0.9, 0.9, 0.9, 0.01, 0.01)]) == 4


def test_without_drafts_the_step_is_one_wide() -> None:
    assert StepCosts().best_width([chain(), chain()]) == 1


def test_where_rows_cost_nothing_every_node_is_verified() -> None:
    assert measured((1, 1.0), (64, 1.0)).best_width([chain(0.3, 0.2, 0.1)]) == 4


def test_where_rows_are_dear_only_sure_nodes_are_verified() -> None:
    costs = measured((1, 1.0), (2, 1.6), (4, 2.8), (8, 5.2))

    assert costs.best_width([chain(0.5, 0.5, 0.5)]) == 1
    assert costs.best_width([chain(0.9, 0.9, 0.2)]) == 3


def test_in_a_batch_the_rows_of_all_trees_are_paid_for() -> None:
    sure, nothing = chain(0.9, 0.9, 0.9), chain()
    costs = measured(*[(rows, 1 + 0.4 * (rows - 1)) for rows in (1, 2, 3, 4, 6, 8, 12, 16)])

    assert costs.best_width([sure]) == 4
    assert costs.best_width([sure, sure, sure, sure]) == 4
    assert costs.best_width([sure, nothing, nothing, nothing]) == 1


@given(MEASURED, st.lists(chains, min_size=1, max_size=5))
def test_the_width_is_the_best_of_all_that_the_trees_can_fill(
    steps: list[tuple[int, float]], trees: list[DraftTree]
) -> None:
    costs = measured(*steps)
    widest = max(map(len, trees))

    width = costs.best_width(trees)

    def rate(width: int) -> float:
        tokens = sum(sum(tree.first(width).weights) for tree in trees)
        return tokens / costs.seconds(width * len(trees))

    assert 1 <= width <= widest
    assert rate(width) >= max(map(rate, range(1, widest + 1))) * (1 - 1e-9)
