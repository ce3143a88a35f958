"""What replays of recorded requests came to: as a table, and as plain data."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sglang_toolspec.explain_view import forget_unwritable, printable
from sglang_toolspec.grammars.states import State
from sglang_toolspec.runtime.assembly import OUTSIDE
from sglang_toolspec.runtime.config import SOURCES
from sglang_toolspec.runtime.replay import Simulation

STATES = {
    OUTSIDE: "outside of calls",
    State.OTHER.value: "between names and values",
    State.TOOL_NAME.value: "in a tool's name",
    State.PARAMETER_NAME.value: "in a parameter's name",
    State.PARAMETER_VALUE.value: "in a value",
}
"""Where a step began, for readers."""


@dataclass(frozen=True)
class Replayed:
    """``faults`` of drafting by reason, as a server counts them."""

    name: str
    simulation: Simulation
    faults: Counter[str]


def print_tables(results: Sequence[Replayed], what: str) -> None:
    """One row for each result; the last one is plain decoding."""
    console = Console(file=sys.stdout, highlight=False)
    forget_unwritable(console)
    first = results[0].simulation
    console.print(Text(printable(f"{first.replies} requests of {what}"), "bold"))
    others = _others(results)
    console.print(f"Trees of at most {first.width} nodes, the root included{others}.\n", style="dim")
    console.print(_steps_table(results))
    if len(results) > 1:
        console.print(_sources_table(results))
    if first.sums.steps_in:
        console.print(_states_table(first))
    for reason, times in results[0].faults.items():
        console.print(Text(printable(f"drafting faults: {reason} ({times})"), "bold red"))


def to_json(results: Sequence[Replayed]) -> dict[str, Any]:
    first = results[0].simulation
    return {
        "requests": first.replies,
        "width": first.width,
        "results": [_entry(result, results[-1]) for result in results],
        "faults": dict(results[0].faults),
    }


def _steps_table(results: Sequence[Replayed]) -> Table:
    plain = results[-1]
    timed = ("tokens/s", "speed-up") if plain.simulation.tokens_per_s else ()
    table = _table("Predicted", "tokens", "steps", "accept\nlength", "nodes/\nstep", *timed)
    for result in results:
        sums, rate = result.simulation.sums, result.simulation.tokens_per_s
        cells = [str(sums.tokens), str(sums.steps)]
        cells += [f"{sums.accept_length:.2f}", f"{result.simulation.nodes_per_step:.1f}"]
        if timed:
            cells += [f"{rate:.1f}", f"{_speedup(result, plain):.2f}x"]
        table.add_row(result.name, *cells)
    return table


def _sources_table(results: Sequence[Replayed]) -> Table:
    """Of our sources; a peer has one, its own."""
    results = [r for r in results if set(r.simulation.sums.proposed) <= set(SOURCES)]
    sources = sorted({source for result in results for source in result.simulation.sums.proposed})
    table = _table("\nAccepted tokens by source", *sources)
    for result in results:
        accepted = result.simulation.sums.accepted
        table.add_row(result.name, *(str(accepted[source] or "") for source in sources))
    return table


def _states_table(simulation: Simulation) -> Table:
    """Where the steps of a variant went, by the state in which each began."""
    sums = simulation.sums
    table = _table("\nSteps by state", "tokens", "steps", "of all", "accept\nlength")
    for state, steps in sums.steps_in.most_common():
        tokens = sums.tokens_in[state]
        cells = (str(tokens), str(steps), f"{steps / sums.steps:.0%}", f"{tokens / steps:.2f}")
        table.add_row(STATES.get(state, state), *cells)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim")
    table.add_column(no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _entry(result: Replayed, plain: Replayed) -> dict[str, Any]:
    simulation, sums = result.simulation, result.simulation.sums
    rate, speedup = simulation.tokens_per_s, _speedup(result, plain)
    return {
        "drafts": result.name,
        "width": simulation.width,
        "tokens": sums.tokens,
        "verify_steps": sums.steps,
        "accept_length": round(sums.accept_length, 3),
        "nodes_per_step": round(simulation.nodes_per_step, 2),
        "proposed": dict(sums.proposed),
        "accepted": dict(sums.accepted),
        "by_state": {
            state: {"steps": steps, "tokens": sums.tokens_in[state]}
            for state, steps in sums.steps_in.most_common()
        },
        "tokens_per_s": None if rate is None else round(rate, 3),
        "speedup": None if speedup is None else round(speedup, 3),
    }


def _others(results: Sequence[Replayed]) -> str:
    """Who has other trees than the first."""
    first = results[0].simulation.width
    wide = [f"{r.name} {r.simulation.width}" for r in results if r.simulation.width != first]
    return f"; {', '.join(wide)}" if wide else ""


def _speedup(result: Replayed, plain: Replayed) -> float | None:
    """``None`` where nothing is known of costs."""
    rate, plain_rate = result.simulation.tokens_per_s, plain.simulation.tokens_per_s
    return rate / plain_rate if rate and plain_rate else None
