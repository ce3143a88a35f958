"""Replies with calls in the formats of SGLang's parsers, with text before and after."""

from hypothesis import strategies as st

from tests.jsontexts import TEXTS, VALUES
from tests.toolsets import write_calls

TOOLS = {
    "get_weather": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "write_file": {"path": {"type": "string"}, "lines": {"type": "array"}, "options": {"type": "object"}},
    "switch": {"on": {"type": "boolean"}, "level": {"type": "number"}},
    "get_time": {},
}
"""Properties by tool."""

FORMS = {
    "qwen25": ("hermes",),
    "qwen": ("hermes",),
    "hermes": ("hermes",),
    "llama3": ("llama3",),
    "mistral": ("mistral", "mistral_compact"),
    "deepseekv3": ("deepseekv3",),
    "deepseekv31": ("deepseekv31",),
    "kimi_k2": ("kimi_k2",),
    "glm": ("glm",),
    "glm45": ("glm",),
    "glm47": ("glm",),
    "qwen3_coder": ("qwen3_coder",),
    "step3p5": ("qwen3_coder",),
    "nanbeige": ("qwen3_coder",),
    "gpt-oss": ("harmony",),
}
"""For SGLang's parser names in ``grammars/formats.py``, the formats that each of them reads."""

PARSERS = tuple((parser, form) for parser, forms in FORMS.items() for form in forms)
MARKUPS = ("glm", "qwen3_coder")


def reply(parser, form, calls, before="", after="", layout="spaced"):
    """A reply with ``calls``, pairs of a name and arguments."""
    text = write_calls(form, calls, layout)
    if parser == "glm47":  # has no line breaks
        text = text.replace("\n", "")
    if form != "harmony":
        return before + text + after
    said = f"<|start|>assistant<|channel|>commentary<|message|>{before}<|end|>" if before else ""
    final = f"<|start|>assistant<|channel|>final<|message|>{after}" if after else ""
    return f"<|channel|>analysis<|message|>Hm {{.<|end|>{said}<|start|>assistant{text}{final}"


TRICKY = st.sampled_from(
    ["</tool_call>", "<tool_call>", "{", "}}", '"', "\\", "\n", "[1]", "<arg_key>", "```", "</function>"]
)
STRINGS = TEXTS | st.lists(TEXTS | TRICKY, max_size=4).map("".join)
ARGUMENTS = st.dictionaries(TEXTS, VALUES | STRINGS, max_size=4)
OF_TYPE = {
    "string": st.text("abc xyzäß,.-", max_size=12),
    "integer": st.integers(-99, 99),
    "number": st.integers(-99, 99) | st.sampled_from([0.5, 1.25, -3.75]),
    "boolean": st.booleans(),
    "array": st.lists(st.integers(0, 9) | st.sampled_from(["a", "b]"]), max_size=3),
    "object": st.dictionaries(st.sampled_from(["k", "n"]), st.integers(0, 9), max_size=2),
}
"""Values that no markup can mistake."""


def some_calls(form, names=tuple(TOOLS)):
    """Up to three calls that ``form`` can hold."""
    return st.lists(st.sampled_from(names).flatmap(lambda name: _call(form, name)), min_size=1, max_size=3)


def _call(form, name):
    if form not in MARKUPS:
        return st.tuples(st.just(name), ARGUMENTS)
    typed = {key: OF_TYPE[schema["type"]] for key, schema in TOOLS.get(name, {}).items()}
    return st.tuples(st.just(name), st.fixed_dictionaries({}, optional=typed))
