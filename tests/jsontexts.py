"""JSON for tests: values, layouts, a reader, and a writer that knows where each character stands."""

import json

from hypothesis import strategies as st

from sglang_toolspec.grammars.guesses import NoGuesses
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_reader import JsonReader
from sglang_toolspec.grammars.json_spot import Place
from sglang_toolspec.grammars.layout import Layout
from sglang_toolspec.grammars.schema import ANYTHING, Schema

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = VALUES.filter(lambda value: isinstance(value, dict | list))

SEEDS = st.integers(0, 1 << 32)

STYLES = {
    "spaced": {},
    "pretty": {"indent": 2},
    "pretty_4": {"indent": 4},
    "tabs": {"indent": "\t"},
    "compact": {"separators": (",", ":")},
    "tight_colon": {"separators": (", ", ":")},
}
"""How ``json.dumps`` is asked to write."""


def read(text, raw=None, layout=None, habits=None, guesser=None, tool=""):
    """A reader that has followed ``text``; anything fits where ``raw`` gives no schema."""
    arms = ANYTHING.arms if raw is None else raw.arms if isinstance(raw, Schema) else Schema.root(raw).arms
    reader = JsonReader(
        arms,
        Layout() if layout is None else layout,
        Habits() if habits is None else habits,
        NoGuesses() if guesser is None else guesser,
        tool,
    )
    reader.feed(text)
    return reader


def pieces(value, style="spaced", path=(), ensure_ascii=False):
    """``(text, place, path)``: where a reader stands after each character of ``text``."""
    given = STYLES[style]
    indent = given.get("indent")
    item, colon = given.get("separators", (", " if indent is None else ",", ": "))

    def line(depth):
        unit = indent if isinstance(indent, str) else " " * (indent or 0)
        return "" if indent is None else "\n" + unit * depth

    def piece(inner, path):
        end = Place.AFTER if path else Place.DONE
        text = json.dumps(inner, ensure_ascii=ensure_ascii)
        if isinstance(inner, dict | list) and inner:
            last = list(inner)[-1] if isinstance(inner, dict) else len(inner) - 1
            yield from container(inner, path)
            yield line(len(path)), Place.AFTER, (*path, last)
            yield "}" if isinstance(inner, dict) else "]", end, path
        elif isinstance(inner, dict | list):
            yield text[0], *((Place.KEY, (*path, "")) if inner == {} else (Place.VALUE, (*path, 0)))
            yield text[1], end, path
        elif isinstance(inner, str):
            yield text[:-1], Place.IN_STRING, path
            yield '"', end, path
        else:
            yield text, Place.IN_SCALAR, path

    def container(inner, path):
        pairs = list(inner.items()) if isinstance(inner, dict) else list(enumerate(inner))
        place = Place.KEY if isinstance(inner, dict) else Place.VALUE
        yield "{" if isinstance(inner, dict) else "[", place, (*path, "" if isinstance(inner, dict) else 0)
        before = ""
        for i, (key, member) in enumerate(pairs):
            at = (*path, before) if isinstance(inner, dict) else (*path, i)
            yield item * bool(i) + line(len(path) + 1), place, at
            if isinstance(inner, dict):
                yield json.dumps(key, ensure_ascii=ensure_ascii)[:-1], Place.IN_KEY, at
                yield '"', Place.COLON, (*path, key)
                yield colon, Place.VALUE, (*path, key)
            yield from piece(member, (*path, key))
            before = key

    written = [found for found in piece(value, path) if found[0]]
    assert "".join(text for text, _, _ in written) == json.dumps(value, ensure_ascii=ensure_ascii, **given)
    return written


# Schemas, and values that fit them.

_SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | TEXTS
_LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"},
     {"type": ["string", "null"]}, {"type": ["integer", "boolean"]}, {}]
)  # fmt: skip
_FINITE = st.lists(_SCALARS | st.lists(_SCALARS, max_size=2), min_size=1, max_size=5).map(
    lambda choices: {"enum": choices}
) | _SCALARS.map(lambda value: {"const": value})


def _objects(inner):
    keys = st.lists(TEXTS, max_size=4, unique=True)

    def of(names):
        extra = st.sampled_from([None, False, True]) | inner
        return st.builds(
            lambda schemas, required, extra: {
                "type": "object",
                "properties": dict(zip(names, schemas, strict=True)),
                "required": [name for name, wanted in zip(names, required, strict=True) if wanted],
                **({} if extra is None else {"additionalProperties": extra}),
            },
            st.tuples(*[inner] * len(names)),
            st.tuples(*[st.booleans()] * len(names)),
            extra,
        )

    return keys.flatmap(of)


SCHEMAS = st.recursive(
    _LEAVES | _FINITE,
    lambda inner: (
        _objects(inner)
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.lists(inner, min_size=1, max_size=2).map(lambda first: {"type": "array", "prefixItems": first})
        | st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches})
    ),
    max_leaves=8,
)
OBJECT_SCHEMAS = _objects(SCHEMAS)


def instance(schema, random):
    """A value that fits one of ``SCHEMAS``, with keys in declared order."""
    if "anyOf" in schema:
        return instance(random.choice(schema["anyOf"]), random)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    kind = schema.get("type", "integer")
    return _of_kind(random.choice(kind) if isinstance(kind, list) else kind, schema, random)


def _of_kind(kind, schema, random):
    if kind == "object":
        required = schema["required"]
        chosen = {k: s for k, s in schema["properties"].items() if k in required or random.random() < 0.5}
        found = {key: instance(inner, random) for key, inner in chosen.items()}
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and random.random() < 0.5:
            found.setdefault("an undeclared key", instance(extra, random))
        return found
    if kind == "array":
        count = random.randint(0, 3)
        first = schema.get("prefixItems", [])[:count]
        rest = [schema.get("items", {})] * (count - len(first))
        return [instance(inner, random) for inner in [*first, *rest]]
    return {
        "string": random.choice(["", "a", 'q"\\', "日本 é", "b\nc"]),
        "integer": random.randint(-100, 10_000),
        "number": random.choice([0, -1.5, 2e30]),
        "boolean": random.random() < 0.5,
        "null": None,
    }[kind]
