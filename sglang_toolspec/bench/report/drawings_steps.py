"""Charts of verify steps: how many tokens each gives, when, and who proposed them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sglang_toolspec.bench.output import Record
from sglang_toolspec.bench.report.drawings_speed import looks_of
from sglang_toolspec.bench.report.looks import BESIDE, INK, bars_canvas, canvas, legend_above, short
from sglang_toolspec.bench.report.source import Part
from sglang_toolspec.bench.summary import Result
from sglang_toolspec.bench.variants import WITHOUT
from sglang_toolspec.runtime.attribution import PREFILL

MIN_STREAM = 8
"""Requests below which a stream shows no course."""
MAX_LENGTH = 40
"""Tokens of a step up to which the distribution is drawn."""
_WIDTH = 0.8
"""Of a group of bars."""


def distribution(part: Part) -> Figure | None:
    """Share of verify steps that gave at least so many tokens; the area below is the accept length."""
    shown = [result for result in part.charted if sum(result["accept_histogram"])]
    if not shown:
        return None
    figure, (axes,) = canvas(2.7)
    of = looks_of(part.run)
    for result in shown:
        counts = np.array(result["accept_histogram"], float)
        share = 100 * counts[::-1].cumsum()[::-1] / counts.sum()
        look, edges = of[result["variant"]], np.arange(1, len(share) + 1)
        label = f"{short(result['variant'])}, accept length {result['accept_length']:.2f}"
        axes.step([0, *edges], [100, *share], where="pre", label=label, **look.lined)
    axes.set_xlabel("tokens of a verify step, at least")
    axes.set_ylabel("verify steps, %")
    axes.set_xlim(0.5, min(MAX_LENGTH, max(len(r["accept_histogram"]) for r in shown)) + 0.5)
    axes.set_ylim(0, 102)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(axes, 3)
    return figure


def first_steps(part: Part) -> Figure | None:
    """Mean tokens of the first and second verify step of a reply, and of all."""
    bars: dict[str, tuple[float, ...]] = {}
    for result in part.charted:
        records = part.records[result["variant"]]
        replies = [told for r in records if (told := tokens_by_step(r, part.run.streams_every_step))]
        if replies:
            steps = [[told[at] for told in replies if len(told) > at] for at in (0, 1)]
            means = (float(np.mean(of)) if of else 0.0 for of in (*steps, list(chain(*replies))))
            bars[result["variant"]] = tuple(means)
    if not bars:
        return None
    return _grouped(part, ["first step", "second step", "all steps"], bars, "tokens of a step, mean")


def tokens_by_step(record: Record, streamed: bool) -> list[int]:
    """Tokens of each verify step, the prompt's own token left out; empty where nobody has told.

    TOOLSPEC tells; of other algorithms the arrivals tell where every step was ``streamed``.
    """
    if attribution := record.get("attribution"):
        return [len(step) for step in attribution["steps"] if step and step[0] != PREFILL]
    if streamed:
        return [after[0] - before[0] for before, after in pairwise(record["arrivals"])]
    return []


def stream(part: Part) -> Figure | None:
    """Accept length over the requests as they were asked, a mean over several."""
    figure, (axes,) = canvas(2.7)
    of, window = looks_of(part.run), 0
    for result in part.charted:
        records = [r for r in part.records[result["variant"]] if r["repeat"] == 0]
        if len(records) < MIN_STREAM:
            continue
        records.sort(key=lambda record: record["began"])
        values, window = rolling(records)
        look, x = of[result["variant"]], np.arange(window, len(records) + 1)
        label = short(result["variant"])
        keep = np.unique(np.linspace(0, len(x) - 1, 400).astype(int))
        axes.plot(x[keep], values[keep], label=label, **look.lined)
    if not axes.lines:
        return None
    axes.set_xlabel("requests so far")
    axes.set_ylabel(f"accept length of {window} requests")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    legend_above(axes, 4)
    return figure


def rolling(records: Sequence[Record]) -> tuple[np.ndarray, int]:
    """Accept length of the last so many requests, after each from there on."""
    window = max(3, len(records) // 8)
    sums = np.array([[0, 0], *([r["tokens"], r["steps"]] for r in records)], float).cumsum(axis=0)
    tokens, steps = (sums[window:] - sums[:-window]).T
    return tokens / steps, window


def sources(part: Part) -> Figure | None:
    """Drafts by source: proposed and accepted tokens of a verify step, for the first variant that tells."""
    result = next((r for r in part.charted if r["accepted"]), None)
    if result is None:
        return None
    names = sorted(result["proposed"], key=lambda name: -result["accepted"].get(name, 0))
    figure, axes = bars_canvas(len(names))
    colour = looks_of(part.run)[result["variant"]].colour
    for y, name in enumerate(names):
        proposed = result["proposed"][name] / result["steps"]
        accepted = result["accepted"].get(name, 0) / result["steps"]
        axes.barh(y, proposed, height=0.62, color=colour, alpha=0.25)
        axes.barh(y, accepted, height=0.62, color=colour)
        share = 100 * accepted / proposed if proposed else 0
        axes.annotate(f"{share:.0f} %", (max(proposed, accepted), y), (6, 0), **BESIDE)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_xlim(0, axes.get_xlim()[1] * 1.08)
    axes.set_xlabel(f"{short(result['variant'])}: draft tokens of a verify step, accepted and proposed")
    return figure


def ablation(part: Part) -> Figure | None:
    """Accept length without each source in turn."""
    lacking = [r for r in part.results if WITHOUT in r["variant"]]
    if not lacking:
        return None
    whole = lacking[0]["variant"].partition(f"-{WITHOUT}")[0]
    shown = [*(r for r in part.results if r["variant"] == whole), *_least_first(lacking)]
    figure, axes = bars_canvas(len(shown))
    colour = looks_of(part.run)[lacking[0]["variant"]].colour
    for y, result in enumerate(shown):
        axes.barh(y, result["accept_length"], height=0.62, color=colour, alpha=1 if y == 0 else 0.5)
        speed = f" · {result['speedup']:.2f}×" if result["speedup"] else ""
        text = f"{result['accept_length']:.2f}{speed}"
        axes.annotate(text, (result["accept_length"], y), (6, 0), **BESIDE)
    names = [r["variant"].partition(f"-{WITHOUT}")[2] for r in shown]
    axes.set_yticks(range(len(shown)), [f"without {name}" if name else "all sources" for name in names])
    axes.set_xlim(0, axes.get_xlim()[1] * 1.15)
    axes.set_xlabel("accept length, and speed-up over plain decoding")
    return figure


def _least_first(results: Sequence[Result]) -> list[Result]:
    return sorted(results, key=lambda result: result["accept_length"])


def repeated(parts: Sequence[Part]) -> Figure | None:
    """Accept length of one workload by what was asked before; one part of each history."""
    by_history = {part.run.history: part for part in parts}
    if len(by_history) < 2:
        return None
    first = parts[0]
    bars: dict[str, tuple[float, ...]] = {}
    for result in first.charted:
        of = [_accept_length(part, result["variant"]) for part in by_history.values()]
        if any(of):
            bars[result["variant"]] = tuple(of)
    return _grouped(first, list(by_history), bars, "accept length") if bars else None


def _accept_length(part: Part, variant: str) -> float:
    return next((r["accept_length"] for r in part.results if r["variant"] == variant), 0.0)


def _grouped(part: Part, groups: Sequence[str], bars: dict[str, tuple[float, ...]], what: str) -> Figure:
    """One bar of each variant in each group."""
    figure, (axes,) = canvas(2.6)
    of = looks_of(part.run)
    width = _WIDTH / len(bars)
    for i, (variant, values) in enumerate(bars.items()):
        look = of[variant]
        at = np.arange(len(groups)) + width * (i - (len(bars) - 1) / 2)
        drawn = axes.bar(at, values, 0.9 * width, label=short(variant), **look.style)
        axes.bar_label(drawn, [f"{value:.1f}" if value else "" for value in values], padding=2, color=INK)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(what)
    axes.margins(y=0.15)
    legend_above(axes, 4)
    return figure
