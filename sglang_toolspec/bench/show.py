"""How a run looks on a terminal: a bar with the time left, and a table. All of it on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console(stderr=True)


class Bar:
    """A ``runner.Watch``; use it as a context."""

    def __init__(self, on: Console = console):
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=on)
        self._task: TaskID | None = None

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, total: int) -> None:
        self._task = self._progress.add_task("starting", total=total)

    def doing(self, what: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=what)

    def done(self) -> None:
        if self._task is not None:
            self._progress.advance(self._task)


_COLUMNS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("variant", lambda r: r["variant"]),
    ("n", lambda r: f"{r['n']}" + ("" if r["complete"] else "...")),
    ("accept", lambda r: f"{r['accept_length']:.2f}"),
    ("tokens/s", lambda r: _number(r["tokens_per_s"], "{:.2f}")),
    ("speed-up (95 %)", lambda r: speedup_text(r["speedup"], r["speedup_ci"])),
    ("same", lambda r: _number(r["identical_share"], "{:.1%}")),
)


def tables(results: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Of ``summary.results``, by workload and concurrency; three dots stand behind unfinished ones."""
    for (workload, concurrency), of in groupby(results, lambda r: (r["workload"], r["concurrency"])):
        at_once = f", {concurrency} requests at once" if concurrency > 1 else ""
        table = Table(title=f"{workload}{at_once}: decoding after the first token", box=SIMPLE_HEAD)
        for name, _ in _COLUMNS:
            table.add_column(name, justify="left" if name == "variant" else "right", no_wrap=True)
        for result in of:
            table.add_row(*(show(result) for _, show in _COLUMNS))
        yield table


def speedup_text(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None or interval is None:
        return "-"
    return f"{value:.2f}x" if value == 1 else f"{value:.2f}x ({interval[0]:.2f} - {interval[1]:.2f})"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
