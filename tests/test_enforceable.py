"""What a mask does not enforce is named: keyword, place, and why."""

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.enforce import Unenforceable, unenforceable
from sglang_toolspec.grammars.mask_schema import mask_schema
from tests.jsonschema_suite import accepts, data_folder, groups, mask, outcomes, quiet, table
from tests.test_constraint import accepts as accepts_text

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def names(schema):
    return {(found.pointer, found.keyword) for found in unenforceable(schema)}


def named_and_real(schema, keyword, broken, at=""):
    """``keyword`` is named, and the mask does let ``broken`` through."""
    found = [f for f in unenforceable(schema) if (f.pointer, f.keyword) == (at, keyword)]
    assert any(f.lets_through for f in found), found
    assert not jsonschema.Draft202012Validator(schema).is_valid(broken)
    assert accepts(mask(schema), broken)


# One test for each fault of the field that was reproduced on xgrammar 0.2.7.


def test_required_without_properties_is_declared():
    schema = {"type": "object", "required": ["a"]}
    assert not unenforceable(schema)
    assert not accepts(mask(schema), {})
    assert accepts(mask(schema), {"a": 1})


def test_required_keys_beside_patterns_of_keys_are_named():
    schema = {"type": "object", "required": ["a"], "patternProperties": {"^b": {}}}
    named_and_real(schema, "required", {"b": 1})


def test_siblings_of_any_of_are_named():
    schema = {
        "type": "object",
        "properties": {"k": INTEGER},
        "additionalProperties": False,
        "anyOf": [{"required": ["k"]}],
    }
    assert {("", "type"), ("", "properties"), ("", "additionalProperties")} <= names(schema)
    named_and_real(schema, "type", "a bare string")


def test_all_of_with_several_branches_is_named():
    branches = [{"type": "object", "properties": {k: INTEGER}, "required": [k]} for k in "ab"]
    named_and_real({"allOf": branches}, "allOf", {"a": 1})


def test_additional_items_beside_prefix_items_is_named():
    schema = {"type": "array", "prefixItems": [INTEGER], "additionalItems": True}
    assert ("", "additionalItems") in names(schema)
    assert not accepts(mask(schema), [1, 2])


def test_an_empty_enum_is_refused_when_it_is_compiled():
    with quiet():
        assert mask({"enum": []}) is None


def test_items_as_a_list_are_refused_when_they_are_compiled():
    with quiet():
        assert mask({"type": "array", "items": [INTEGER]}) is None


def test_property_names_keep_the_schema_of_values():
    schema = {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z]+$"},
        "additionalProperties": {"type": "object", "properties": {"n": {"type": "number"}}},
    }
    assert not unenforceable(schema)
    assert accepts(mask(schema), {"a": {"n": 1}})
    assert not accepts(mask(schema), {"a": {"n": "x"}})


def test_property_names_that_drop_additional_properties_are_named():
    schema = {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": False}
    named_and_real(schema, "additionalProperties", {"a": 1})


def test_unique_items_is_named():
    named_and_real({"type": "array", "items": INTEGER, "uniqueItems": True}, "uniqueItems", [1, 1])


def test_dependent_required_is_named():
    properties = {"a": INTEGER, "b": INTEGER}
    schema = {"type": "object", "properties": properties, "dependentRequired": {"a": ["b"]}}
    named_and_real(schema, "dependentRequired", {"a": 1})


def test_a_pattern_beside_a_format_is_named():
    schema = {**STRING, "format": "date", "pattern": "^2024"}
    named_and_real(schema, "pattern", "2023-01-01")


def test_a_length_beside_a_pattern_is_named():
    named_and_real({**STRING, "pattern": "^a+$", "maxLength": 2}, "maxLength", "aaa")


def test_keys_in_another_order_are_refused():
    grammar = mask({"type": "object", "properties": {"a": INTEGER, "b": INTEGER}})
    assert accepts_text(grammar, '{"a":1,"b":2}')
    assert not accepts_text(grammar, '{"b":2,"a":1}')


def test_a_plain_object_is_any_object():
    assert accepts(mask({"type": "object"}), {"a": [1]})
    assert not unenforceable({"type": "object"})


def test_a_multiple_of_integers_is_enforced_and_one_of_numbers_is_named():
    assert not names({**INTEGER, "multipleOf": 3})
    assert not accepts(mask({**INTEGER, "multipleOf": 3}), 4)
    named_and_real({"type": "number", "multipleOf": 0.5}, "multipleOf", 0.3)


# More of the same kinds.


@pytest.mark.parametrize(
    ("schema", "keyword", "broken"),
    [
        ({"not": INTEGER}, "not", 1),
        ({"if": STRING, "then": {"maxLength": 2}}, "if", "abc"),
        ({"type": "array", "items": INTEGER, "contains": {"const": 5}}, "contains", [1]),
        ({"minimum": 2}, "minimum", 1),
        ({"oneOf": [{"type": "number"}, INTEGER]}, "oneOf", 1),
        ({**STRING, "minLength": 2}, "minLength", ""),
        ({**STRING, "maxLength": 40}, "maxLength", "a" * 41),
        ({**STRING, "pattern": r"^(?=a)\w$"}, "pattern", "b"),
        ({**INTEGER, "multipleOf": 2, "minimum": 0}, "multipleOf", 3),
        ({**INTEGER, "multipleOf": 2000}, "multipleOf", 3),
        ({**INTEGER, "enum": [1, "x"]}, "type", "x"),
        ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}, "maximum": 3}, "maximum", 4),
        ({"$ref": "#item", "$defs": {"a": {"$anchor": "item", **INTEGER}}}, "$ref", "x"),
        ({"const": 1 << 63}, "const", float(1 << 63) * 1.0 + 2048),
        (
            {"type": "object", "properties": {"é": INTEGER}, "additionalProperties": True},
            "properties",
            {"é": "x"},
        ),
        (
            {"type": "object", "properties": {"a": INTEGER}, "patternProperties": {"a": {"minimum": 2}}},
            "patternProperties",
            {"a": 1},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_passes_is_named(schema, keyword, broken):
    if keyword == "const":
        assert ("", "const") in names(schema)
        return
    named_and_real(schema, keyword, broken)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"a": STRING, "b": {"type": ["integer", "null"]}},
            "required": ["a"],
        },
        {**STRING, "enum": ["a", "b"], "description": "one of them", "default": "a"},
        {"anyOf": [STRING, {"type": "null"}], "default": None, "title": "A"},
        {"type": "object", "properties": {"k": {"$ref": "#/$defs/K"}}, "$defs": {"K": {"enum": [1]}}},
        {"oneOf": [STRING, INTEGER]},
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": k}}, "required": ["kind"]} for k in "ab"
            ]
        },
        {"type": "array", "items": STRING, "minItems": 1, "maxItems": 3},
        {"type": "array", "maxItems": 3},
        {**STRING, "format": "date-time"},
        {**STRING, "pattern": "^[a-z]+$"},
        {**INTEGER, "minimum": 0, "maximum": 10},
        True,
        {},
    ],
    ids=str,
)
def test_what_is_enforced_is_not_named(schema):
    assert unenforceable(schema) == []


def test_the_place_is_a_json_pointer():
    inner = {"type": "array", "items": {"anyOf": [STRING, {"not": STRING}]}}
    schema = {"type": "object", "properties": {"a/b~c": inner}}
    assert names(schema) == {("/properties/a~1b~0c/items/anyOf/1", "not")}


def test_what_a_reference_leads_to_is_named_once():
    nested = {"a": {"$ref": "#/$defs/N"}, "b": {"$ref": "#/$defs/N"}}
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}, "not": {"required": ["x"]}}
    assert names({"type": "object", "properties": nested, "$defs": {"N": node}}) == {("/$defs/N", "not")}


def test_what_only_refuses_too_much_is_told_apart():
    (found,) = unenforceable({**STRING, "pattern": "^a"})
    assert found == Unenforceable("", "pattern", "refuses characters that JSON escapes", lets_through=False)


KEYWORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "required", "pattern",
     "if", "then", "multipleOf", "minimum", "patternProperties", "propertyNames", "prefixItems", "maxLength",
     "additionalProperties", "format", "unevaluatedItems", "$dynamicRef", "minProperties", "minContains"]
)  # fmt: skip
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "#"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TYPES
ODD = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": []},
        {"type": "string", "format": {"a": 1}, "pattern": 3, "maxLength": True},
        {"type": "integer", "multipleOf": float("inf")},
        {"type": "integer", "multipleOf": 2, "minimum": "x"},
        {"oneOf": [{"enum": [[1], {"a": 2}]}, {"const": {"a": 2}}]},
        {"type": "object", "propertyNames": {"pattern": 3}, "required": [[]]},
        {"type": "object", "properties": {"a": []}, "required": "a"},
        {"$ref": ["a"], "enum": {"a": 1}},
        {"oneOf": [{"$ref": "#/oneOf/0"}, {"type": "string"}]},
    ],
    ids=str,
)
def test_a_malformed_schema_never_raises(schema):
    json.dumps([found._asdict() for found in unenforceable(schema)])


@given(ODD)
def test_malformed_schemas_never_raise(schema):
    json.dumps([found._asdict() for found in unenforceable(schema)])


@settings(max_examples=25)
@given(st.data())
def test_nothing_generated_passes_silently(data):
    leaf = st.sampled_from([STRING, INTEGER, {"enum": ["a", 1]}, {**INTEGER, "minimum": 1}, {"type": "null"}])
    keys = st.sampled_from(["a", "title", "é"])
    schemas = st.recursive(
        leaf,
        lambda s: (
            st.fixed_dictionaries(
                {"type": st.just("object"), "properties": st.dictionaries(keys, s, max_size=3)},
                optional={
                    "required": st.lists(keys, max_size=1),
                    "additionalProperties": s | st.booleans(),
                    "minProperties": st.just(1),
                    "not": st.just({"required": ["a"]}),
                },
            )
            | st.fixed_dictionaries({"type": st.just("array")}, optional={"items": s, "maxItems": st.just(1)})
            | st.fixed_dictionaries(
                {}, optional={"oneOf": st.lists(s, min_size=1, max_size=2), "type": st.just("object")}
            )
            | st.fixed_dictionaries({"allOf": st.lists(s, min_size=1, max_size=2)})
        ),
        max_leaves=5,
    )
    schema = data.draw(schemas)
    validator = jsonschema.Draft202012Validator(schema)
    values = st.recursive(
        st.sampled_from(["a", 1, 0, None, 1.5]),
        lambda v: st.lists(v, max_size=2) | st.dictionaries(keys, v, max_size=2),
        max_leaves=4,
    )
    tests = [{"data": v, "valid": validator.is_valid(v)} for v in data.draw(st.lists(values, max_size=12))]
    with quiet():
        assert [test for test, outcome in outcomes(schema, tests) if outcome == "silent"] == []


@pytest.mark.skipif(
    data_folder() is None, reason="set TOOLSPEC_DATA to the folder of jsonschema_testsuite.jsonl"
)
def test_the_official_suite_finds_nothing_silent():
    counts = table(data_folder())
    assert {keyword: found["silent"] for keyword, found in counts.items() if found["silent"]} == {}
    total = sum(sum(found.values()) for found in counts.values())
    assert total == sum(len(group["tests"]) for group in groups(data_folder()))


def test_what_would_take_seconds_to_compile_is_left_out_and_named():
    many_keys = {"type": "object", "properties": {str(i): {} for i in range(2000)}, "required": ["7"]}
    many_values = {"type": "string", "enum": [str(i) for i in range(5000)]}
    assert mask_schema(many_keys) == {"type": "object"}
    assert mask_schema(many_values) == {"type": "string"}
    assert [(found.pointer, found.keyword) for found in unenforceable(many_keys)] == [("", "properties")]
    assert ("", "enum") in [(found.pointer, found.keyword) for found in unenforceable(many_values)]
