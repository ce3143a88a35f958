"""One block of calls, read as one format."""

import pytest

from sglang_toolspec.grammars.block import MAX_NAME, MAX_VALUE, Block, Context
from sglang_toolspec.grammars.block_writer import BlockWriter
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.guesses import NoGuesses
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.script import Fork, Index, Json, Key, Literal, Name, Value, next_block
from tests.callpieces import MARKUPS
from tests.toolsets import LAYOUTS, LEGAL_CALLS, SHARED_BLOCK, fits, shapes, write_call, write_calls

FORMS = sorted(FORMATS)
WEATHER = ("get_weather", {"city": "Oslo", "days": 3})


def block(form, steps=None, habits=None):
    form = FORMATS[form]
    return Block(Context(form, shapes(), form.fresh_layout(), habits or Habits(), NoGuesses()), steps)


def fed(form, text):
    found = block(form)
    assert found.feed(text) == ""
    assert not found.broken
    return found


def steps_at(form, text):
    found = fed(form, text)
    return {step.text for step in BlockWriter(found.context).steps(found.point)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMS)
def test_every_call_is_followed_to_its_end(form, layout):
    for name, arguments in LEGAL_CALLS:
        if fits(form, name):
            text = write_call(form, name, arguments, layout)
            found = fed(form, text[:-1])
            assert not found.ended
            assert found.feed(text[-1] + " rest") == " rest"
            assert (found.ended, found.point.calls) == (True, 1)


def test_a_call_without_a_name_is_none():
    """``[TOOL_CALLS] [`` opens an array; it is not a blank name before ``[ARGS]``."""
    found = block("mistral_compact")
    assert found.feed("[TOOL_CALLS] [") == " ["
    assert found.broken


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", SHARED_BLOCK)
def test_a_block_holds_any_number_of_calls(form, layout):
    for count in (2, 3, 5):
        found = fed(form, write_calls(form, LEGAL_CALLS[:count], layout))
        assert (found.ended, found.point.calls) == (True, count)


@pytest.mark.parametrize("form", sorted(set(FORMS) - set(SHARED_BLOCK)))
def test_one_more_call_is_a_block_of_its_own(form):
    call = write_call(form, *WEATHER)
    text = write_calls(form, [WEATHER, WEATHER])
    found = block(form, next_block(FORMATS[form]))
    assert found.feed(text[len(call) :]) == ""
    assert (found.ended, found.point.calls) == (True, 1)


@pytest.mark.parametrize(
    ("form", "text", "step"),
    [
        ("hermes", "<tool_", Literal), ("hermes", "<tool_call>\n", Json), ("fence", "```json", Literal),
        ("mistral_compact", "[TOOL_CALLS]get", Name), ("mistral_compact", "[TOOL_CALLS]a[ARGS]", Json),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:", Index),
        ("glm", "<tool_call>get_time\n<arg_key>", Key), ("glm", "<tool_call>get_time\n<arg", Literal),
        ("glm", "<tool_call>get_time\n", Fork), ("glm", "<tool_call>get_time\n<", Fork),
        ("qwen3_coder", "<tool_call>\n<function=get_time>", Fork),
        ("qwen3_coder", "<tool_call>\n<function=get_time>\n<parameter=zone>\nU", Value),
    ],
)  # fmt: skip
def test_it_knows_the_step_that_is_written(form, text, step):
    assert isinstance(fed(form, text).point.step, step)


@pytest.mark.parametrize("form", ["glm", "glm47", "qwen3_coder", "kimi_k2", "deepseekv3", "harmony"])
def test_a_name_outside_json_is_the_points_tool(form):
    text = write_call(form, *WEATHER)
    found = fed(form, text[: text.index("get_weather") + len("get_weather") + 1])
    assert found.point.tool == "get_weather"


def test_parameters_of_a_markup_are_those_of_an_object():
    text = write_call("qwen3_coder", *WEATHER)
    frame = fed("qwen3_coder", text[: text.index("3")]).point.frame
    assert (frame.seen, frame.key, frame.tool) == (("city", "days"), "days", "get_weather")


@pytest.mark.parametrize("value", ["a\nb", "  x", "</parameter", "<b>", "", "日本"])
def test_a_value_in_a_markup_ends_only_at_its_mark(value):
    text = write_call("qwen3_coder", "get_time", {"zone": value})
    assert fed("qwen3_coder", text).ended


def test_a_call_in_glms_newer_spelling_is_followed():
    text = "<tool_call>get_time<arg_key>zone</arg_key><arg_value>UTC</arg_value></tool_call>"
    assert fed("glm", text).ended
    assert fed("glm", "<tool_call>list_alarms</tool_call>").ended


# White space.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("space", ["", " ", "\n\n", "\r\n"])
def test_white_space_between_marks_is_free(form, space):
    if form == "glm" and not space:
        return  # nothing would stand between name and parameters
    head, name, tail = write_call(form, *WEATHER).partition("get_weather")
    if form in MARKUPS:
        tail = tail.replace("\n", space)
    text = space + head.replace("\n", space) + name + tail
    found = fed(form, text.replace("}\n", "}" + space))
    assert found.ended


@pytest.mark.parametrize("form", ["hermes", "fence", "glm", "deepseekv3", "array"])
def test_endless_white_space_breaks_a_block(form):
    text = write_call(form, *WEATHER)
    at = text.rindex("\n") if "\n" in text else len(text) - 1
    found = block(form)
    found.feed(text[:at])
    for _ in range(20):
        found.feed("\n" * 10)
    assert found.broken


# What breaks it.


@pytest.mark.parametrize(
    ("form", "text", "rest"),
    [
        ("hermes", "<tool_kit>", "<tool_k"), ("hermes", "<tool_call>\nget", "g"),
        ("hermes", "<tool_call>[", "["), ("hermes", "<tool_call>{'a'", "'"),
        ("fence", "```python\n", "```p"), ("bare", "[1]", "["), ("array", "[1]", "1"),
        ("kimi_k2", "<|tool_calls_section_end|>", "<|tool_calls_section_e"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {}}\n</tool_calls>', "\n</tool_calls"),
        ("bare", '{"name": "a"\n\n{', "\n\n{"), ("hermes", "<tool_call>\n \nx", " \nx"),
        ("glm", "<tool_call>get_time\n<arg_value>", "\n<arg_v"),
    ],
)  # fmt: skip
def test_it_breaks_at_the_start_of_the_mark_that_does_not_fit(form, text, rest):
    found, at_once = block(form), block(form)
    for i, char in enumerate(text):
        left = found.feed(char)
        if found.broken:
            assert left == rest
            assert at_once.feed(text) == rest + text[i + 1 :]
            assert at_once.broken
            return
    raise AssertionError("not broken")


@pytest.mark.parametrize(
    "text",
    [
        "{}", '{"a": 1}', '{"name": "nobody"}', '{"name": 3, "arguments": {}}', '{"arguments": {}}',
        '{"name": {}}', '{"names": "get_time"}',
    ],
)  # fmt: skip
def test_an_object_that_names_no_tool_is_no_call(text):
    found = block("bare")
    found.feed(text)
    assert found.broken


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "get_time"}', '{"name": "nobody", "arguments": {}}', '{"name": "nobody", "parameters": {}}',
        '{"id": 7, "name": "get_time", "arguments": {}}', '{"arguments": {}, "name": "get_time"}',
        '{"name": "nobody", "name": "get_time"}', '{"name": "get_time", "arguments": "{}"}',
    ],
)  # fmt: skip
def test_an_object_that_names_a_tool_is_a_call(text):
    assert fed("bare", text).ended


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ("{", True),
        ('{"name', True),
        ('{"name": "x', True),
        ('{"x": ', False),
        ('{"arguments": ', True),
        ("", True),
    ],
)
def test_an_object_with_other_keys_first_is_likely_no_call(text, is_call):
    assert fed("bare", text).is_call is is_call


@pytest.mark.parametrize(
    ("form", "key", "misspelt"),
    [("bare", "arguments", False), ("bare", "parameters", True), ("bare_parameters", "arguments", True)],
)
def test_the_other_spelling_of_arguments_is_noticed(form, key, misspelt):
    found = fed(form, '{"name": "get_time", "')
    assert not found.misspelt
    found.feed(key + '"')
    assert found.misspelt is misspelt


@pytest.mark.parametrize("form", ["mistral_compact", "glm", "glm47", "qwen3_coder", "kimi_k2"])
def test_a_name_has_a_limit(form):
    head = write_call(form, *WEATHER).partition("get_weather")[0]
    found = block(form)
    found.feed(head + "n" * MAX_NAME)
    assert not found.broken
    found.feed("n")
    assert found.broken


def test_a_value_in_a_markup_has_a_limit():
    found = fed("glm", "<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>")
    found.feed("x" * MAX_VALUE)
    assert not found.broken
    found.feed("x")
    assert found.broken


# Ways on.


def test_the_writer_offers_names_keys_and_marks():
    assert steps_at("glm", "<tool_call>get_") == {"weather", "time"}
    assert steps_at("glm", "<tool_call>get_time") == {""}
    assert steps_at("glm", "<tool_call>get_time\n") == {"<arg_key>", "</tool_call>"}
    assert steps_at("glm", "<tool_call>get_time\n<arg_key>") == {"zone"}
    assert steps_at("glm", "<tool_call>get_time\n<arg_key>zo") == {"ne"}
    assert steps_at("glm", "<tool_call>get_time\n<arg_key>zone") == {""}
    assert steps_at("glm", "<tool_call>get_time\n<arg_key>zone</arg") == {"_key>\n<arg_value>"}
    assert steps_at("glm", "<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>x</arg_value>") == {
        "\n<arg_key>", "\n</tool_call>",
    }  # fmt: skip


def test_the_writer_offers_choices_in_a_markup():
    text = "<tool_call>\n<function=get_weather>\n<parameter=unit>\n"
    ends = "\n</parameter>"
    assert steps_at("qwen3_coder", text) == {unit + ends for unit in ("celsius", "fahrenheit", "kelvin")}
    assert steps_at("qwen3_coder", text + "ke") == {"lvin" + ends}
    assert steps_at("qwen3_coder", text + "kelvin\n</para") == {"meter>"}


def test_the_writer_counts_kimis_calls():
    text = write_calls("kimi_k2", [WEATHER, WEATHER]).removesuffix("<|tool_calls_section_end|>")
    assert steps_at("kimi_k2", text + "<|tool_call_begin|>functions.get_time:") == {"2"}


@pytest.mark.parametrize("form", SHARED_BLOCK)
def test_the_writer_offers_another_call_or_the_end_of_the_block(form):
    closing = FORMATS[form].close
    found = steps_at(form, write_call(form, *WEATHER).removesuffix(closing))
    assert closing in found
    assert len(found) == 2
