"""Vectors keep their angles on the way into a history and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sglang_toolspec.runtime.history.vectors import WHOLE_DIM, VectorCode, unit_vector
from tests.histories import beside, direction

LONG = [WHOLE_DIM + 1, WHOLE_DIM + 2, 1536, 4096, 5120]
ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(arrays.arrays(np.float32, st.integers(0, 8), elements=ANY_FLOAT))
def test_a_unit_vector_has_length_one_and_the_direction_it_had(numbers: np.ndarray) -> None:
    unit = unit_vector(numbers)

    if not numbers.size or not np.isfinite(numbers).all() or not numbers.any():
        assert unit is None
    else:
        assert unit is not None
        assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-5)
        exactly = numbers.astype(np.float64)
        assert np.abs(unit - exactly / np.linalg.norm(exactly)).max() < 1e-4


def unit(number: int, dim: int) -> np.ndarray:
    found = unit_vector(direction(number, dim))
    assert found is not None
    return found


@pytest.mark.parametrize("dim", LONG)
def test_turning_changes_no_angle(dim: int) -> None:
    code = VectorCode(dim)
    one, other = unit(1, dim), unit_vector(beside(direction(1, dim), 0.7))
    assert other is not None

    assert code.turned(one) @ code.turned(other) == pytest.approx(0.7, abs=1e-5)
    assert np.linalg.norm(code.turned(one)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 3, WHOLE_DIM, *LONG])
def test_a_stored_vector_comes_back(dim: int) -> None:
    code = VectorCode(dim)
    row = code.row(code.turned(unit(1, dim)))

    assert (row.dtype, row.shape) == (code.row_dtype, (dim,))
    assert code.unit(row) @ unit(1, dim) > 0.9999


@pytest.mark.parametrize("dim", LONG)
def test_one_huge_component_leaves_the_others_their_say(dim: int) -> None:
    """Hidden states have such; eight bits scaled to them alone would make all others zero."""
    code = VectorCode(dim)
    rest = direction(1, dim)
    spiked = unit_vector(np.where(np.arange(dim) == 7, 1000 * np.abs(rest).max(), rest))
    assert spiked is not None
    back = code.unit(code.row(code.turned(spiked)))
    others = np.arange(dim) != 7

    assert back @ spiked > 0.9999
    assert np.corrcoef(back[others], spiked[others])[0, 1] > 0.3


@pytest.mark.parametrize("dim", LONG)
def test_storing_what_came_back_stores_the_same(dim: int) -> None:
    """Else entries would wear off by being exported and imported."""
    code = VectorCode(dim)
    row = code.row(code.turned(unit(1, dim)))
    again = code.row(code.turned(code.unit(row)))

    assert np.abs(again.astype(int) - row).max() <= 1
    assert np.mean(again != row) < 0.01


def test_the_stored_form_is_the_one_that_files_have() -> None:
    """If this changes, files of format 1 can no longer be read."""
    code = VectorCode(1026)
    numbers = unit_vector(np.arange(1, 1027))
    assert numbers is not None
    row = code.row(code.turned(numbers)).astype(int)
    stored = [2, -33, 44, -39, -89, 44, -53, -10, -43, 2, 29, 20]
    assert np.abs(row[:12] - stored).max() <= 1  # rounding may differ
