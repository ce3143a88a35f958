"""The page of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sglang_toolspec.bench.output import Record
from sglang_toolspec.bench.report.drawings_speed import looks_of, row_speedups
from sglang_toolspec.bench.report.looks import VARIABLES, short
from sglang_toolspec.bench.report.sections import MAX_PARTS, Section, first_parts, sections
from sglang_toolspec.bench.report.source import Part, Run, read
from sglang_toolspec.bench.show import speedup_text
from sglang_toolspec.bench.variants import PLAIN
from sglang_toolspec.errors import UserError

REPORT = "report.html"
MAX_RUNS = 16
SHOWN_ROWS = 5
"""Rows that gained least, of each workload."""
EXCERPT = 180
"""Characters of a reply."""


@dataclass(frozen=True)
class Table:
    """The paper's layout: variants below each other, three figures for each workload beside each other.

    ``cells[variant][workload]`` is a result, or ``None``.
    """

    caption: str
    workloads: Sequence[str]
    cells: Mapping[str, Sequence[Mapping[str, Any] | None]]
    colours: Mapping[str, str]


@dataclass(frozen=True)
class Least:
    """A row that gained little."""

    row: str
    speedup: float
    accept_length: float
    tokens: int
    reply: str


def write(folders: Sequence[Path], file: Path | None = None) -> Path:
    """The report of the runs in ``folders``, by default into the first one.

    Raises ``UserError`` where a folder holds no benchmark or the file cannot be written.
    """
    if len(folders) > MAX_RUNS:
        raise UserError(f"a report takes at most {MAX_RUNS} folders, not {len(folders)}")
    file = file or folders[0] / REPORT
    page = render([read(folder) for folder in folders])
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return file


def render(runs: Sequence[Run]) -> str:
    drawn = list(sections(runs))
    environment = Environment(
        loader=PackageLoader("sglang_toolspec.bench.report", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"short": short, "speedup_text": speedup_text}
    return environment.get_template("page.html").render(
        runs=runs,
        headline=_headline(runs),
        tables=[table for run in runs for table in _tables(run)],
        drawn=[section for section in drawn if section.charts],
        missing=_missing(drawn),
        least=[(part, found) for part in first_parts(runs)[:MAX_PARTS] if (found := _least(part))],
        left_out=max(0, len(first_parts(runs)) - MAX_PARTS),
    )


def _headline(runs: Sequence[Run]) -> list[tuple[Part, Mapping[str, Any]]]:
    """The best speculative result of each workload that has a speed-up, the first three."""
    found: list[tuple[Part, Mapping[str, Any]]] = []
    for part in first_parts(runs):
        best = next((r for r in part.results if r["algorithm"] != PLAIN and r["speedup"]), None)
        if best is not None:
            found.append((part, best))
    return found[:3]


def _tables(run: Run) -> list[Table]:
    """One for each number of requests in flight."""
    colours = {name: f"var({VARIABLES[look.colour]})" for name, look in looks_of(run).items()}
    tables = []
    for concurrency in sorted({part.concurrency for part in run.parts}):
        parts = [part for part in run.parts if part.concurrency == concurrency]
        found = {v.name: [_result(part, v.name) for part in parts] for v in run.variants}
        cells = {variant: of for variant, of in found.items() if any(of)}
        at_once = f", {concurrency} requests at once" if concurrency > 1 else ""
        caption = f"{short(run.name)}: {short(run.model)}, {run.history} history{at_once}"
        tables.append(Table(caption, [part.workload for part in parts], cells, colours))
    return tables


def _result(part: Part, variant: str) -> Mapping[str, Any] | None:
    return next((result for result in part.results if result["variant"] == variant), None)


def _missing(drawn: Sequence[Section]) -> list[Section]:
    return [section for section in drawn if not section.charts]


def _least(part: Part) -> list[Least]:
    """Rows that gained least from the first of the charted variants that learns, TOOLSPEC before others."""
    order = sorted(part.charted, key=lambda result: result["algorithm"] != "toolspec")
    if not order or not part.plain:
        return []
    records = part.records[order[0]["variant"]]
    by_row = {record["row"]: record for record in records}
    gained = sorted(row_speedups(records, part.plain).items(), key=lambda found: found[1])
    return [_entry(by_row[row], speedup) for row, speedup in gained[:SHOWN_ROWS]]


def _entry(record: Record, speedup: float) -> Least:
    reply = " ".join((record.get("text") or "")[: 4 * EXCERPT].split())
    reply = reply if len(reply) <= EXCERPT else f"{reply[: EXCERPT - 1]}…"
    accept_length = record["tokens"] / record["steps"]
    return Least(record["row"], speedup, accept_length, record["tokens"], reply)
