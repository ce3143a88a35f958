"""Grammars that are printed and read again allow what they allowed, and numbers end."""

import json
import os
from pathlib import Path

import pytest
import xgrammar

from sglang_toolspec.grammars.compile import compiled, matcher
from sglang_toolspec.grammars.ebnf import MAX_DIGITS, printed, with_ends
from tests.jsonschema_suite import quiet

LETTERS = {
    "properties": {
        'é"\\ß9': {"type": "string"},
        "\u0001a": {"enum": ["ü\n", "\\u00e9"]},
        "n": {"type": "number"},
    },
    "required": ['é"\\ß9'],
}
VALUES = [
    {'é"\\ß9': 'a"b\\ü'},
    {'é"\\ß9': "", "\u0001a": "ü\n", "n": -1.5e-7},
    {'é"\\ß9': "", "\u0001a": "\\u00e9"},
    {'é"\\ß9': "", "\u0001a": "u00e9"},
    {"n": 1},
]


def grammars(schema):
    """As xgrammar makes it, and printed with ends."""
    found = xgrammar.Grammar.from_json_schema(json.dumps(schema), strict_mode=True, max_whitespace_cnt=4)
    return compiled(found), compiled(xgrammar.Grammar.from_ebnf(with_ends(printed(found))))


def allows(grammar, value):
    reply = matcher(grammar)
    return reply.accept_string(json.dumps(value, ensure_ascii=False)) and reply.is_completed()


def test_keys_and_values_keep_their_letters():
    plain, ending = grammars({"type": "object", **LETTERS})

    assert [allows(plain, value) for value in VALUES] == [True, True, True, False, False]
    assert [allows(ending, value) for value in VALUES] == [True, True, True, False, False]


@pytest.mark.parametrize(
    "schema", [{"type": "number"}, {"type": "integer"}, {"type": "integer", "minimum": 3}]
)
def test_a_number_has_as_many_digits_as_said(schema):
    plain, ending = grammars(schema)

    for digits in (1, MAX_DIGITS, MAX_DIGITS + 1):
        value = int("7" * digits)
        assert allows(plain, value)
        assert allows(ending, value) == (digits <= MAX_DIGITS)


def test_digits_of_strings_have_no_end_of_ours():
    _, ending = grammars({"type": "string", "pattern": "^[1-9][0-9]*$"})

    assert allows(ending, "7" * 2 * MAX_DIGITS)


def test_schemas_of_the_benchmark_allow_what_they_allowed():
    path = Path(os.environ.get("TOOLSPEC_DATA", "")) / "jsonschemabench.jsonl"
    if "TOOLSPEC_DATA" not in os.environ or not path.is_file():
        pytest.skip(f"set TOOLSPEC_DATA to the folder that holds {path.name}")
    for line in path.read_text().splitlines()[::6]:
        row = json.loads(line)
        try:
            with quiet():
                plain, ending = grammars(row["schema"])
        except RuntimeError:
            continue  # xgrammar does not take it
        values = [*row["valid"], *row["invalid"]]
        assert [allows(plain, v) for v in values] == [allows(ending, v) for v in values], row["id"]
