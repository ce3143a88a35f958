"""Real catalogues of tools and real schemas, of the data below ``TOOLSPEC_DATA``."""

import json
import os
from itertools import product
from pathlib import Path

import pytest
import xgrammar

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.compile import compiled, draft_grammar, matcher
from sglang_toolspec.grammars.constraint import constraint_source
from sglang_toolspec.grammars.formats import FORMATS, formats_for
from sglang_toolspec.grammars.guesses import NoGuesses
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_reader import JsonReader
from sglang_toolspec.grammars.json_spot import Place
from sglang_toolspec.grammars.json_writer import JsonWriter
from sglang_toolspec.grammars.layout import PRETTY, SPACED, Layout
from sglang_toolspec.grammars.schema import Schema
from sglang_toolspec.grammars.tools import ToolSet
from tests.toolsets import PARSERS, dumps, fits, write_call

PRESETS = {"spaced": SPACED, "pretty": PRETTY}
STRUCTURAL = (Place.VALUE, Place.KEY, Place.AFTER)
STYLES = ("spaced", "pretty", "compact")
MAX_LEVELS = 6
KNOWN_MISSING = {"JsonSchemaStore---bukkit-plugin"}
"""Rows of the benchmark with a structural place whose way on is not offered."""


def rows(name):
    path = Path(os.environ.get("TOOLSPEC_DATA", "")) / f"{name}.jsonl"
    if "TOOLSPEC_DATA" not in os.environ or not path.is_file():
        pytest.skip(f"set TOOLSPEC_DATA to the folder that holds {path.name}")
    return [json.loads(line) for line in path.read_text().splitlines()]


# Catalogues of MCP servers.


@pytest.fixture(scope="module")
def catalogues():
    """Tools by catalogue, whole."""
    return {row["id"]: ToolSet.from_openai(row["tools"]) for row in rows("mcp_tools")}


@pytest.fixture(scope="module")
def shapes(catalogues):
    return {name: CallShapes(tools) for name, tools in catalogues.items()}


def test_catalogues_load_whole(catalogues):
    for row in rows("mcp_tools"):
        assert set(row) == {"id", "source", "license", "tools"}
        loaded = catalogues[row["id"]].tools
        assert [tool.name for tool in loaded] == [entry["function"]["name"] for entry in row["tools"]]
    assert len(catalogues["github-mcp-server"].tools) == 117
    assert sum(len(tools.tools) for tools in catalogues.values()) == 337


def test_catalogues_compile_whole(catalogues):
    """Both grammars of each, for text: a vocabulary adds time (``tests.bench_grammars``), no failure."""
    for name, tools in catalogues.items():
        grammars = (
            draft_grammar(tools, FORMATS["hermes"], SPACED),
            xgrammar.Grammar.from_structural_tag(constraint_source(tools, "qwen25", "required", True)),
        )
        for grammar in map(compiled, grammars):
            for tool in tools.tools:
                begun = write_call("hermes", tool.name, {}).partition("{}")[0]
                assert matcher(grammar).accept_string(begun + "{"), (name, tool.name)
            assert not matcher(grammar).accept_string(write_call("hermes", "nobody", {}))


def test_every_declared_parameter_of_a_catalogue_is_known(catalogues, shapes):
    for name, tools in catalogues.items():
        for tool in tools.tools:
            known = {key for arm in shapes[name].arguments(tool.name).arms for key in arm.properties}
            assert known >= set(tool.properties), (name, tool.name)


def instance(schema, root, full, level=0):
    """A value that fits a schema: the least, or all that it names."""
    schema = merged(schema, root, full)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][-1 if full else 0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    full = full and level < MAX_LEVELS
    if kind == "object":
        properties = schema.get("properties", {})
        names = list(properties) if full else schema.get("required", [])
        extra = {"undeclared": schema.get("additionalProperties")} if full and not properties else {}
        extra = {} if extra.get("undeclared") is False else extra
        wanted = {name: properties.get(name) for name in names} | extra
        return {name: instance(inner, root, full, level + 1) for name, inner in wanted.items()}
    if kind == "array":
        return [instance(schema.get("items"), root, full, level + 1) for _ in range(2 * full)]
    text = 'a "b"\n日本' if full else ""
    return {"integer": 12, "number": 2.5, "boolean": full, "null": None}.get(kind, text)


def merged(schema, root, full):
    """The schema with its reference followed and one branch of its unions chosen."""
    if not isinstance(schema, dict):
        return {}
    if isinstance(reference := schema.get("$ref"), str):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return merged(resolved(reference, root) | rest, root, full)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword):
            rest = {key: value for key, value in schema.items() if key != keyword}
            return merged(rest | schema[keyword][-1 if full else 0], root, full)
    return schema


def resolved(reference, root):
    found = root
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found


def calls_of(tools):
    """Each tool's least and fullest call, with a layout."""
    for i, tool in enumerate(tools.tools):
        for full in (False, True):
            layout = STYLES[(i + full) % len(STYLES)]
            yield tool.name, instance(dict(tool.parameters), tool.parameters, full), layout


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_calls_of_every_tool_are_followed_in_every_format_and_style(catalogues, shapes, form):
    for catalogue, tools in catalogues.items():
        habits = Habits()
        for (name, arguments, _), layout in product(calls_of(tools), STYLES):
            assert fits(form, name)
            text = write_call(form, name, arguments, layout).encode()
            reader = ToolAutomaton(shapes[catalogue], formats_for(PARSERS[form]), habits)
            for at in range(0, len(text) - 1, 64):
                reader.advance(text[at : min(at + 64, len(text) - 1)])
            assert reader.point is not None, (catalogue, name)
            reader.advance(text[-1:])
            assert (reader.calls_done, reader.point) == (1, None), (catalogue, name)


@pytest.mark.parametrize("layout", ["spaced", "pretty"])
def test_what_a_call_has_next_is_among_the_ways(catalogues, shapes, layout):
    for catalogue, tools in catalogues.items():
        for name, arguments, _ in calls_of(tools):
            schema = shapes[catalogue].arguments(name)
            missing, _, done = missing_ways(schema, dumps(arguments, layout), PRESETS[layout])
            assert done
            assert not missing, (catalogue, name)


def missing_ways(schema, text, preset):
    """Structural places whose way on is not among those offered, their number, and whether the
    text was followed to its end."""
    habits, layout = Habits(), Layout(preset)
    reader = JsonReader(schema.arms, layout, habits, NoGuesses())
    writer = JsonWriter(layout, habits, NoGuesses())
    missing, places = [], 0
    for at, char in enumerate(text):
        spot = reader.spot
        if spot.place is Place.BROKEN:
            break
        if spot.place in STRUCTURAL and not spot.gap:
            places += 1
            ways = writer.ways(spot)
            if not any(text.startswith(way.text, at) for way in ways):
                missing.append((spot.path, text[at : at + 30], [way.text for way in ways][:5]))
        reader.feed(char)
    at_root_scalar = reader.place is Place.IN_SCALAR and reader.frame is None
    return missing, places, reader.place is Place.DONE or at_root_scalar


# Schemas of the benchmark.


def test_rows_of_the_benchmark_have_the_fields_that_are_read():
    for row in rows("jsonschemabench"):
        assert {"id", "source", "schema", "valid", "invalid"} <= set(row)
        assert isinstance(row["valid"], list)


def test_schemas_of_the_benchmark_are_followed():
    """Each valid instance in two layouts; docs/schemas.md says what is missed, and why."""
    values = done = places = 0
    missing, broken = [], []
    for row in rows("jsonschemabench"):
        schema = Schema.root(row["schema"])
        for value in row["valid"]:
            for layout, preset in PRESETS.items():
                values += 1
                lost, at, ended = missing_ways(schema, dumps(value, layout), preset)
                done += ended
                places += at
                missing += [(row["id"], *found) for found in lost]
                broken += [] if ended else [row["id"]]
    assert values > 2000
    assert done >= 0.995 * values, broken[:10]
    assert {row for row, *_ in missing} <= KNOWN_MISSING, missing[:10]
    assert len(missing) <= 0.005 * places


def test_values_that_fit_no_schema_do_no_harm():
    for row in rows("jsonschemabench"):
        schema = Schema.root(row["schema"])
        for value in row["invalid"]:
            text = dumps(value)
            *_, done = missing_ways(schema, text if len(text) < 2000 else "{}", SPACED)
            assert done, row["id"]
