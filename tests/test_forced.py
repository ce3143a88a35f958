"""What ``make accept`` counts as a reply that parses and validates."""

import pytest

from sglang_toolspec.bench.rows import Row
from tests.forced import fault, forced

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
ROW = forced(Row("0", messages=[{"role": "user", "content": "Hi"}], tools=[TOOL]))


class Letters:
    """A tokenizer whose ids are characters; 0 ends a reply."""

    eos_token_id = 0

    def decode(self, ids, skip_special_tokens):
        return "".join(map(chr, ids))


def judged(*arguments, end=""):
    text = "".join(f'<tool_call>\n{{"name": "f", "arguments": {raw}}}\n</tool_call>\n' for raw in arguments)
    return fault(ROW, [*map(ord, text + end), 0], Letters(), "qwen25")


def test_rows_are_sent_strict_and_required_and_stay_what_they_are():
    assert ROW.tool_choice == "required"
    assert ROW.tools[0]["function"] == {"name": "f", "parameters": SCHEMA, "strict": True}
    assert "strict" not in TOOL["function"]


def test_calls_that_fit_are_no_fault():
    assert judged('{"n": 1}') == judged('{"n": 1}', '{"n": 2}') == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (['{"n": "one"}'], "do not fit: /n"),
        (['{"n": 1}', "{}"], "'n' is a required property"),
        ([], "no call in"),
        (["7"], "must be an object"),
    ],
)
def test_what_does_not_fit_is_a_fault(arguments, says):
    assert says in judged(*arguments)
