"""The console script ``sglang-toolspec``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from sglang_toolspec import __version__
from sglang_toolspec.bench.cli import bench_app
from sglang_toolspec.compile_cli import compile_tools
from sglang_toolspec.errors import UserError
from sglang_toolspec.history_cli import app as history_app
from sglang_toolspec.replay_cli import replay_recorded
from sglang_toolspec.trace_cli import trace

app = typer.Typer(
    help="Speculative decoding of tool calls for SGLang.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
model_app = typer.Typer(help="Models in the local cache.", no_args_is_help=True)
app.add_typer(model_app, name="model")
app.add_typer(bench_app, name="bench")
app.add_typer(history_app, name="history")
app.command("compile")(compile_tools)
app.command("replay")(replay_recorded)
app.command()(trace)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_PASS_ON)
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model folder, a fetched model's name, or a hub name.")],
    toolspec_overlap: Annotated[
        bool, typer.Option(help="GPU only: keep SGLang's overlap scheduling on.")
    ] = False,
    toolspec_fixed_width: Annotated[
        bool, typer.Option(help="CPU only: verify the full draft width in every step.")
    ] = False,
    toolspec_prompt_tools: Annotated[
        bool, typer.Option(help="Draft for tools that only the text of a prompt lists.")
    ] = True,
    toolspec_sources: Annotated[
        str, typer.Option(help="Comma-separated: schema, copy, value, suffix, history, recycling.")
    ] = "",
    toolspec_recipe: Annotated[
        str, typer.Option(help="full, or paper: Algorithm 1 of ToolSpec as written.")
    ] = "",
    toolspec_retrieval: Annotated[
        str, typer.Option(help="How past calls are used: neighbours=10,suffixes=3-24,continuations=32/16/8/8")
    ] = "",
    toolspec_record: Annotated[
        Path | None, typer.Option(help="Append every finished request to this file; it holds prompts.")
    ] = None,
    toolspec_history: Annotated[
        Path | None, typer.Option(help="Keep the history of calls in this folder; it holds replies.")
    ] = None,
    toolspec_log: Annotated[
        bool, typer.Option(help="Log one line for each finished request: what became of its drafts.")
    ] = False,
) -> None:
    """Start the SGLang server with TOOLSPEC; every other SGLang flag is passed on.

    --speculative-algorithm none starts the same server with plain decoding.
    """
    import os

    from sglang_toolspec import serve as serving

    if toolspec_overlap:
        os.environ["TOOLSPEC_OVERLAP"] = "1"
    if toolspec_fixed_width:
        os.environ["TOOLSPEC_FIXED_WIDTH"] = "1"
    if not toolspec_prompt_tools:
        os.environ["TOOLSPEC_PROMPT_TOOLS"] = "0"
    if toolspec_sources:
        os.environ["TOOLSPEC_SOURCES"] = toolspec_sources
    if toolspec_recipe:
        os.environ["TOOLSPEC_RECIPE"] = toolspec_recipe
    if toolspec_retrieval:
        os.environ["TOOLSPEC_RETRIEVAL"] = toolspec_retrieval
    if toolspec_record is not None:
        os.environ["TOOLSPEC_RECORD"] = str(toolspec_record)
    if toolspec_history is not None:
        os.environ["TOOLSPEC_HISTORY"] = str(toolspec_history)
    if toolspec_log:
        os.environ["TOOLSPEC_LOG"] = "1"
    serving.run(model, context.args)


@app.command()
def check(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Report what is installed, loaded and hooked; exit code 0 or 1."""
    from sglang_toolspec.check import print_report, report

    found = report()
    if as_json:
        print(json.dumps(found))
    else:
        print_report(found)
    raise typer.Exit(0 if found["ok"] else 1)


@app.command()
def demo(
    model: Annotated[str, typer.Option(help="Model folder or fetched name.")] = "",
    requests: Annotated[Path, typer.Option(help="JSON file with 'tools' and 'requests'.")] = Path(
        "examples/assistant.json"
    ),
    limit: Annotated[int, typer.Option(min=1, help="Send only the first N requests.")] = 1_000_000,
) -> None:
    """Send tool-calling requests to plain decoding and to TOOLSPEC, and compare."""
    from sglang_toolspec.demo import run_demo

    if not run_demo(model, requests, limit):
        raise typer.Exit(1)


@model_app.command()
def fetch(name: Annotated[str, typer.Argument(help="A known name or OWNER/NAME.")] = "") -> None:
    """Download a model into the cache, if it is not there, and print its folder."""
    from sglang_toolspec.model import DEFAULT_MODEL
    from sglang_toolspec.model import fetch as fetch_model

    print(fetch_model(name or DEFAULT_MODEL))


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the app; a user's mistake is one sentence on stderr and exit code 1."""
    try:
        app()
    except UserError as error:
        print(f"sglang-toolspec: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
