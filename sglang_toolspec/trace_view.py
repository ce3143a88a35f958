"""Shows one reply verify step by verify step, each token in the colour of the source that drafted it.

Colours only repeat what stands behind each step, so the view reads the same through a pipe.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sglang_toolspec.explain_view import forget_unwritable, printable
from sglang_toolspec.runtime.attribution import PREFILL, TARGET, Attribution
from sglang_toolspec.step_view import LEGEND, Step, step_lines, token_text
from sglang_toolspec.trace_client import Traced

STYLES = {
    PREFILL: "",
    TARGET: "",
    "schema": "green",
    "grammar": "bold green",
    "copy": "cyan",
    "value": "yellow",
    "suffix": "magenta",
    "history": "bright_blue",
    "recycling": "bright_red",
}
OTHER = "bold blue"
"""Sources that a newer server has."""


def print_trace(traced: Traced) -> None:
    console = Console(file=sys.stdout, highlight=False)
    forget_unwritable(console)
    told = traced.attribution
    console.print(Text(f"request {printable(traced.rid)}", "dim"))
    console.print(Text(str(told), "bold"))
    console.print(LEGEND + _sources(told))
    for line in step_lines(_steps(traced)):
        console.print(line)
    console.print(_table(told))


def _steps(traced: Traced) -> Iterator[Step]:
    """The reply by its steps; at the end the tokens of steps that the server did not keep."""
    texts = iter(traced.texts)
    for sources in traced.attribution.history:
        pairs = zip(sources, islice(texts, len(sources)), strict=False)
        tokens = [token_text(text, _style(source)) for source, text in pairs]
        drafted = [s for s in sources[: len(tokens)] if s not in (TARGET, PREFILL)]
        note = ", ".join(f"{source} {count}" for source, count in Counter(drafted).most_common())
        if tokens:
            yield Step(tokens, len(drafted), "first" if sources[0] == PREFILL else "", note)
    if rest := [token_text(text) for text in texts]:
        yield Step(rest, head="not kept")


def _style(source: str) -> str:
    return STYLES.get(source, OTHER)


def _sources(told: Attribution) -> Text:
    names = [source for source, _ in told.proposed.most_common()]
    return Text(" ").join(Text(printable(name), _style(name)) for name in names)


def _table(told: Attribution) -> Table:
    table = Table(box=None)
    table.add_column("source", header_style="dim")
    for column in ("proposed", "accepted", "share"):
        table.add_column(column, justify="right", header_style="dim")
    for source, proposed in told.proposed.most_common():
        accepted = told.accepted[source]
        share = f"{round(100 * accepted / max(1, proposed))} %"
        table.add_row(Text(printable(source), _style(source)), str(proposed), str(accepted), share)
    return table
