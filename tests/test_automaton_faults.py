"""What users of this field ran into, one test each."""

import pytest

from sglang_toolspec.grammars.tools import ToolSet
from tests.following import FORMS, NATIVE, followed
from tests.toolsets import tool, write_call


def test_forced_text_never_commits_a_choice_between_keys_that_share_a_start():
    """``order`` is common to both keys, but only the model knows which one it will write."""
    tools = ToolSet.from_openai(
        [tool("find", {"orderId": {"type": "string"}, "orderName": {"type": "string"}})]
    )
    start = '{"name": "find", "arguments": '
    for begun in ("{", '{"', '{"ord'):
        text = start + begun
        reader = followed(text, "bare", tools=tools)
        assert not any(key in text + reader.spans() for key in ("orderId", "orderName"))
        found = [c.text for c in reader.continuations()]
        for key in ("orderId", "orderName"):
            rest = f'{{"{key}": "'[len(begun) :]
            assert any(o.startswith(rest) for o in found), (text, found)


@pytest.mark.parametrize("form", FORMS)
def test_two_tools_leave_a_draft_wherever_text_is_forced(form):
    """No single token is legal at the name, but all before it is forced."""
    tools = ToolSet.from_openai([tool("alpha", {"a": {}}), tool("beta", {"b": {}})])
    head = write_call(form, "alpha", {}, NATIVE.get(form, "spaced")).partition("alpha")[0]
    reader = followed("", form, tools=tools)
    assert any(c.text.startswith(head) for c in reader.continuations())
    assert reader.spans().startswith(head)
    assert {c.text[:1] for c in followed(head, form, tools=tools).continuations() if c.text} >= {"a", "b"}


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\r\n"])
@pytest.mark.parametrize("start", ["", '{"name":', '{"name": "get_time", "arguments": {', "<tool_call>"])
def test_white_space_is_never_drafted_without_end(start, space):
    """A model that loops on white space gets no draft of more of it."""
    reader = followed(start + space * 200)
    for offer in reader.continuations():
        assert offer.text.strip() or offer.ends
        assert len(offer.text) - len(offer.text.lstrip()) < 8


def test_a_draft_stops_before_free_text():
    tools = ToolSet.from_openai(
        [tool("area", {"base": {"type": "integer"}, "height": {"type": "integer"}}, ["base", "height"])]
    )
    reader = followed('<tool_call>\n{"name": "area", "arguments": {', tools=tools)
    assert reader.spans() == '"base": '
    assert reader.continuations()[0].text == '"base": '
