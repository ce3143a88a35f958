"""``sglang-toolspec compile``: what the drafter knows of the calls of some tools, before any is made."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.formats import FORMATS, Format, formats_for
from sglang_toolspec.grammars.layout import COMPACT, PRETTY, SPACED
from sglang_toolspec.grammars.tools import ToolSet


class LayoutName(StrEnum):
    SPACED = "spaced"
    PRETTY = "pretty"
    COMPACT = "compact"


_PRESETS = {LayoutName.SPACED: SPACED, LayoutName.PRETTY: PRETTY, LayoutName.COMPACT: COMPACT}


def compile_tools(
    tools: Annotated[
        Path, typer.Argument(metavar="TOOLS.json", help="Tools (OpenAI, MCP, JSON Schema); - reads stdin.")
    ],
    form: Annotated[
        str, typer.Option("--format", help="A format of calls, or a --tool-call-parser name.")
    ] = "hermes",
    layout: Annotated[
        LayoutName | None, typer.Option(help="How JSON is laid out; the format's own way by default.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each tool's call; the default.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Draw the automaton into this file instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    replay: Annotated[
        Path | None, typer.Option(help="Show what drafts would have saved on these replies instead.")
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="For --replay: a model folder, a fetched or a hub name, or a tokenizer.json.")
    ] = "",
) -> None:
    """Show what is forced, what branches and what is open in calls of the tools in a file.

    Exit code 0 when calls of all tools can be drafted, else 1; 2 on a mistake.
    """
    try:
        usable = _run(tools, form, layout, (explain, svg, as_json, replay), tokenizer)
    except UserError as error:
        typer.echo(f"sglang-toolspec: {error}", err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if usable else 1)


def _run(
    tools_file: Path,
    form_name: str,
    layout: LayoutName | None,
    outputs: tuple[bool, Path | None, bool, Path | None],
    tokenizer: str,
) -> bool:
    from sglang_toolspec.compile_report import Report

    _, svg, as_json, replay = outputs
    if sum(map(bool, outputs)) > 1:
        raise UserError("--explain, --svg, --json and --replay exclude each other; give one")
    if tokenizer and replay is None:
        raise UserError("--tokenizer is for --replay; give both or none")
    forms = forms_named(form_name)
    tools = read_tools(tools_file)
    report = Report(tools, forms[0], _PRESETS[layout] if layout else None)
    if as_json:
        print(json.dumps(report.to_json()))
    elif svg is not None:
        _write_svg(report, svg)
    elif replay is not None:
        from sglang_toolspec.replay_view import print_replay

        print_replay(tools, forms, replay, tokenizer)
    else:
        from sglang_toolspec.explain_view import print_report

        print_report(report)
    return report.usable


def forms_named(name: str) -> tuple[Format, ...]:
    """The format of that name alone, or those that SGLang's parser of that name reads."""
    if name in FORMATS:
        return (FORMATS[name],)
    forms = formats_for(name)
    if forms == formats_for(None):  # what every unknown name gets
        raise UserError(
            f"--format {name!r} is neither a format ({', '.join(FORMATS)}) nor a tool-call parser with one"
        )
    return forms


def read_tools(file: Path) -> ToolSet:
    """Raises ``UserError``, with the file or the JSON pointer that is wrong."""
    from sglang_toolspec.grammars.sources import tool_set

    value = read_json(file)
    if isinstance(value, dict) and isinstance(value.get("tools"), list) and "name" not in value:
        value = value["tools"]  # MCP's tools/list, and files with more beside the tools
    return tool_set(value)


def read_json(file: Path) -> Any:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
        return json.loads(text)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not valid JSON: {error}") from error


def _write_svg(report: Any, file: Path) -> None:
    from sglang_toolspec.explain_svg import drawing

    try:
        file.write_text(drawing(report), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
