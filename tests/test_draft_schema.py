"""The lenient skeleton of a schema: shape stays, judgement goes."""

import pytest

from sglang_toolspec.grammars.draft_schema import arguments_schema, draft_schema


@pytest.mark.parametrize(
    "judging",
    [
        {"pattern": "^a+$"},
        {"format": "date"},
        {"minimum": 1, "maximum": 9, "multipleOf": 2},
        {"minLength": 2, "maxLength": 3},
        {"minItems": 1, "maxItems": 2, "uniqueItems": True},
        {"description": "a city", "title": "City", "default": "Oslo", "examples": ["Oslo"]},
        {"not": {"const": 1}, "allOf": [{"minLength": 1}], "if": {}, "then": {}, "else": {}},
    ],
    ids=lambda judging: next(iter(judging)),
)
def test_what_only_judges_a_value_is_dropped_at_every_level(judging):
    inner = {"type": "object", "properties": {"x": {"type": "string", **judging}}}
    kept = draft_schema({"type": "array", "items": inner, **judging})
    assert kept["type"] == "array"
    assert kept["items"]["properties"] == {"x": {"type": "string"}}
    assert set(kept) == {"type", "items"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": ["integer", "null"]},
        {"const": 3},
        {"enum": ["a", 1, None]},
        {"$ref": "#/$defs/Point"},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"$defs": {"Point": {"type": "object"}}, "definitions": {"P": {"type": "string"}}},
    ],
    ids=lambda schema: next(reversed(schema)),
)
def test_what_shapes_the_text_is_kept(schema):
    assert draft_schema(schema) == schema


def test_properties_keep_their_order():
    kept = draft_schema({"properties": {"b": {}, "a": {}, "c": {}}})
    assert list(kept["properties"]) == ["b", "a", "c"]


def test_required_names_only_declared_properties():
    kept = draft_schema({"properties": {"a": {}}, "required": ["ghost", "a", 7]})
    assert kept["required"] == ["a"]


@pytest.mark.parametrize("required", [True, None, "a", {"a": 1}])
def test_a_malformed_required_requires_nothing(required):
    assert draft_schema({"properties": {"a": {}}, "required": required})["required"] == []


def test_one_of_reads_as_any_of():
    assert draft_schema({"oneOf": [{"type": "string"}]}) == {"anyOf": [{"type": "string"}]}


def test_an_enum_too_long_to_draft_leaves_its_type():
    assert draft_schema({"type": "integer", "enum": list(range(257))}) == {"type": "integer"}


@pytest.mark.parametrize("schema", [True, False, None, "string", 3, ["x"], {}])
def test_a_schema_that_says_nothing_allows_anything(schema):
    assert draft_schema(schema) == {}


@pytest.mark.parametrize("target", ["#", "#/properties/a", "other.json#/$defs/A", 5])
def test_a_reference_that_would_point_elsewhere_below_a_call_allows_anything(target):
    assert draft_schema({"$ref": target}) == {}


def test_arguments_are_an_object_whatever_the_schema_says():
    schema, _ = arguments_schema({"type": "string", "properties": {"a": {"type": "integer"}}})
    assert schema["type"] == "object"
    assert schema["properties"] == {"a": {"type": "integer"}}


def test_definitions_are_handed_out_for_the_root():
    schema, defs = arguments_schema(
        {"properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "string", "minLength": 1}}}
    )
    assert defs == {"$defs": {"P": {"type": "string"}}}
    assert "$defs" not in schema


def test_a_tool_that_declares_nothing_takes_no_arguments():
    assert arguments_schema({}) == ({"type": "object", "properties": {}}, {})


def test_a_tool_with_free_keys_is_not_closed():
    schema, _ = arguments_schema({"additionalProperties": {"type": "string"}})
    assert "properties" not in schema


def test_an_object_with_too_many_keys_to_compile_takes_any_keys():
    schema = {"type": "object", "properties": {str(i): {} for i in range(2000)}, "required": ["7"]}
    assert draft_schema(schema) == {"type": "object"}
