"""Charts of seconds: speed-ups, rows one by one, parts of a reply, requests at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sglang_toolspec.bench.output import Record
from sglang_toolspec.bench.report.looks import (
    BESIDE,
    INK,
    LINE,
    MUTED,
    Look,
    bars_canvas,
    canvas,
    legend_above,
    looks,
    short,
)
from sglang_toolspec.bench.report.source import Part, Run
from sglang_toolspec.bench.summary import Result, ratio, sums_by_row
from sglang_toolspec.bench.variants import PLAIN

_GAP = 0.16
"""Between the marks of two variants that stand at one place."""


def looks_of(run: Run) -> dict[str, Look]:
    return looks([(variant.name, variant.algorithm) for variant in run.variants])


def speedups(part: Part) -> Figure | None:
    """Speed-up over plain decoding with its interval."""
    shown = [result for result in part.charted if result["speedup"] is not None]
    if not shown:
        return None
    figure, axes = bars_canvas(len(shown))
    of = looks_of(part.run)
    for y, result in enumerate(shown):
        look, (low, high) = of[result["variant"]], result["speedup_ci"]
        axes.plot([low, high], [y, y], lw=5, solid_capstyle="round", **look.style)
        axes.plot([result["speedup"]], [y], "o", color=INK, ms=5)
        axes.annotate(f"{result['speedup']:.2f}×", (high, y), (8, 0), **BESIDE)
    axes.axvline(1, color=MUTED, lw=1)
    axes.set_yticks(range(len(shown)), [short(result["variant"]) for result in shown])
    axes.set_xlim(0, max(1.2, 1.12 * max(result["speedup_ci"][1] for result in shown)))
    axes.set_xlabel("times as many tokens per second as plain decoding, 95 % interval")
    return figure


def row_speedups(mine: Iterable[Record], plain: Iterable[Record]) -> dict[str, float]:
    """By row, of those that both have with some time."""
    base = sums_by_row(plain)
    found = {}
    for row, (tokens, seconds) in sums_by_row(mine).items():
        plain_tokens, plain_seconds = base.get(row, (0.0, 0.0))
        if tokens and seconds and plain_tokens and plain_seconds:
            found[row] = (tokens / seconds) / (plain_tokens / plain_seconds)
    return found


def rows(part: Part) -> Figure | None:
    """Speed-ups of single rows, sorted."""
    lines = {r["variant"]: row_speedups(part.records[r["variant"]], part.plain) for r in part.charted}
    lines = {variant: found for variant, found in lines.items() if len(found) > 1}
    if not lines:
        return None
    figure, (axes,) = canvas(2.7)
    of = looks_of(part.run)
    for variant, found in lines.items():
        look = of[variant]
        share = np.linspace(0, 100, min(len(found), 200))
        values = np.percentile(list(found.values()), share)
        slower = sum(speedup < 1 for speedup in found.values())
        label = f"{short(variant)}: {slower} of {len(found)} rows slower"
        axes.plot(share, values, label=label, **look.lined)
    axes.axhline(1, color=MUTED, lw=1)
    axes.set_xlabel("rows, from the one that gains least, %")
    axes.set_ylabel("speed-up of the row")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 100)
    legend_above(axes, 2)
    return figure


def adherence(part: Part) -> Figure | None:
    """Speed-up of the replies that hold a whole call, and of the others."""
    groups: dict[bool, list[tuple[str, float, tuple[float, float]]]] = {True: [], False: []}
    counts: dict[bool, int] = {True: 0, False: 0}
    for result in part.charted:
        records = part.records[result["variant"]]
        for called, of in groups.items():
            chosen = [r for r in records if r.get("adheres") is called]
            counts[called] = max(counts[called], len(chosen))
            if found := ratio(chosen, part.plain):
                of.append((result["variant"], *found))
    if not any(groups.values()):
        return None
    figure, (axes,) = canvas(2.7)
    drawn = looks_of(part.run)
    names = [result["variant"] for result in part.charted]
    for x, of in enumerate(groups.values()):
        for variant, value, (low, high) in of:
            look = drawn[variant]
            at = x + _GAP * (names.index(variant) - (len(names) - 1) / 2)
            axes.plot([at, at], [low, high], lw=4, solid_capstyle="round", **look.style)
            axes.plot([at], [value], look.marker, **look.style)
            axes.annotate(f"{value:.2f}×", (at, high), (0, 4), textcoords="offset points", ha="center")
    for variant in names:
        look = drawn[variant]
        axes.plot([], [], look.marker, label=short(variant), **look.style)
    total = sum(counts.values())
    share = [f"{counts[called]} of {total} replies" for called in groups]
    axes.set_xticks([0, 1], [f"a whole call\n{share[0]}", f"no whole call\n{share[1]}"])
    axes.axhline(1, color=MUTED, lw=1)
    axes.set_xlim(-0.6, 1.6)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
    axes.set_ylabel("speed-up")
    axes.grid(axis="x", visible=False)
    legend_above(axes, 4)
    return figure


_PARTS: tuple[tuple[str, float], ...] = (("prompt", 0.32), ("drafting", 1.0), ("verifying", 0.66))
"""Parts of a request's time, with their opacity."""


def time_by_part(part: Part) -> Figure | None:
    """Mean seconds of a request: until the first token, drafting on the host, the rest of decoding."""
    shown = [*([PLAIN] if part.plain else []), *(r["variant"] for r in part.charted)]
    if not shown:
        return None
    figure, axes = bars_canvas(len(shown))
    of = looks_of(part.run)
    for y, variant in enumerate(shown):
        left = 0.0
        for (_, shade), seconds in zip(_PARTS, _seconds(part.records[variant]), strict=True):
            axes.barh(y, seconds, left=left, height=0.62, color=of[variant].colour, alpha=shade)
            if seconds > 0:
                axes.barh(y, 0, left=left + seconds, height=0.62, color="none", edgecolor=INK, lw=0.6)
            left += seconds
        axes.annotate(f"{left:.2f} s", (left, y), (6, 0), **BESIDE)
    axes.set_yticks(range(len(shown)), [short(variant) for variant in shown])
    axes.set_xlim(0, axes.get_xlim()[1] * 1.08)
    axes.set_xlabel("mean seconds of a request")
    for label, shade in _PARTS:
        axes.barh(0, 0, color=INK, alpha=shade, label=label)
    axes.legend(loc="lower right", ncols=len(_PARTS), bbox_to_anchor=(1, 1), borderaxespad=0)
    return figure


def _seconds(records: Sequence[Record]) -> tuple[float, float, float]:
    """Means of the parts; a request waits for the drafting of all that are in flight."""
    drafting = [1e-6 * (r.get("host_us_per_step") or 0.0) * r["steps"] for r in records]
    decoding = [r["decode_s"] for r in records]
    host = min(float(np.mean(drafting)), float(np.mean(decoding)))
    return float(np.mean([r["ttft_s"] for r in records])), host, float(np.mean(decoding)) - host


def concurrency(part: Part) -> Figure | None:
    """Latency and throughput by requests in flight; ``part`` is the workload's first."""
    parts = part.run.at(part.workload)
    if len(parts) < 2:
        return None
    figure, (latency, throughput) = canvas(2.8, columns=2)
    _over(latency, parts, lambda r: r["e2e_ms"]["p50"] / 1000, "median seconds of a request")
    _over(throughput, parts, lambda r: r["throughput"], "tokens per second of the server")
    legend_above(latency, 3)
    return figure


def _over(axes: Axes, parts: Sequence[Part], value: Callable[[Result], float], title: str) -> None:
    at = [part.concurrency for part in parts]
    for variant, look in looks_of(parts[0].run).items():
        found = [next((r for r in part.results if r["variant"] == variant), None) for part in parts]
        points = [(x, value(r)) for x, r in zip(at, found, strict=True) if r is not None]
        if len(points) > 1:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, marker=look.marker, label=short(variant), **look.lined)
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [str(x) for x in at])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("requests in flight")
    axes.set_ylabel(title)
    axes.minorticks_off()
    axes.grid(axis="x", color=LINE)
