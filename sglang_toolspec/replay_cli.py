"""``sglang-toolspec replay``: what drafts would have saved on recorded requests, without a model."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sglang_toolspec.compile_cli import read_json
from sglang_toolspec.errors import UserError
from sglang_toolspec.replay_variants import Variant, peers, plain, used, variants
from sglang_toolspec.runtime.config import (
    RECIPES,
    SOURCES,
    Config,
    named_recipe,
    named_retrieval,
    named_sources,
)

if TYPE_CHECKING:
    from sglang_toolspec.replay_report import Replayed
    from sglang_toolspec.runtime.recording import Run
    from sglang_toolspec.runtime.tokens import TokenCodec
    from sglang_toolspec.runtime.width import StepCosts

_ROWS = re.compile(r"(\d{0,9}):(\d{0,9})")
MAX_ROWS = 1 << 20
"""Rows of a verify step, more than any engine has."""


def replay_recorded(
    recorded: Annotated[
        Path, typer.Argument(metavar="RECORDED.jsonl", help="What a server wrote with --toolspec-record.")
    ],
    sources: Annotated[str, typer.Option(help="Comma-separated drafters, as --toolspec-sources.")] = ",".join(
        SOURCES
    ),
    recipe: Annotated[str, typer.Option(help=f"As --toolspec-recipe: {' or '.join(RECIPES)}.")] = RECIPES[0],
    retrieval: Annotated[str, typer.Option(help="How past calls are used, as --toolspec-retrieval.")] = "",
    width: Annotated[
        int | None, typer.Option(min=1, help="Most nodes of a tree; the server's by default.")
    ] = None,
    cost: Annotated[
        Path | None, typer.Option(help="A server's /server_info: steps as wide as pays, and seconds.")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="A model folder or name, or a tokenizer.json.")] = "",
    rows: Annotated[str, typer.Option(metavar="A:B", help="Only requests A to before B, from 0.")] = ":",
    ablate: Annotated[bool, typer.Option("--ablate", help="Leave out each source in turn, too.")] = False,
    with_peers: Annotated[
        bool, typer.Option("--peers", help="Compare with others' drafters: prompt lookup, NGRAM, …")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Predict verify steps, accept length and speed of recorded requests with any drafters.

    Requests follow one another, each alone; grammar masks are not replayed.
    """
    from sglang_toolspec.replay_report import print_tables, to_json
    from sglang_toolspec.runtime.recording import read_runs

    config = Config(
        sources=named_sources("--sources", sources),
        recipe=named_recipe("--recipe", recipe),
        retrieval=named_retrieval("--retrieval", retrieval),
    )
    costs = None if cost is None else read_costs(cost)
    runs = read_runs(recorded, *_slice(rows))
    if not runs:
        raise UserError(f"{recorded} has no requests{'' if rows == ':' else f' in --rows {rows}'}")
    codec = codec_of(runs, recorded, tokenizer)
    chosen = list(variants(config, ablate))
    chosen += peers(lambda why: print(f"sglang-toolspec: {why}", file=sys.stderr)) if with_peers else ()
    results = simulated(runs, codec, [*chosen, plain()], width, costs)
    if as_json:
        print(json.dumps(to_json(results)))
    else:
        print_tables(results, f"{recorded}, drafts of {', '.join(used(config)) or 'nothing'}")


def simulated(
    runs: list[Run], codec: TokenCodec, chosen: list[Variant], width: int | None, costs: StepCosts | None
) -> list[Replayed]:
    """One result for each variant; memories start empty at each run, as on the server."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sglang_toolspec.replay_report import Replayed
    from sglang_toolspec.runtime.replay import Simulation
    from sglang_toolspec.runtime.session import Faults

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(chosen) * sum(len(run.replies) for run in runs))
        for variant in chosen:
            progress.update(task, description=variant.name)
            faults = Faults(lambda reason, error: None)  # counted, and told in the end
            most = width or variant.width or runs[0].header.width
            simulation = Simulation(most, costs, variant.whole)
            for run in runs:
                assemble = variant.sessions(codec, run.header.parser, faults, most)
                for reply in run.replies:
                    simulation.add(assemble, reply)
                    progress.advance(task)
            results.append(Replayed(variant.name, simulation, faults.counts))
    return results


def codec_of(runs: list[Run], file: Path, tokenizer: str) -> TokenCodec:
    """For the tokenizer that the file was recorded with; raises ``UserError`` for any other."""
    from sglang_toolspec.replay_text import load_tokenizer
    from sglang_toolspec.runtime.tokens import TokenCodec

    header = runs[0].header
    if any(run.header.tokenizer != header.tokenizer for run in runs):
        raise UserError(f"{file} was recorded with several tokenizers; choose requests of one with --rows")
    source = tokenizer or header.model
    if not tokenizer and not Path(source).is_dir():  # what a file says makes nobody download anything
        raise UserError(f"the model of {file}, {source!r}, is no folder here; give its --tokenizer")
    loaded = load_tokenizer(source)
    try:
        codec = TokenCodec(loaded, header.vocab_size, header.stop_ids)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"the tokenizer of {source} does not fit {file}: {error}") from error
    if codec.fingerprint != header.tokenizer:
        raise UserError(f"{file} was recorded with another tokenizer than that of {source}; give --tokenizer")
    return codec


def read_costs(file: Path) -> StepCosts:
    """From a server's ``/server_info``, or the ``step_ms`` in it alone: milliseconds by rows."""
    from sglang_toolspec.runtime.width import StepCosts

    value: Any = read_json(file)
    try:
        if isinstance(value, dict) and "internal_states" in value:
            value = value["internal_states"][0]["toolspec"]["step_ms"]
        table = [(int(rows), float(ms)) for rows, ms in value.items()]
        if not table or not all(1 <= rows <= MAX_ROWS and 0 < ms < math.inf for rows, ms in table):
            raise ValueError(table)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{file} has no step_ms, milliseconds by rows; save /server_info of a CPU server under TOOLSPEC "
            "that has answered some requests"
        ) from error
    return StepCosts.of((rows, ms / 1000) for rows, ms in table)


def _slice(rows: str) -> tuple[int, int | None]:
    found = _ROWS.fullmatch(rows)
    if found is None:
        raise UserError(f"--rows {rows!r} is no slice; write A:B, such as 0:100 or 50:")
    first, last = found.groups()
    return int(first or 0), int(last) if last else None
