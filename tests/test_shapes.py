"""Shapes of values, from values and from descriptions of parameters."""

from __future__ import annotations

import pytest

from sglang_toolspec.runtime.guessing.shapes import (
    marks_after,
    rest_of,
    shape_in,
    shape_of,
    shape_of_format,
)
from tests.guessing import LONG, spent


@pytest.mark.parametrize(
    ("text", "shape"),
    [("2023-03-26", "0000-00-00"), ("19:30", "00:00"), ("2023-03-26T19:30:00Z", "0000-00-00T00:00:00Z"),
     ("$5", "$0"), ("Oslo", None), ("", None), ("26 March", None), ("1" * 41, None)],
)  # fmt: skip
def test_the_shape_of_a_value(text: str, shape: str | None) -> None:
    assert shape_of(text) == shape


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("The date. Format: %Y-%m-%d", "0000-00-00"),
        ("%Y-%m-%d %H:%M:%S", "0000-00-00 00:00:00"),
        ("%Y%m%d", "00000000"),
        ("as YYYY-MM-DD", "0000-00-00"),
        ("yyyy/mm/dd hh:mm", "0000/00/00 00:00"),
        ("YYYY-MM-DDTHH:mm:ss", "0000-00-00T00:00:00"),
        ("for example 12/31/2024.", "00/00/0000"),
        ("like 19:30", "00:00"),
        ("The name of a city", None),
        ("", None),
    ],
)
def test_the_shape_that_a_description_asks_for(text: str, shape: str | None) -> None:
    assert shape_in(text) == shape


def test_a_long_description_is_read_in_part() -> None:
    assert spent(shape_in("1-" * LONG) for _ in range(100)) < 0.5
    assert shape_in("x" * LONG + " YYYY-MM-DD") is None


def test_marks_and_the_rest_of_a_shape() -> None:
    assert marks_after("0000-00-00", "2023") == "-"
    assert marks_after("0000-00-00", "202") == ""
    assert marks_after("00:00Z", "19:30") == "Z"
    assert marks_after("0000-00-00", "20/") == ""
    assert rest_of("0000-00-00", "2023-0") == "0-00"
    assert rest_of("00:00", "19:30:00") is None
    assert [shape_of_format(name) for name in ("date", "time", "email")] == ["0000-00-00", "00:00:00", None]
