"""In forced calls white space is bounded where the server's flag says so, required keys may be written, and
nothing else changes."""

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

    assert found.count('"max_whitespace_cnt": 3') == found.count('"type": "json_schema", "json_schema"') > 0


def test_a_bound_that_a_request_has_itself_is_kept():
    own = {**FORMAT, "content": {**FORMAT["content"], "max_whitespace_cnt": 1}}

    assert not walk({"type": "structural_tag", "format": own}).accept_string(call(2))


def test_without_the_flag_nothing_changes():
    (_, text), _ = bounded(json.dumps(TAG), None)

    assert json.loads(text) == TAG


@pytest.mark.parametrize(
    "text", ["", "7", "[]", "{}", '{"structures": 7}', '{"structures": [{}], "triggers": []}', "[" * 100_000]
)
def test_what_is_no_tag_is_left_to_sglang(text):
    assert bounded(text) is None


@pytest.mark.parametrize("limit", [None, 3])
def test_keys_that_are_required_but_not_declared_must_be_written(limit):
    people = {"type": "object", "required": ["adults", "children"]}
    schema = {"type": "object", "properties": {"people": people}, "required": ["people"]}
    tag = {
        "type": "structural_tag",
        "format": {**FORMAT, "content": {"type": "json_schema", "json_schema": schema}},
    }

    assert walk(tag, limit).accept_string('<f>{"people": {"adults": 2, "children": "one"}}</f>')
    assert not walk(tag, limit).accept_string('<f>{"people": {}')


def test_names_of_properties_are_no_keywords():
    schema = {"type": "object", "properties": {"required": {"type": "array", "items": {"type": "string"}}}}
    tag = {
        "type": "structural_tag",
        "format": {**FORMAT, "content": {"type": "json_schema", "json_schema": schema}},
    }
    (_, text), _ = bounded(json.dumps(tag))

    assert json.loads(text)["format"]["content"]["json_schema"] == schema
