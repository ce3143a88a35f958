"""A writer of calls that knows the paper's state after each character."""

from sglang_toolspec.grammars.json_spot import Place
from sglang_toolspec.grammars.states import State
from tests.jsontexts import pieces
from tests.toolsets import dumps, write_call

OTHER, NAME, PARAMETER, VALUE = State.OTHER, State.TOOL_NAME, State.PARAMETER_NAME, State.PARAMETER_VALUE
MARKUPS = ("glm", "glm47", "qwen3_coder")
WHOLE_CALL = ("hermes", "fence", "fence_plain", "bare", "bare_parameters", "llama3", "array", "mistral")
_IN_VALUE = (Place.VALUE, Place.IN_STRING, Place.IN_SCALAR)


def call_pieces(form, name, arguments, layout="spaced"):
    """``(text, state, path, open)`` of a block with one call: what holds after each character.

    ``path`` is that of the value, for values. ``open`` says that only the model knows the text.
    """
    whole = write_call(form, name, arguments, layout)
    if form in MARKUPS:
        found = list(_markup(form, name, arguments, layout))
    elif form in WHOLE_CALL:
        key = "parameters" if form in ("bare_parameters", "llama3", "array") else "arguments"
        found = list(_around(whole, {"name": name, key: arguments}, layout, key))
    else:
        before, after = whole.split(dumps(arguments, layout))
        head, tail = before.split(name)
        found = [(head[:-1], OTHER, ()), (head[-1], NAME, ()), (name, NAME, ()), (tail, OTHER, ())]
        found += [(text, _state(place, path), path) for text, place, path in pieces(arguments, layout)]
        found.append((after, OTHER, ()))
    assert "".join(text for text, _, _ in found) == whole
    return [(text, state, path if state is VALUE else ()) for text, state, path in found if text]


def _around(whole, call, layout, key):
    before, after = whole.split(dumps(call, layout))
    yield before, OTHER, ()
    for text, place, path in pieces(call, layout):
        if path == ("name",) and place is Place.IN_STRING:
            yield text, NAME, ()
        else:
            within = len(path) > 1 and path[0] == key
            yield text, _state(place, path) if within else OTHER, path[1:]
    yield after, OTHER, ()


def _state(place, path):
    if place in (Place.KEY, Place.IN_KEY):
        return PARAMETER
    return VALUE if place in _IN_VALUE and path else OTHER


def _markup(form, name, arguments, layout):
    opening, closing = {
        "glm": ("<tool_call>", "</tool_call>"),
        "glm47": ("<tool_call>", "</tool_call>"),
        "qwen3_coder": ("<tool_call>\n<function=", "</function>\n</tool_call>"),
    }[form]
    before, middle, end = {
        "glm": ("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
        "glm47": ("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
        "qwen3_coder": ("<parameter=", ">\n", "\n</parameter>"),
    }[form]
    line = "" if form == "glm47" else "\n"
    yield from ((opening[:-1], OTHER, ()), (opening[-1], NAME, ()), (name, NAME, ()))
    if form == "qwen3_coder":
        yield ">", OTHER, ()
    # That a name of GLM's has ended is seen at what follows it.
    yield line, OTHER, ()
    for key, value in arguments.items():
        yield from ((before[:-1], OTHER, ()), (before[-1], PARAMETER, ()), (key, PARAMETER, ()))
        yield from ((middle[:-1], OTHER, ()), (middle[-1], VALUE, (key,)))
        if isinstance(value, str):
            yield value, VALUE, (key,)
        else:  # a JSON text of its own
            for text, place, path in pieces(value, layout):
                yield text, VALUE if place is Place.DONE else _state(place, (key, *path)), (key, *path)
        yield from ((end[:-1], VALUE, (key,)), (end[-1], OTHER, ()), (line, OTHER, ()))
    yield closing, OTHER, ()
