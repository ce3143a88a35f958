"""Schemas as the automaton reads them: every keyword that shapes text, and schemas meant to hurt."""

import json
import time

import pytest

from sglang_toolspec.grammars.schema import (
    ANYTHING,
    KINDS,
    MAX_ARMS,
    MAX_PROPERTIES,
    MAX_VALUES,
    Schema,
    kind_of,
    union,
    written,
)

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def at(raw, *path):
    """The alternatives at a path of keys and indices."""
    arms = Schema.root(raw).arms
    for step in path:
        arms = union(arm.item(step) if isinstance(step, int) else arm.member(step) for arm in arms)
    return arms


def kinds(raw, *path):
    return {kind for arm in at(raw, *path) for kind in arm.kinds}


def only(raw, *path):
    (arm,) = at(raw, *path)
    return arm


# Types and values.


@pytest.mark.parametrize("raw", [True, False, None, 3, "string", [], [STRING], {}, {"type": []}])
def test_what_says_nothing_allows_anything(raw):
    arm = only(raw)
    assert arm.kinds == KINDS
    assert (arm.values, dict(arm.properties), arm.closed) == (None, {}, False)


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("object", "object"), ("dict", "object"), ("Dict", "object"), ("OBJECT", "object"),
        ("list", "array"), ("tuple", "array"), ("str", "string"), ("STRING", "string"),
        ("int", "integer"), ("float", "number"), ("double", "number"), ("bool", "boolean"),
        ("none", "null"), ("null", "null"),
    ],
)  # fmt: skip
def test_types_go_by_many_names(named, kind):
    assert kinds({"type": named}) == {kind}


@pytest.mark.parametrize("named", ["any", "", "date", 7, None, ["any"], {"type": "string"}])
def test_an_unknown_type_allows_anything(named):
    assert kinds({"type": named}) == KINDS


def test_a_list_of_types_allows_each_of_them():
    assert kinds({"type": ["string", "null", "float", 3]}) == {"string", "null", "number"}


def test_nullable_adds_null():
    assert kinds({"type": "string", "nullable": True}) == {"string", "null"}
    assert kinds({"type": "string", "nullable": False}) == {"string"}


@pytest.mark.parametrize(
    ("keyword", "value", "kind"),
    [
        ("properties", {}, "object"), ("required", ["a"], "object"), ("items", {}, "array"),
        ("prefixItems", [{}], "array"), ("pattern", "^a", "string"), ("minLength", 2, "string"),
    ],
)  # fmt: skip
def test_a_keyword_hints_at_the_type_that_is_not_given(keyword, value, kind):
    assert kinds({keyword: value}) == {kind}


def test_values_of_an_enum_keep_their_order_and_decide_the_type():
    arm = only({"enum": ["b", "a", 3, None, {"x": [1]}]})
    assert arm.values == ("b", "a", 3, None, {"x": [1]})
    assert arm.texts == ('"b"', '"a"', "3", "null", '{"x": [1]}')
    assert arm.kinds == {"string", "integer", "null", "object"}


@pytest.mark.parametrize("finite", [{"const": 5}, {"enum": [5]}, {"const": 5, "enum": [5, 6]}])
def test_values_win_over_a_type_that_contradicts_them(finite):
    arm = only({"type": "string", **finite})
    assert (arm.values, arm.kinds) == ((5,), {"integer"})


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_a_const_may_be_any_value(value):
    assert only({"const": value}).values == (value,)


@pytest.mark.parametrize("choices", [[], "ab", None, {"a": 1}])
def test_an_enum_without_choices_allows_anything(choices):
    assert only({"type": "string", "enum": choices}).values is None


def test_text_keywords_of_strings_are_kept():
    arm = only({"type": "string", "format": "date", "pattern": "^x", "minLength": 3})
    assert (arm.text["format"], arm.text["pattern"]) == ("date", "^x")


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "null"), (True, "boolean"), (1, "integer"), (1.5, "number"), ("", "string"), ([], "array")],
)
def test_kinds_are_json_schemas(value, kind):
    assert kind_of(value) == kind


@pytest.mark.parametrize("text", ["é", "日本", "😀", '"', "\n"])
def test_json_is_written_without_needless_escapes(text):
    assert written(text) == json.dumps(text, ensure_ascii=False)


def test_only_a_lone_surrogate_is_escaped():
    assert written("é\ud800") == '"\\u00e9\\ud800"'


# Objects and arrays.


def test_properties_keep_their_order():
    arm = only({"type": "object", "properties": {"b": STRING, "a": INTEGER}, "required": ["a", 3]})
    assert list(arm.properties) == ["b", "a"]
    assert arm.required == {"a"}


def test_keys_that_are_required_without_being_declared_are_declared_too():
    schema = {"type": "object", "properties": {"b": STRING}, "required": ["c", "a", "b"]}

    assert list(only(schema).properties) == ["b", "c", "a"]
    assert kinds({**schema, "additionalProperties": INTEGER}, "c") == {"integer"}
    assert list(only({**schema, "additionalProperties": False}).properties) == ["b"]


@pytest.mark.parametrize("faulty", [None, 7, "ab", ["a"]])
def test_properties_that_are_no_object_read_as_none(faulty):
    assert dict(only({"type": "object", "properties": faulty, "required": faulty}).properties) == {}


@pytest.mark.parametrize(
    ("extra", "closed", "kind"),
    [(False, True, KINDS), (True, False, KINDS), (None, False, KINDS), (INTEGER, False, {"integer"})],
)
def test_additional_properties_say_what_undeclared_keys_hold(extra, closed, kind):
    raw = {"type": "object", "properties": {"a": STRING}, "additionalProperties": extra}
    assert only(raw).closed is closed
    assert kinds(raw, "other") == kind
    assert kinds(raw, "a") == {"string"}


def test_pattern_properties_hold_for_the_keys_that_match():
    raw = {
        "properties": {"n_a": {"type": "boolean"}},
        "patternProperties": {"^n_": INTEGER, "^s_": STRING},
        "additionalProperties": False,
    }
    assert [kinds(raw, key) for key in ("n_a", "n_b", "s_b")] == [{"boolean"}, {"integer"}, {"string"}]
    assert kinds(raw, "x") == KINDS
    assert not only(raw).closed


@pytest.mark.parametrize("pattern", ["(", "[", "a{99999999999}", "(?<n"])
def test_a_pattern_that_is_none_is_left_out(pattern):
    raw = {"patternProperties": {pattern: STRING, "^n": INTEGER}}
    assert kinds(raw, "n") == {"integer"}


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "array", "prefixItems": [STRING, INTEGER], "items": {"type": "null"}},
        {"type": "array", "items": [STRING, INTEGER], "additionalItems": {"type": "null"}},
    ],
)
def test_the_first_items_have_schemas_of_their_own(raw):
    assert [kinds(raw, i) for i in range(4)] == [{"string"}, {"integer"}, {"null"}, {"null"}]


@pytest.mark.parametrize("items", [True, False, {}, None])
def test_items_without_a_schema_may_be_anything(items):
    assert kinds({"type": "array", "items": items}, 5) == KINDS


# References.

POINT = {"type": "object", "properties": {"x": INTEGER}}


@pytest.mark.parametrize(
    ("reference", "more"),
    [
        ("#/$defs/Point", {"$defs": {"Point": POINT}}),
        ("#/definitions/Point", {"definitions": {"Point": POINT}}),
        ("#/definitions/a~1b%20c", {"definitions": {"a/b c": POINT}}),
        ("#point", {"$defs": {"Point": {"$anchor": "point", **POINT}}}),
        ("http://a.b/point", {"$defs": {"Point": {"$id": "http://a.b/point", **POINT}}}),
        ("point.json", {"$id": "http://a.b/root.json", "$defs": {"P": {"$id": "point.json", **POINT}}}),
        ("http://a.b/root#/$defs/Point", {"$id": "http://a.b/root", "$defs": {"Point": POINT}}),
        ("#/properties/other", {}),
        ("#/$defs/One", {"$defs": {"One": {"$ref": "#/$defs/Two"}, "Two": POINT}}),
    ],
)
def test_references_within_the_schema_are_followed(reference, more):
    raw = {"type": "object", "properties": {"at": {"$ref": reference}, "other": POINT}, **more}
    assert kinds(raw, "at", "x") == {"integer"}


def test_a_dynamic_reference_is_followed():
    raw = {"$defs": {"P": {"$dynamicAnchor": "p", **POINT}}, "properties": {"at": {"$dynamicRef": "#p"}}}
    assert kinds(raw, "at", "x") == {"integer"}


def test_an_identifier_below_changes_what_references_mean_there():
    inner = {"$id": "http://c.d/inner", "$defs": {"P": INTEGER}, "properties": {"at": {"$ref": "#/$defs/P"}}}
    raw = {"$id": "http://a.b/root", "$defs": {"P": STRING}, "properties": {"inner": inner}}
    assert kinds(raw, "inner", "at") == {"integer"}


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/Missing", "#missing", "http://example.com/other.json", "other.json#/x", "#/properties/at/0",
        "", "#", "%%%", "#/%zz", "http://[", 5, None, ["#"], "#/required/x",
    ],
)  # fmt: skip
def test_a_reference_that_cannot_be_followed_allows_anything(reference):
    raw = {"type": "object", "properties": {"at": {"$ref": reference}, "b": STRING}, "required": ["b"]}
    assert "string" in kinds(raw, "at", "deeper", "still")
    assert kinds(raw, "b") == {"string"}


def test_keywords_beside_a_reference_count_too():
    raw = {
        "$defs": {"Point": POINT},
        "properties": {"at": {"$ref": "#/$defs/Point", "properties": {"y": INTEGER}, "required": ["y"]}},
    }
    assert set(only(raw, "at").properties) == {"x", "y"}
    assert only(raw, "at").required == {"y"}


def test_a_recursive_schema_is_followed_as_deep_as_a_value_goes():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "n": INTEGER}}
    raw = {"$defs": {"Node": node}, "$ref": "#/$defs/Node"}
    assert kinds(raw, *["next"] * 60, "n") == {"integer"}


@pytest.mark.parametrize(
    "raw",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
        {"allOf": [{"$ref": "#"}], "anyOf": [{"$ref": "#"}, STRING]},
        {"oneOf": [{"$ref": "#"}] * 40},
        {"if": {}, "then": {"$ref": "#"}, "else": {"$ref": "#"}},
    ],
)
def test_references_that_run_in_circles_end(raw):
    assert 1 <= len(at(raw)) <= MAX_ARMS


# Unions and conjunctions.


def test_all_branches_of_a_conjunction_count():
    raw = {
        "allOf": [
            {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
            {"properties": {"b": INTEGER}, "required": ["b"]},
        ],
        "properties": {"c": {}},
    }
    arm = only(raw)
    assert set(arm.properties) == {"a", "b", "c"}
    assert arm.required == {"a", "b"}
    assert arm.kinds == {"object"}


def test_a_key_of_several_branches_fits_all_of_them():
    raw = {"allOf": [{"properties": {"a": {"enum": [1, 2, 3]}}}, {"properties": {"a": {"enum": [3, 2]}}}]}
    assert only(raw, "a").values == (2, 3)


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_each_branch_of_a_union_is_an_alternative(keyword):
    raw = {keyword: [STRING, {"enum": [1, 2]}, {"type": "object", "properties": {"a": {}}}]}
    assert [arm.kinds for arm in at(raw)] == [{"string"}, {"integer"}, {"object"}]


def test_keywords_beside_a_union_hold_in_each_branch():
    raw = {
        "type": "object",
        "properties": {"k": INTEGER},
        "additionalProperties": False,
        "anyOf": [{"required": ["k"]}, {"properties": {"j": STRING}}],
    }
    first, second = at(raw)
    assert first.required == {"k"}
    assert set(second.properties) == {"k", "j"}
    assert all(arm.kinds == {"object"} and arm.closed for arm in (first, second))


def test_branches_that_contradict_what_stands_beside_them_are_left_out():
    assert kinds({"type": "object", "anyOf": [STRING, POINT]}) == {"object"}


def test_a_contradiction_is_read_leniently():
    assert kinds({"allOf": [STRING, INTEGER]})
    assert only({"allOf": [{"enum": [1]}, {"enum": [2]}]}).values == (1,)


def test_unions_multiply():
    raw = {"allOf": [{"anyOf": [{"title": i} for i in "ab"]}, {"oneOf": [{"title": i} for i in "xyz"]}]}
    assert len(at(raw)) == 6


def test_a_condition_leaves_both_ways_open():
    raw = {
        "properties": {"kind": {}},
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"properties": {"x": INTEGER}},
        "else": {"properties": {"y": STRING}},
    }
    assert [set(arm.properties) for arm in at(raw)] == [{"kind", "x"}, {"kind", "y"}]


def test_a_condition_without_an_else_adds_nothing_there():
    first, second = at({"if": {}, "then": {"required": ["x"]}})
    assert (first.required, second.required) == ({"x"}, set())


@pytest.mark.parametrize("faulty", [None, 3, "x", {}, [], [None, 3, "x"]])
@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "prefixItems", "patternProperties", "if"])
def test_a_malformed_keyword_does_no_harm(keyword, faulty):
    raw = {"type": "object", "properties": {"a": STRING}, keyword: faulty}
    assert kinds(raw, "a") == {"string"}


CIRCLE = {"type": "object", "properties": {"shape": {"const": "circle"}, "radius": INTEGER}}
SQUARE = {"type": "object", "properties": {"shape": {"const": "square"}, "side": INTEGER}}


def test_a_discriminator_leaves_its_own_branch():
    arms = at({"oneOf": [CIRCLE, SQUARE]})
    left = [arm for arm in arms if arm.narrowed("shape", "square")]
    assert [list(arm.properties) for arm in left] == [["shape", "side"]]


def test_an_open_value_rules_nothing_out():
    arms = at({"oneOf": [CIRCLE, SQUARE]})
    assert all(arm.narrowed("radius", "many") for arm in arms)
    assert all(arm.narrowed("other", 3) for arm in arms)


def test_at_most_so_many_alternatives_values_and_keys_are_kept():
    assert len(at({"anyOf": [{"const": i} for i in range(100)]})) == MAX_ARMS
    assert len(union(Schema.root({"const": i}) for i in range(100))) == MAX_ARMS
    assert len(only({"enum": list(range(5000))}).values) == MAX_VALUES
    assert len(only({"properties": {str(i): {} for i in range(5000)}}).properties) == MAX_PROPERTIES


def test_union_names_each_alternative_once():
    schema = Schema.root(STRING)
    assert union([schema, schema, ANYTHING]) == (*schema.arms, *ANYTHING.arms)


# Schemas meant to hurt. Times are this process's own.


def nested(levels, wrap):
    raw = STRING
    for _ in range(levels):
        raw = wrap(raw)
    return raw


HOSTILE = {
    "items 10,000 deep": nested(10_000, lambda raw: {"items": raw}),
    "properties 10,000 deep": nested(10_000, lambda raw: {"properties": {"a": raw}, "required": ["a"]}),
    "allOf 10,000 deep": nested(10_000, lambda raw: {"allOf": [raw]}),
    "anyOf 10,000 deep": nested(10_000, lambda raw: {"anyOf": [raw, {}]}),
    "deep with anchors": {**nested(10_000, lambda raw: {"items": raw}), "$anchor": "a", "$ref": "#b"},
    "an enum of 1 MB": {"enum": [str(i) for i in range(150_000)]},
    "one value of 1 MB": {"enum": ["x" * (1 << 20)]},
    "50,000 properties": {"properties": {str(i): {} for i in range(50_000)}},
    "properties in a union": {
        "properties": {str(i): {} for i in range(50_000)},
        "allOf": [{"anyOf": [{"properties": {"x": {}}}] * 10}] * 6,
    },
    "wide unions": {"allOf": [{"anyOf": [{"title": "a"}] * 31}, {"anyOf": [{}] * 100_000}]},
    "unions of unions": nested(5, lambda raw: {"anyOf": [raw] * 100}),
    "a wide conjunction": {"anyOf": [{"title": "a"}] * 31, "allOf": [{}] * 100_000},
    "remote references": {"allOf": [{"$ref": f"http://a.b/{i}"} for i in range(10_000)]},
    "unknown anchors": {"$anchor": "a", "allOf": [{"$ref": f"#b{i}"} for i in range(10_000)]},
    "unknown identifiers": {"allOf": [{"$id": f"a{i}", "$ref": f"b{i}"} for i in range(3_000)]},
    "many patterns": {"patternProperties": {f"^a{i}": {} for i in range(20_000)}},
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_schema_takes_no_time(raw):
    began = time.process_time()
    for _ in Schema.root(raw).arms:
        for arm in at(raw, "a", 0)[:2]:
            assert arm.kinds
        break
    assert time.process_time() - began < 1.5


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a|aa)+$", "(a|aa)" * 20 + "b", "a*" * 20 + "b", ".*.*.*.*.*.*x", "a?" * 40 + "a" * 40,
        "(.*a){9}",
    ],
)  # fmt: skip
def test_a_pattern_that_could_take_for_ever_is_not_tried(pattern):
    began = time.process_time()
    assert kinds({"patternProperties": {pattern: STRING}}, "a" * 60)
    assert kinds({"patternProperties": {pattern: STRING}}, "a" * 5000 + "c")
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("^[a-z0-9_]+$", "ab_1"), ("^x-", "x-y"), ("^(a|b)$", "b"), ("^[A-Z]{2}[0-9]+$", "AB12"),
        (".*", "any"), ("^(c|m)?js$", "cjs"),
    ],
)  # fmt: skip
def test_usual_patterns_are_used(pattern, key):
    assert kinds({"patternProperties": {pattern: INTEGER}}, key) == {"integer"}
