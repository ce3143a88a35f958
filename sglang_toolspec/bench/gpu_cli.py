"""``sglang-toolspec bench gpu-check``."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_toolspec.bench.options import draft_models, model_folder
from sglang_toolspec.errors import UserError

if TYPE_CHECKING:
    from sglang_toolspec.bench.gpu_check import Verdict


def gpu_check(
    output: Annotated[Path, typer.Option(help="Folder of the measurements; the same command goes on in it.")],
    model: Annotated[str, typer.Option(help="Model folder, fetched name, or hub name.")] = "",
    workload: Annotated[str, typer.Option(help="[FORMAT:]FILE; the bundled sample by default.")] = "",
    draft_model: Annotated[
        list[str] | None, typer.Option(help="ALGORITHM=MODEL: also eagle, eagle3, standalone; repeatable.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="By default the model's own.")] = "",
    minutes: Annotated[
        float, typer.Option(min=3.0, help="Time of one run; nothing is begun near its end.")
    ] = 15.0,
) -> None:
    """Check TOOLSPEC on one CUDA GPU: the same replies as plain decoding, and the speed beside others.

    The last line on stdout is one JSON object. Exit code 1 where anything is not as it should be.
    """
    from sglang_toolspec import gpu_width, serve

    if not serve.has_accelerator():
        raise UserError("no GPU: PyTorch sees none here; run this on a machine with one")
    from sglang_toolspec.bench import gpu_check as checking
    from sglang_toolspec.bench.show import Bar, console
    from sglang_toolspec.bench.workloads import SAMPLE, load

    stages = checking.stages(draft_models(draft_model or []))
    command = shlex.join(["sglang-toolspec", *sys.argv[1:]])
    rows = load(workload or SAMPLE)
    check = checking.Check(model_folder(model), output, rows, dtype=dtype, command=command)
    with Bar() as bar:
        verdict = check.run(stages, checking.Deadline(bar, 60 * minutes - checking.LAST_S))
    _show(verdict)
    if (width := verdict.best_width) is not None:
        file = gpu_width.keep(gpu_width.gpu_name(), check.model, width)
        console.print(f"From now on serve takes trees of {width} nodes for this model here ({file})")
    if folders := list(check.folders(stages)):
        from sglang_toolspec.bench.report import page

        console.print(f"Report: {page.write(folders, output / page.REPORT)}")
    print(json.dumps(verdict.to_json()), flush=True)
    if not verdict.ok:
        raise typer.Exit(1)


def _show(verdict: Verdict) -> None:
    from sglang_toolspec.bench.show import console, tables

    for name in dict.fromkeys(stage.name for stage, _ in verdict.results):
        console.print(f"[bold]{name}[/bold]")
        of = [result for stage, result in verdict.results if stage.name == name]
        for table in tables(sorted(of, key=lambda r: (r["concurrency"], -(r["tokens_per_s"] or 0)))):
            console.print(table)
    for stage, result in verdict.differing:
        console.print(
            f"[yellow]{stage.name}, {result['variant']}: {result['differing']} of {result['n']} replies "
            "differ from plain decoding; in bfloat16 near-ties can do that (docs/serving.md, 'Same text, "
            "and sampling').[/yellow]"
        )
    for concurrency, name in verdict.fastest.items():
        console.print(f"Fastest with {concurrency} in flight: {name}")
    for error in verdict.errors:
        console.print(error, style="red", markup=False)
    if verdict.unfinished:
        console.print("The time is over; the same command goes on.")
