"""In forced calls white space is bounded where the server's flag says so, required keys may be written,
numbers end, and nothing else changes."""

import json
from types import SimpleNamespace

import pytest
import xgrammar
from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser

from sglang_toolspec.grammars.compile import compiled, matcher
from sglang_toolspec.runtime.engine.tags import mended

SCHEMA = {
    "type": "object",
    "properties": {"type": {"enum": ["json_schema"]}, "n": {"type": "integer"}},
    "required": ["type", "n"],
    "additionalProperties": False,
}
LEGACY = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f>"],
    "at_least_one": True,
}
FORMAT = {
    "type": "tag",
    "begin": "<f>",
    "content": {"type": "json_schema", "json_schema": SCHEMA},
    "end": "</f>",
}
TAG = {"type": "structural_tag", "format": {"type": "sequence", "elements": [FORMAT]}}


def bounded(text, limit=3):
    return mended(SimpleNamespace(max_whitespace_cnt=limit), text)


def walk(tag, limit=3):
    (_, text), _ = bounded(json.dumps(tag), limit)
    return matcher(compiled(xgrammar.Grammar.from_structural_tag(text)))


def tag_of(schema):
    content = {"type": "json_schema", "json_schema": schema}
    return {"type": "structural_tag", "format": {**FORMAT, "content": content}}


def call(spaces):
    return f'<f>{{"type":{" " * spaces}"json_schema", "n": 1}}</f>'


@pytest.mark.parametrize("tag", [LEGACY, TAG], ids=["SGLang's first form", "xgrammar's"])
def test_white_space_is_bounded_and_the_rest_of_the_mask_is_kept(tag):
    assert walk(tag).accept_string(call(3))
    assert not walk(tag).accept_string(call(4))
    assert not walk(tag).accept_string('<f>{"type": "other"')
    assert not walk(tag).is_completed()


def test_several_calls_stay_possible():
    reply = walk(LEGACY)

    assert reply.accept_string(call(1) * 2)
    assert reply.is_completed()


@pytest.mark.parametrize("parser", ["qwen25", "llama3", "mistral", "deepseekv3", "kimi_k2"])
def test_calls_that_sglang_forces_are_bounded(parser):
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
    kind, tag = FunctionCallParser([Tool.model_validate(tool)], parser).get_structure_constraint("required")
    assert kind == "structural_tag"
    text = tag if isinstance(tag, dict) else tag.model_dump(by_alias=True)

    (_, found), _ = bounded(json.dumps(text), 3)

    assert '"json_schema"' not in found
    assert "whitespace{0, 3}" in found
    assert "whitespace{0, -1}" not in found


def test_a_bound_that_a_request_has_itself_is_kept():
    own = {**FORMAT, "content": {**FORMAT["content"], "max_whitespace_cnt": 1}}

    assert not walk({"type": "structural_tag", "format": own}).accept_string(call(2))


def test_without_the_flag_white_space_has_no_bound():
    assert walk(TAG, None).accept_string(call(1000))


@pytest.mark.parametrize(
    "kind", [{"type": "number"}, {"type": "integer"}, {}, {"type": "number", "minimum": 0}], ids=str
)
@pytest.mark.parametrize("endless", ["7", "0.1", "1e1"])
def test_numbers_end(kind, endless):
    reply = walk(tag_of({"type": "object", "properties": {"n": kind}, "required": ["n"]}))

    assert reply.accept_string('<f>{"n": ')
    written = 0
    for letter in endless + "0" * 200:
        if not reply.accept_string(letter):
            break
        written += 1
    assert written < 100
    assert reply.accept_string("}</f>") or (kind.get("type") == "integer" and endless != "7")


@pytest.mark.parametrize(
    "number", ["0", "-1", "1e-7", "-1.5E+308", "0.1234567890123456789", str(2**256), "1e400"]
)
def test_numbers_that_programs_write_are_allowed(number):
    assert walk(tag_of({"type": "number"})).accept_string(f"<f>{number}</f>")


@pytest.mark.parametrize("style", ["qwen_xml", "glm_xml"])
def test_markup_keeps_its_own_form(style):
    tag = tag_of({"type": "object", "properties": {"n": {"type": "integer"}}})
    tag["format"]["content"]["style"] = style
    (_, found), _ = bounded(json.dumps(tag), 3)

    assert json.loads(found)["format"]["content"] == {**tag["format"]["content"], "max_whitespace_cnt": 3}


def test_a_schema_that_xgrammar_refuses_is_refused_by_sglang():
    tag = tag_of({"type": "object", "minProperties": 2, "maxProperties": 1})

    with pytest.raises(RuntimeError):
        walk(tag)


@pytest.mark.parametrize(
    "text", ["", "7", "[]", "{}", '{"structures": 7}', '{"structures": [{}], "triggers": []}', "[" * 100_000]
)
def test_what_is_no_tag_is_left_to_sglang(text):
    assert bounded(text) is None


@pytest.mark.parametrize("limit", [None, 3])
def test_keys_that_are_required_but_not_declared_must_be_written(limit):
    people = {"type": "object", "required": ["adults", "children"]}
    schema = {"type": "object", "properties": {"people": people}, "required": ["people"]}
    tag = tag_of(schema)

    assert walk(tag, limit).accept_string('<f>{"people": {"adults": 2, "children": "one"}}</f>')
    assert not walk(tag, limit).accept_string('<f>{"people": {}')


def test_names_of_properties_are_no_keywords():
    words = {"required": {"type": "array", "items": {"type": "string"}}, "json_schema": {"type": "string"}}
    tag = tag_of({"type": "object", "properties": words, "required": list(words)})

    assert walk(tag).accept_string('<f>{"required": ["n"], "json_schema": "x"}</f>')
    assert not walk(tag).accept_string('<f>{"required": 7')
