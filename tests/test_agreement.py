"""The automaton and xgrammar's matcher of the draft grammar agree wherever both follow a call."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.compile import compiled, draft_grammar, forced_text, matcher
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.layout import COMPACT, PRETTY, SPACED, TIGHT_COLON, Layout
from sglang_toolspec.grammars.tools import ToolSet
from tests.jsontexts import SEEDS, instance
from tests.toolsets import LAYOUTS, LEGAL_CALLS, assistant, fits, write_call

PRESETS = {"spaced": SPACED, "pretty": PRETTY, "compact": COMPACT, "tight_colon": TIGHT_COLON}


def places_where_they_agree(tools, grammar, form, layout, name, arguments):
    """Follows a call with both; returns at how many places both knew what must come."""
    habits, walk, both = Habits(), matcher(grammar), 0
    habits.layouts[form] = Layout(PRESETS[layout], mixed_words=FORMATS[form].mixed_words)
    reader = ToolAutomaton(CallShapes(tools), (FORMATS[form],), habits)
    for char in write_call(form, name, arguments, layout):
        forced, span = forced_text(walk), reader.spans()
        assert forced.startswith(span) or span.startswith(forced), (forced, span)
        assert not span or walk.fork().accept_string(span), span
        both += bool(forced and span)
        reader.advance(char.encode())
        assert walk.accept_string(char), char
    assert walk.is_completed()
    assert reader.calls_done == 1
    return both


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_the_certain_text_of_the_automaton_is_that_which_xgrammar_forces(form):
    for layout in LAYOUTS:
        grammar = compiled(draft_grammar(assistant(), FORMATS[form], PRESETS[layout]))
        for name, arguments in LEGAL_CALLS:
            if fits(form, name):
                both = places_where_they_agree(assistant(), grammar, form, layout, name, arguments)
                assert both > 20, (layout, name)


LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["celsius", "kelvin", "c"]},
     {"enum": [1, 12, None]}, {"const": "on"}, {"type": ["string", "null"]}]
)  # fmt: skip
KEYS = st.lists(st.sampled_from(["city", "cities", "unit", "a b"]), max_size=4, unique=True)


def _objects(inner):
    def of(keys):
        return st.builds(
            lambda schemas, required: {
                "type": "object",
                "properties": dict(zip(keys, schemas, strict=True)),
                "required": [key for key, wanted in zip(keys, required, strict=True) if wanted],
                "additionalProperties": False,
            },
            st.tuples(*[inner] * len(keys)),
            st.tuples(*[st.booleans()] * len(keys)),
        )

    return KEYS.flatmap(of)


SCHEMAS = st.recursive(
    LEAVES | st.lists(LEAVES, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
    lambda inner: _objects(inner) | inner.map(lambda items: {"type": "array", "items": items}),
    max_leaves=6,
)
FORMS_OF_ALL_KINDS = st.sampled_from(["hermes", "bare", "array", "kimi_k2"])


@settings(max_examples=40)
@given(_objects(SCHEMAS), FORMS_OF_ALL_KINDS, st.sampled_from(sorted(PRESETS)), SEEDS)
def test_so_it_is_for_generated_schemas(raw, form, layout, seed):
    tools = ToolSet.from_openai([{"name": "f", "parameters": raw}])
    grammar = compiled(draft_grammar(tools, FORMATS[form], PRESETS[layout]))
    places_where_they_agree(tools, grammar, form, layout, "f", instance(raw, Random(seed)))
