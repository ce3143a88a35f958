"""``sglang-toolspec bench``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_toolspec.bench.gpu_cli import gpu_check
from sglang_toolspec.bench.options import draft_models, listed, model_folder, numbers
from sglang_toolspec.errors import UserError

if TYPE_CHECKING:
    from sglang_toolspec.bench.run import Outcome, Serving

INTERRUPTED = 130

bench_app = typer.Typer(help="Compare algorithms on one SGLang build.", no_args_is_help=True)
bench_app.command("gpu-check")(gpu_check)


class Prompt(StrEnum):
    AUTO = "auto"
    RAW_SYSTEM = "raw_system"
    TOOLS = "tools"


class ToolChoice(StrEnum):
    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


class History(StrEnum):
    COLD = "cold"
    WARM = "warm"
    REPEATED = "repeated"


@bench_app.callback()
def _bench() -> None:
    """Compare algorithms on one SGLang build."""


@bench_app.command("run")
def bench_run(
    output: Annotated[Path, typer.Option(help="Folder of the measurements; the same command goes on in it.")],
    model: Annotated[str, typer.Option(help="Model folder, fetched name, or hub name.")] = "",
    workload: Annotated[
        list[str] | None,
        typer.Option(help="[FORMAT:]FILE; repeatable. The sample that comes along by default."),
    ] = None,
    algorithms: Annotated[
        str, typer.Option(help="Of none, ngram, toolspec, eagle, eagle3, standalone.")
    ] = "none,ngram,toolspec",
    ngram_widths: Annotated[
        str, typer.Option(help="Draft tokens of NGRAM; SGLang's own default is 12.")
    ] = "12",
    toolspec_widths: Annotated[
        str, typer.Option(help="Nodes of every tree, or cost: what pays in each step.")
    ] = "cost",
    recipe: Annotated[str, typer.Option(help="Of TOOLSPEC: full, paper.")] = "full",
    ablate: Annotated[
        bool, typer.Option("--ablate", help="TOOLSPEC also without each source of drafts in turn.")
    ] = False,
    draft_model: Annotated[
        list[str] | None, typer.Option(help="ALGORITHM=MODEL for eagle, eagle3, standalone; repeatable.")
    ] = None,
    prompt: Annotated[
        Prompt, typer.Option(help="A row's own raw_system text, OpenAI tools, or the first that it has.")
    ] = Prompt.AUTO,
    tool_choice: Annotated[
        ToolChoice | None, typer.Option(help="For all rows with tools, instead of the row's own.")
    ] = None,
    concurrency: Annotated[str, typer.Option(help="Requests in flight; several are measured in turn.")] = "1",
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    repeat: Annotated[int, typer.Option(min=1, help="Measure all rows so many times.")] = 1,
    history: Annotated[
        History,
        typer.Option(help="warm: the other half of the rows was asked before; repeated: all of them were."),
    ] = History.COLD,
    num_prompts: Annotated[int | None, typer.Option(min=1, help="The first rows of each workload.")] = None,
    dtype: Annotated[str, typer.Option(help="By default what serve picks.")] = "",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Of a reply.")] = 200,
    together: Annotated[int, typer.Option(min=1, help="Servers that run at once and are asked in turn.")] = 2,
    plain_every: Annotated[
        int, typer.Option(min=1, help="Ask plain decoding, which learns nothing, one row of so many.")
    ] = 1,
    stream_interval: Annotated[
        int | None, typer.Option(min=1, help="Tokens between two messages; 1 streams every step.")
    ] = None,
    request_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds until a request fails.")] = 600.0,
    server_flags: Annotated[str, typer.Option(help="More flags of SGLang for every server, quoted.")] = "",
    redo: Annotated[bool, typer.Option("--redo", help="Measure again what other code measured.")] = False,
) -> None:
    """Ask the same requests of several algorithms, in turn, and compare.

    The last line on stdout is one JSON object. Exit code 1 when a request failed, 130 when interrupted.
    """
    from sglang_toolspec.bench import run as bench
    from sglang_toolspec.bench.request import Asking
    from sglang_toolspec.bench.show import Bar
    from sglang_toolspec.bench.variants import variants
    from sglang_toolspec.bench.workloads import SAMPLE, load_all

    compared = variants(
        listed(algorithms),
        numbers("--ngram-widths", ngram_widths),
        listed(toolspec_widths),
        listed(recipe),
        draft_models(draft_model or []),
        ablate,
    )
    workloads = load_all(workload or [SAMPLE], num_prompts)
    asking = Asking(prompt.value, tool_choice.value if tool_choice else "", temperature, max_new_tokens)
    streams = bench.Streams(
        numbers("--concurrency", concurrency), repeat, history.value, together, plain_every, request_timeout
    )
    serving = _serving(model, dtype, shlex.split(server_flags), stream_interval)
    plan = bench.planned(serving, compared, workloads, asking, streams)
    command = shlex.join(["sglang-toolspec", *sys.argv[1:]])
    with Bar() as bar:
        outcome = bench.run(plan, output, command, bar, redo)
    _report(outcome)


@bench_app.command("report")
def bench_report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders that bench run has written; compared.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="The HTML file; report.html in the first folder by default.")
    ] = None,
) -> None:
    """Write the report of one or several runs again, from what they measured."""
    from sglang_toolspec.bench.report import page

    print(page.write(folders, output))


def _serving(model: str, dtype: str, flags: Sequence[str], stream_interval: int | None) -> Serving:
    from sglang_toolspec import serve
    from sglang_toolspec.bench.run import EVERY_TOKEN_AT_THE_END, Serving

    folder = model_folder(model)
    if not dtype and not serve.has_accelerator():
        dtype = serve.cpu_dtype()
    return Serving(folder, dtype, flags, stream_interval or EVERY_TOKEN_AT_THE_END)


def _report(outcome: Outcome) -> None:
    """Prints the table, then the JSON; ends with the exit code."""
    from sglang_toolspec.bench.draft_models import sentence
    from sglang_toolspec.bench.show import console, tables

    summary = outcome.summary
    for table in tables(summary["results"]):
        console.print(table)
    for result in summary["results"]:
        if result["differing"]:
            console.print(
                f"[yellow]{result['variant']}, {result['workload']}: {result['differing']} replies differ "
                "from plain decoding (see docs/serving.md, 'Same text, and sampling').[/yellow]"
            )
    for name, told in summary["draft_models"].items():
        console.print(sentence(name, told))
    folder = Path(summary["output"])
    console.print(f"{summary['settings']['model']}; {summary['machine']}; kept in {folder}")
    print(json.dumps(summary), flush=True)
    if summary["results"]:
        from sglang_toolspec.bench.report import page

        console.print(f"Report: {page.write([folder])}")
    if outcome.interrupted:
        console.print("Interrupted; what is measured is kept, the same command goes on.")
        raise typer.Exit(INTERRUPTED)
    if outcome.error is not None:
        raise outcome.error
    if outcome.failed:
        raise UserError(
            f"{outcome.failed} requests failed and are in no figure; see {summary['output']}/failures.jsonl, "
            "the same command asks them again"
        )
