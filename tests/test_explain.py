"""What ``compile`` shows of a call is what the drafter drafts, and the command survives odd input."""

import io
import json
import xml.dom.minidom

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sglang_toolspec.cli import app
from sglang_toolspec.compile_report import Report
from sglang_toolspec.explain_svg import MAX_TOOLS, drawing
from sglang_toolspec.explain_view import CallText, print_report
from sglang_toolspec.grammars import explain_walk
from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.explain import explain
from sglang_toolspec.grammars.explain_walk import MAX_WAYS
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.layout import COMPACT, PRETTY, Layout
from sglang_toolspec.grammars.piece import OPEN_TEXT, Counts, Kind, Role, flat, typical
from sglang_toolspec.grammars.tools import ToolSet
from tests.toolsets import ASSISTANT, BOOLEAN, GET_TIME, GET_WEATHER, INTEGER, STRING, assistant, tool

FORMAT_NAMES = sorted(FORMATS)
HOSTILE = [
    tool(
        'evil</svg>\x1b[2J"',
        {
            "self": {"$ref": "#"},
            "loop": {"anyOf": [{"$ref": "#/properties/loop"}]},
            "\u202eturned": {"enum": ["</text>", "\0", "x" * 500]},
            "remote": {"$ref": "http://nowhere.invalid/x"},
            "many": {"enum": list(range(5000))},
            **{f"p{i}": STRING for i in range(40)},
        },
        required=["self", "absent"],
    ),
    {"name": "odd", "parameters": {"type": "dict", "properties": "none", "required": "x"}},
]


def one(properties, required=(), form="hermes", layout=None, **more):
    tools = ToolSet.from_openai([tool("f", properties, required, **more)])
    (found,) = explain(tools, FORMATS[form], layout)
    return found


def shown(found, width=100, others=0):
    """The view as a pipe gets it, without the indentation that all lines have."""
    out = io.StringIO()
    Console(file=out, width=width).print(CallText(found, others), end="")
    return "\n".join(line[2:].rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


def first_way(pieces, fill):
    """A call of the pieces: the first of each choice, optional keys left out, ``fill`` where it is open."""
    text = ""
    for piece in pieces:
        if piece.role in (Role.OPTIONAL, Role.MORE):
            continue
        if piece.ways:
            text += first_way(piece.ways[0], fill)
        else:
            text += fill[piece.text] if piece.kind is Kind.OPEN else piece.text
    return text


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_the_pieces_of_a_call_spell_a_call_that_the_automaton_reads(name):
    fill = {"string": "some words", "integer": "12", "object": '{"name": "x"}', "array": "[]"}
    for found in explain(assistant(), FORMATS[name]):
        if " " in found.tool.name and "{name}" in FORMATS[name].call:
            continue  # outside JSON a space may end a name
        reader = ToolAutomaton(CallShapes(assistant()), (FORMATS[name],))
        reader.advance(first_way(found.pieces, fill).encode())
        assert found.complete
        assert reader.calls_done == 1


def test_forced_is_what_the_automaton_is_certain_of():
    tools = ToolSet.from_openai([GET_TIME])
    (found,) = explain(tools, FORMATS["hermes"])
    certain = ToolAutomaton(CallShapes(tools), (FORMATS["hermes"],)).spans()
    forced = []
    for piece in found.pieces:
        if piece.kind is not Kind.FORCED:
            break
        forced.append(piece.text)
    assert "".join(forced) == certain == '<tool_call>\n{"name": "get_time", "arguments": {"zone": "'


def test_a_call_reads_like_its_text():
    (weather, _) = explain(ToolSet.from_openai([GET_WEATHER, GET_TIME]), FORMATS["hermes"])
    assert shown(weather, others=1).split("\n") == [
        "<tool_call>",
        '{"name": {"get_weather" | 1 more}, "arguments": {',
        '    "city": "‹string›",',
        '  ? "days": ‹integer›,',
        '  ? "unit": {"celsius" | "fahrenheit" | "kelvin"},',
        '  ? "hourly": {true | false}',
        "}}",
        "</tool_call>",
    ]


def test_nested_values():
    point = {"type": "object", "properties": {"x": INTEGER}, "required": ["x"]}
    text = shown(
        one(
            {
                "at": point,
                "path": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                "labels": {"type": "object", "additionalProperties": INTEGER},
                "maybe": {"type": ["string", "null"], "format": "date"},
                "any": {},
            },
            required=["at", "path", "labels", "maybe", "any"],
        )
    )
    assert '    "at": {\n      "x": ‹integer›\n    },' in text
    assert '"path": [{"a" | "b"}, …],' in text
    assert '"labels": {?"‹key›": ‹integer›, …},' in text
    assert '"maybe": {"‹date›" | null},' in text
    assert '"any": ‹any›' in text


def test_a_discriminator_leads_to_its_own_keys():
    def shape(kind, **properties):
        properties = {"kind": {"const": kind}, **properties}
        return {"type": "object", "properties": properties, "required": list(properties)}

    found = one({"s": {"oneOf": [shape("dot", x=INTEGER), shape("line", to=STRING)]}}, required=["s"])
    assert [p.role for p in flat(found.pieces)].count(Role.CLOSE) == 2
    assert [line.strip() for line in shown(found).split("\n")[2:-2]] == [
        '"s": {', '"kind": one of', '| "dot",', '"x": ‹integer›', '| "line",', '"to": "‹string›"', "}",
    ]  # fmt: skip


def test_recursion_is_cut():
    node = {
        "type": "object",
        "properties": {"v": STRING, "sub": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
        "required": ["v", "sub"],
    }
    found = one({"tree": {"$ref": "#/$defs/N"}}, required=["tree"], **{"$defs": {"N": node}})
    assert found.complete
    assert '"sub": […, …]' in shown(found)


def test_long_choices_and_large_objects_are_cut_but_end(monkeypatch):
    monkeypatch.setattr(explain_walk, "MAX_PIECES", 60)
    found = one({"n": {"enum": list(range(100))}, **{f"k{i}": STRING for i in range(100)}}, required=["n"])
    (choice,) = [p for p in flat(found.pieces) if p.role is Role.CHOICE]
    assert len(choice.ways) == MAX_WAYS + 1
    assert choice.ways[-1][0].text == f"+{100 - MAX_WAYS}"
    assert found.complete
    assert len(list(flat(found.pieces))) < 3 * 60
    assert Role.CUT in [p.role for p in found.pieces]


@pytest.mark.parametrize("preset", [PRETTY, COMPACT])
def test_the_layout_is_the_one_asked_for(preset):
    found = one({"a": INTEGER}, ["a"], layout=Layout(preset))
    call = {"name": "f", "arguments": {"a": 1}}
    separators = (preset.item, preset.colon)
    assert json.dumps(call, indent=preset.indent, separators=separators) in first_way(
        found.pieces, {"integer": "1"}
    )


def test_typical_counts():
    found = one({"a": STRING, "b": BOOLEAN, "c": {"enum": ["xy", "z"]}}, required=["a", "c"])
    assert found.typical.open == OPEN_TEXT
    # The quote that ends the string, the key after one that may be left out, the choice.
    assert found.typical.branch == len('"') + len(', "c": ') + len('"xy"')
    around = '<tool_call>\n{"name": "f", "arguments": {"a": "", "c": "xy"}}\n</tool_call>'
    assert found.typical.total == len(around) + OPEN_TEXT
    assert typical(()) == Counts()
    assert Counts().share(Kind.OPEN) == 0.0


@pytest.mark.parametrize(("name", "width"), [("hermes", 30), ("glm", 60), ("fence", 60), ("kimi_k2", 200)])
def test_lines_fit_the_terminal_and_hold_no_control_characters(name, width):
    tools = ToolSet.from_openai([*ASSISTANT, *HOSTILE])
    for found in explain(tools, FORMATS[name]):
        for line in shown(found, width, others=3).split("\n"):
            assert len(line) <= width
            assert line.isprintable()


@pytest.mark.parametrize("name", ["hermes", "fence", "qwen3_coder", "deepseekv3"])
def test_the_drawing_is_xml_with_every_tool(name):
    report = Report(ToolSet.from_openai([*ASSISTANT, *HOSTILE]), FORMATS[name])
    page = xml.dom.minidom.parseString(drawing(report))
    texts = [e.firstChild.data for e in page.getElementsByTagName("text") if e.firstChild.nodeValue]
    for call in report.calls[:-2]:
        assert any(call.tool.name in text.replace("\\", "") for text in texts)
    assert not page.getElementsByTagName("script")


def test_a_drawing_of_many_tools_says_what_it_leaves_out():
    tools = ToolSet.from_openai([tool(f"tool_{i}") for i in range(MAX_TOOLS + 3)])
    svg = drawing(Report(tools, FORMATS["hermes"]))
    assert f"tool_{MAX_TOOLS - 1}&quot;" in svg
    assert f"tool_{MAX_TOOLS}&quot;" not in svg
    assert "3 more tools, not drawn" in svg


def test_what_the_grammar_compiler_finds_is_shown(capsys):
    odd = tool("get_time", {"zones": {"type": "array", "items": STRING, "uniqueItems": True}})
    report = Report(ToolSet.from_openai([odd]), FORMATS["hermes"])
    print_report(report)
    out = capsys.readouterr().out
    assert "/properties/zones" in out
    assert "uniqueItems" in out
    found = report.to_json()
    assert found["compile"]["bytes"] > 0
    assert [(u["tool"], u["pointer"], u["keyword"]) for u in found["unenforceable"]] == [
        ("get_time", "/properties/zones", "uniqueItems")
    ]


def test_without_a_draft_grammar_the_reason_is_shown(capsys, monkeypatch):
    def draft_grammar(tools, form, preset):
        raise RuntimeError("no grammar")

    monkeypatch.setattr("sglang_toolspec.grammars.compile.draft_grammar", draft_grammar)
    report = Report(ToolSet.from_openai([GET_TIME]), FORMATS["hermes"])
    print_report(report)
    assert "none (RuntimeError: no grammar)" in capsys.readouterr().out
    assert report.usable


# The command.


@pytest.fixture
def run(tmp_path):
    def call(tools, *options):
        file = tmp_path / "tools.json"
        file.write_text(tools if isinstance(tools, str) else json.dumps(tools))
        return CliRunner().invoke(app, ["compile", str(file), *map(str, options)])

    return call


@pytest.mark.parametrize("options", [(), ("--explain",), ("--format", "qwen25"), ("--layout", "pretty")])
def test_compile_shows_every_tool(run, options):
    result = run(ASSISTANT, *options)
    assert result.exit_code == 0
    assert all(t["function"]["name"] in result.stdout.replace("\\", "") for t in ASSISTANT)
    assert "\x1b" not in result.stdout


def test_compile_takes_an_mcp_listing_and_standard_input():
    listing = {"tools": [{"name": "ping", "inputSchema": {"type": "object"}}]}
    result = CliRunner().invoke(app, ["compile", "-", "--json"], input=json.dumps(listing))
    assert [t["name"] for t in json.loads(result.stdout)["tools"]] == ["ping"]


def test_compile_json(run):
    result = run(ASSISTANT, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["usable"] is True
    assert found["typical"]["forced"] == sum(t["forced"] for t in found["tools"])
    assert set(found["compile"]) == {"ms", "bytes", "skipped"}


def test_compile_svg(run, tmp_path):
    assert run(ASSISTANT, "--svg", tmp_path / "x.svg").exit_code == 0
    assert (tmp_path / "x.svg").read_text().startswith("<svg ")


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_hostile_tools_are_usable(run, option):
    result = run(HOSTILE, *option)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout


def test_no_tools_are_not_usable(run):
    assert run([]).exit_code == 1
    result = run([], "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["usable"] is False


@pytest.mark.parametrize(
    ("tools", "options", "says"),
    [
        ("{", (), "is not valid JSON"),
        ("[" * 100_000, (), "is not valid JSON"),
        ('"text"', (), "/tools is text"),
        ([{"name": 5}], (), "/tools/0/name"),
        (ASSISTANT, ("--format", "nope"), "neither a format"),
        (ASSISTANT, ("--json", "--explain"), "exclude each other"),
        (ASSISTANT, ("--tokenizer", "x"), "is for --replay"),
        (ASSISTANT, ("--svg", "/nowhere/x.svg"), "cannot be written"),
        (ASSISTANT, ("--replay", "/nowhere.jsonl"), "cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(run, tools, options, says):
    result = run(tools, *options)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("sglang-toolspec: ")


def test_a_missing_file_is_named():
    result = CliRunner().invoke(app, ["compile", "/nowhere.json"])
    assert result.exit_code == 2
    assert "/nowhere.json cannot be read" in result.stderr


# Replays.

CALL = '<tool_call>\n{"name": "get_time", "arguments": {"zone": "Oslo"}}\n</tool_call>'


@pytest.fixture
def replayed(run, tmp_path):
    def call(*lines):
        (tmp_path / "calls.jsonl").write_text("\n".join(lines))
        return run(ASSISTANT, "--replay", tmp_path / "calls.jsonl")

    return call


def test_replay_shows_the_steps_of_a_reply(replayed):
    result = replayed(json.dumps({"text": f"Let me see.\n{CALL}"}), "", json.dumps({"text": CALL}))
    assert result.exit_code == 0
    steps = [line.split("│", 1) for line in result.stdout.split("\n") if "│" in line]
    texts = "".join(text[1:].replace("¦", "") for _, text in steps)
    assert texts.replace("⏎", "\n") == f"Let me see.\n{CALL}{CALL}"
    assert [head.strip() for head, _ in steps].count("first") == 2
    assert "all 2 replies" in result.stdout


@pytest.mark.parametrize("line", ["[", "5", "{}", '{"output_ids": [1, 2]}', '{"text": 5}'])
def test_replay_names_the_line_that_is_wrong(replayed, line):
    result = replayed(json.dumps({"text": CALL}), line)
    assert result.exit_code == 2
    assert "line 2 of" in result.stderr


def test_replay_in_tokens(run, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={}, merges=[]))
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner.model = tokenizers.models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[])
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.save(str(tmp_path / "tokenizer.json"))
    ids = inner.encode(CALL).ids
    lines = [json.dumps({"output_ids": ids}), json.dumps({"text": CALL})]
    (tmp_path / "calls.jsonl").write_text("\n".join(lines))
    options = ("--replay", tmp_path / "calls.jsonl", "--tokenizer", tmp_path / "tokenizer.json")
    result = run(ASSISTANT, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.count(f"{len(ids)} tokens") == 2
    assert "accept length" in result.stdout
