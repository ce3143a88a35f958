"""Calls that SGLang's own mask forces are drafted as it wants them, letter by letter."""

import json

import pytest
import xgrammar
from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.compile import compiled, matcher
from sglang_toolspec.grammars.formats import formats_for
from sglang_toolspec.grammars.tools import ToolSet
from tests.test_streaming import CHUNKINGS, in_one_shot, loaded, new_parser, streamed
from tests.toolsets import GET_TIME, PARSERS, write_call, write_calls

PARSER_NAMES = sorted({*PARSERS.values(), "hermes", "step3p5"} - {"gpt-oss"})


def walk_of(parser):
    """A matcher of SGLang's constraint for ``tool_choice="required"``."""
    tools = [Tool.model_validate(GET_TIME)]
    kind, value = FunctionCallParser(tools, parser).get_structure_constraint("required")
    if kind == "json_schema":
        return matcher(compiled(xgrammar.Grammar.from_json_schema(json.dumps(value))))
    if kind == "full_assistant_ebnf":
        return matcher(compiled(xgrammar.Grammar.from_ebnf(value)))
    assert kind == "structural_tag"
    tag = value if isinstance(value, dict) else json.loads(value.model_dump_json(by_alias=True))
    if "structures" not in tag:
        return matcher(compiled(xgrammar.Grammar.from_structural_tag(json.dumps(tag))))
    items = [
        xgrammar.StructuralTagItem(begin=s["begin"], schema=json.dumps(s["schema"] or {}), end=s["end"])
        for s in tag["structures"]
    ]
    return matcher(compiled(xgrammar.Grammar.from_structural_tag(items, tag["triggers"])))


@pytest.mark.parametrize("parser", PARSER_NAMES)
def test_the_likeliest_draft_of_a_forced_call_is_legal_to_its_end(parser):
    walk = walk_of(parser)
    reader = ToolAutomaton(CallShapes(ToolSet.from_openai([GET_TIME])), formats_for(parser, constrained=True))
    start = reader.continuations()[0].text
    assert "get_time" in start
    assert "zone" in start
    for text in (start, "UTC"):
        assert walk.accept_string(text), text
        reader.advance(text.encode())
    assert reader.in_open_value
    ends = [c.text for c in reader.continuations() if set(c.text) & set("}>")]
    assert any(walk.fork().accept_string(text) for text in ends)


@pytest.mark.parametrize("parser", PARSER_NAMES)
@pytest.mark.parametrize("near", ["get_tim", "get_times", "Get_time", "time"])
def test_a_name_that_is_nearly_that_of_a_tool_is_no_call(parser, near):
    """Also where we draft what the mask wants, a wrong trigger of it would let another tool through."""
    reader = ToolAutomaton(CallShapes(ToolSet.from_openai([GET_TIME])), formats_for(parser, constrained=True))
    start = reader.continuations()[0].text

    assert walk_of(parser).accept_string(start)
    assert not walk_of(parser).accept_string(start.replace("get_time", near))


CALLS = [("get_time", {"zone": "UTC"}), ("get_time", {"zone": "Asia/Tokyo"})]
OBJECTS = [f'{{"name":"{name}", "arguments":{json.dumps(arguments)}}}' for name, arguments in CALLS]
TWICE = {
    "qwen25": "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in OBJECTS),
    "qwen": "".join(f"<tool_call>\n{call}\n</tool_call>" for call in OBJECTS),
    "hermes": "".join(f"<tool_call>{call}</tool_call>" for call in OBJECTS),
    "llama3": f"<|python_tag|>{';'.join(OBJECTS)}",
    # The mask ends the list, or the section, after each call.
    "mistral": "".join(f"[TOOL_CALLS] [{call}]" for call in OBJECTS),
    "deepseekv3": "".join(write_call("deepseekv3", *call) for call in CALLS),
    "deepseekv31": write_calls("deepseekv31", CALLS),
    "kimi_k2": write_calls("kimi_k2", CALLS),
    "glm47": write_calls("glm47", CALLS),
    "qwen3_coder": write_calls("qwen3_coder", CALLS),
}
"""Replies with two calls, as the models of these parsers write them."""


@pytest.mark.parametrize(("parser", "text"), TWICE.items(), ids=TWICE)
def test_a_forced_reply_may_hold_two_calls_and_both_are_read(parser, text):
    """A mask of one JSON array makes models stop after the first."""
    walk = walk_of(parser)

    assert walk.accept_string(text)
    assert walk.is_completed()
    assert loaded(in_one_shot(parser, text)) == ("", CALLS)
    for chunking in CHUNKINGS.values():
        assert loaded(streamed(new_parser(parser), chunking(text))) == ("", CALLS)


@pytest.mark.parametrize(("parser", "text"), TWICE.items(), ids=TWICE)
def test_the_second_of_two_forced_calls_is_drafted_as_the_mask_wants_it(parser, text):
    walk = walk_of(parser)
    reader = ToolAutomaton(CallShapes(ToolSet.from_openai([GET_TIME])), formats_for(parser, constrained=True))
    first = text.index("UTC")
    going_on = []
    for at, char in enumerate(text[: text.rindex("get_time")]):
        assert walk.accept_string(char)
        reader.advance(char.encode())
        again = [c.text for c in reader.continuations() if "get_time" in c.text] if at > first else []
        going_on += [walk.fork().accept_string(draft) for draft in again[:1]]
    assert going_on
    assert all(going_on)
