"""Tools that are meant to hurt, or merely odd: drafts of a call to its end, grammars or a reason why
there are none, in bounded time, and no thread that hangs. What is refused is in ``test_sources``."""

import time

import pytest
import xgrammar

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.cache import (
    GrammarCache,
    Limits,
    Vocabulary,
    constraint_recipe,
    draft_recipe,
)
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.compile import TEXT_ONLY
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.layout import SPACED
from sglang_toolspec.grammars.tools import ToolSet
from tests.following import FORMS
from tests.toolsets import STRING, tool, write_call

TEXT_ONLY_VOCABULARY = Vocabulary.of(TEXT_ONLY)


def nested(levels):
    schema = STRING
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def with_schema(schema):
    return [tool("f", {"a": schema})]


TAKEN = {
    "60 levels": (with_schema(nested(29)), {"a": {"a": {"a": {}}}}),
    "an enum of nearly 1 MB": (with_schema({"enum": [f"{i:08}" for i in range(80_000)]}), {"a": "00000007"}),
    "a reference to itself": (with_schema({"$ref": "#/properties/a"}), {"a": [1]}),
    "references in a circle": (
        [
            tool(
                "f",
                {"a": {"$ref": "#/$defs/x"}},
                **{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}},
            )
        ],
        {"a": {"b": 1}},
    ),
    "references that multiply": (
        [
            tool(
                "f",
                {"a": {"$ref": "#/$defs/d0"}},
                **{"$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 4} for i in range(12)}},
            )
        ],
        {"a": {"b": 1}},
    ),
    "a reference to nothing": (with_schema({"$ref": "#/nowhere"}), {"a": 1}),
    "a remote reference": (with_schema({"$ref": "http://example.com/schema.json"}), {"a": 1}),
    "catastrophic patterns": (
        [
            tool(
                "f",
                {"a": STRING | {"pattern": "^(a+)+$"}, "b": STRING | {"pattern": "(.*a){30}"}},
                patternProperties={"^(([a-z])+.)+[A-Z]([a-z])+$": STRING, "(x+x+)+y": STRING},
            )
        ],
        {"a": "a" * 60 + "!", "x" * 60: "1"},
    ),
    "a huge repetition": (with_schema({"type": "string", "pattern": "^(a{1000}){1000}$"}), {"a": "aa"}),
    "dots in the name": ([tool("home.lights.on", {"a": STRING})], {"a": "x"}),
    "quotes in the name": ([tool('say "hi"\\', {"a": STRING})], {"a": "x"}),
    "another script": ([tool("天気を見る", {"都市": STRING})], {"都市": "東京"}),
    "parameters called like keywords": (
        [tool("f", {"properties": STRING, "type": {"enum": ["a", "b"]}, "required": STRING, "$ref": STRING})],
        {"properties": "x", "type": "b", "required": "y", "$ref": "z"},
    ),
    "required without properties": (
        [{"name": "f", "parameters": {"type": "object", "required": ["a", "b"]}}], {"a": 1, "b": 2}
    ),
    "required that nobody declares": ([tool("f", {"a": STRING}, required=["zz"])], {"a": "x", "zz": 1}),
    "an enum that contradicts its type": (
        with_schema({"type": "integer", "enum": ["one", "two"]}), {"a": "two"}
    ),
    "types that contradict each other": (
        with_schema({"allOf": [{"type": "string"}, {"type": "object", "properties": {"b": STRING}}]}),
        {"a": {"b": "x"}},
    ),
    "an empty enum": (with_schema({"enum": []}), {"a": "x"}),
    "nothing is allowed": (with_schema(False), {"a": "x"}),
    "a malformed schema": (with_schema({"type": 3, "properties": [], "items": 1, "enum": {}}), {"a": "x"}),
    "many parameters": (
        [tool("f", {f"key_{i}": STRING for i in range(2000)})], {"key_1999": "x", "key_3": "y"}
    ),
    "many alternatives": (
        with_schema({"anyOf": [{"type": "object", "properties": {f"k{i}": STRING}} for i in range(500)]}),
        {"a": {"k499": "x"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["hermes", "bare", "qwen3_coder", "glm47"])
@pytest.mark.parametrize(("entries", "arguments"), TAKEN.values(), ids=TAKEN)
def test_calls_of_odd_tools_are_followed_and_drafted_in_time(entries, arguments, form):
    began = time.process_time()
    tools = ToolSet.from_openai(entries)
    reader = ToolAutomaton(CallShapes(tools), (FORMATS[form],))
    text = write_call(form, tools.tools[0].name, arguments)
    drafts = 0
    for char in text:
        drafts += bool(reader.continuations())
        assert len(reader.spans()) < 1000
        reader.advance(char.encode())
    assert reader.calls_done == 1
    assert drafts > 10
    assert time.process_time() - began < 3


@pytest.mark.parametrize("entries", [entries for entries, _ in TAKEN.values()], ids=TAKEN)
def test_grammars_of_odd_tools_are_made_or_refused_and_nothing_hangs(entries):
    tools = ToolSet.from_openai(entries)
    heard = []
    cache = GrammarCache(TEXT_ONLY_VOCABULARY, limits=Limits(seconds=10), on_failure=heard.append)
    draft = draft_recipe(tools, FORMATS["hermes"], SPACED)
    recipes = [draft, constraint_recipe(tools, "qwen25", "required", True)]
    cache.compile_now(recipes)
    assert cache.settled(recipes)
    for recipe in recipes:
        assert isinstance(cache.get(recipe), xgrammar.CompiledGrammar) or cache.failed(recipe)
    assert cache.counts.abandoned == 0
    assert len(heard) <= 1


@pytest.mark.parametrize("form", FORMS)
def test_a_parameter_called_like_a_keyword_is_a_parameter(form):
    parameters = {"properties": STRING, "type": {"enum": ["a"]}}
    tools = ToolSet.from_openai([tool("f", parameters, list(parameters))])
    text = write_call(form, "f", {"properties": "x", "type": "a"})
    reader = ToolAutomaton(CallShapes(tools), (FORMATS[form],))
    at = text.index("type", text.index("properties"))
    reader.advance(text[:at].encode())
    assert any(c.text.startswith("type") for c in reader.continuations())
    reader.advance(text[at:].encode())
    assert reader.calls_done == 1
