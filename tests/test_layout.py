"""Layouts: what ``json.dumps`` writes, and what is learned from the gaps of a reply."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.layout import (
    COMPACT,
    MAX_GAP,
    PRETTY,
    PRETTY_4,
    SPACED,
    TIGHT_COLON,
    Layout,
    Preset,
    Slot,
)
from tests.jsontexts import CONTAINERS, STYLES, read

STYLE_OF = {
    SPACED: {},
    PRETTY: {"indent": 2},
    PRETTY_4: {"indent": 4},
    COMPACT: {"separators": (",", ":")},
    TIGHT_COLON: {"separators": (", ", ":")},
    Preset(",", ": ", " "): {"indent": 1},
    Preset(",", ":", "\t"): {"indent": "\t", "separators": (",", ":")},
}
quick = settings(max_examples=40, deadline=None)


@quick
@given(st.sampled_from(list(STYLE_OF)), CONTAINERS)
def test_a_preset_writes_what_json_dumps_writes(preset, value):
    assert Layout(preset).written(value, 0) == json.dumps(value, ensure_ascii=False, **STYLE_OF[preset])


@pytest.mark.parametrize("value", [{}, [], "a", 3, None, True, "é\n"])
def test_what_has_no_gaps_is_the_same_in_every_layout(value):
    for preset in STYLE_OF:
        assert Layout(preset).written(value, 2) == json.dumps(value, ensure_ascii=False)


SAMPLE = {"a": 1, "b": {"c": [1, 2], "d": {"e": 3, "f": [[4, 5]]}}, "g": [{"h": 1}, {"i": 2}]}


@pytest.mark.parametrize("start", [SPACED, PRETTY, COMPACT], ids=["spaced", "pretty", "compact"])
@pytest.mark.parametrize("style", STYLES)
def test_a_layout_is_known_after_one_object(style, start):
    text = json.dumps(SAMPLE, **STYLES[style])
    reader = read(text, layout=Layout(start))
    other = {"x": [SAMPLE, [SAMPLE]], "y": "z"}
    assert reader.layout.written(other, 0) == json.dumps(other, **STYLES[style])


@pytest.mark.parametrize("unit", ["  ", "    ", "   ", "\t"])
def test_indentation_is_believed_at_the_first_line(unit):
    reader = read("{\n" + unit + '"a', layout=Layout(SPACED))
    assert reader.layout.gap(Slot.ITEM, 3, False) == "\n" + unit * 3
    assert reader.layout.gap(Slot.CLOSE, 1, False) == "\n"


def test_a_tight_colon_is_believed_at_the_first_colon():
    assert read('{"a":1', layout=Layout(SPACED)).layout.written(SAMPLE, 0).count(": ") == 0


def test_the_outermost_object_may_differ_from_those_within():
    reader = read('{"a":{"b": 1, "c": {"d": 2', layout=Layout(SPACED))
    assert reader.layout.gap(Slot.COLON, 1, False) == ""
    assert reader.layout.gap(Slot.COLON, 2, False) == " "
    assert reader.layout.gap(Slot.COLON, 7, False) == " "


def test_an_object_on_one_line_within_a_pretty_one_is_followed():
    text = '{\n  "a": {"b": 1, "c": 2},\n  "d": {"e": 3, "f": 4'
    reader = read(text, layout=Layout(SPACED))
    assert reader.layout.gap(Slot.ITEM, 2, False) == " "
    assert reader.layout.gap(Slot.ITEM, 1, False) == "\n  "


def test_a_copy_learns_for_itself():
    layout = Layout(SPACED)
    copy = layout.copy()
    copy.observe(Slot.COLON, 1, False, "")
    assert layout.gap(Slot.COLON, 1, False) == " "
    assert copy.gap(Slot.COLON, 1, False) == ""


@pytest.mark.parametrize("gap", [" " * (MAX_GAP + 1), "\n" * 1000, "\t\t\n  \n\t", "\r\n   ", "   \n"])
def test_odd_white_space_does_no_harm(gap):
    layout = Layout(SPACED)
    for slot in Slot:
        layout.observe(slot, 2, False, gap)
    assert len(layout.written(SAMPLE, 0)) < 2000
    assert json.loads(layout.written(SAMPLE, 0)) == SAMPLE


@quick
@given(st.lists(st.tuples(st.sampled_from(Slot), st.integers(1, 64), st.booleans(), st.text(" \n\t\r"))))
def test_any_gaps_leave_a_layout_that_writes_json(gaps):
    layout = Layout(SPACED)
    for slot, depth, array, gap in gaps:
        layout.observe(slot, depth, array, gap)
    assert json.loads(layout.written(SAMPLE, 0)) == SAMPLE
    assert len(layout.seen) <= len(Slot) * 4
