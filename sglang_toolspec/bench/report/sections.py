"""Which charts there are, what each shows, and what a run needs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from sglang_toolspec.bench.report import drawings_speed as speed
from sglang_toolspec.bench.report import drawings_steps as steps
from sglang_toolspec.bench.report.looks import drawn, short
from sglang_toolspec.bench.report.source import Part, Run
from sglang_toolspec.bench.variants import WITHOUT

MAX_PARTS = 12
"""Workloads with charts; all are in the tables."""

Draw = Callable[[Part, Sequence[Part]], Figure | None]
"""Of a part, and of all parts of the report."""


@dataclass(frozen=True)
class Kind:
    """``says``: how to read it. ``needs``: what to measure where the chart is missing. ``several``: it
    compares all runs of a workload and model."""

    anchor: str
    title: str
    says: str
    needs: str
    draw: Draw
    several: bool = False


@dataclass(frozen=True)
class Source:
    """What a chart was measured on, and by which command."""

    about: str
    command: str


@dataclass(frozen=True)
class Chart:
    svg: str
    sources: Sequence[Source]


@dataclass(frozen=True)
class Section:
    kind: Kind
    charts: Sequence[Chart]


def _alone(draw: Callable[[Part], Figure | None]) -> Draw:
    return lambda part, _: draw(part)


def _alike(part: Part, parts: Sequence[Part]) -> list[Part]:
    """Of the same workload and model."""
    return [p for p in parts if (p.workload, p.run.model) == (part.workload, part.run.model)]


def _by_history(part: Part, parts: Sequence[Part]) -> Figure | None:
    """Once for each workload of a model, with its runs of other histories."""
    alike = _alike(part, parts)
    return steps.repeated(alike) if alike[0] is part else None


KINDS = (
    Kind(
        "speed-up",
        "Speed-up",
        "Tokens per second after the first token, against plain decoding on the same rows. The bar is the "
        "95 % interval over rows.",
        "--algorithms with none and another one",
        _alone(speed.speedups),
    ),
    Kind(
        "rows",
        "Row by row",
        "Every request by itself, sorted. What lies below 1 was slower than plain decoding.",
        "--algorithms with none and another one, and at least two rows",
        _alone(speed.rows),
    ),
    Kind(
        "accept-length",
        "Accept length",
        "How many tokens a verify step gives. The area below a line is their mean.",
        "a speculative algorithm in --algorithms, on a server that tells how many drafts it accepted",
        _alone(steps.distribution),
    ),
    Kind(
        "first-steps",
        "First two steps",
        "A call begins with what its schema fixes: its marks, its keys, the name of the tool.",
        "toolspec in --algorithms, or --stream-interval 1 for all others",
        _alone(steps.first_steps),
    ),
    Kind(
        "warming",
        "As history warms",
        "Accept length along the stream of requests, each of which is history for the next ones.",
        f"at least {steps.MIN_STREAM} rows, --num-prompts",
        _alone(steps.stream),
    ),
    Kind(
        "repeated",
        "Repeated calls",
        "Nothing asked before (cold), the other half of the rows (warm), or the same rows (repeated).",
        "runs of the same workload with --history cold, warm and repeated, in one report: "
        "bench report DIR DIR DIR",
        _by_history,
        several=True,
    ),
    Kind(
        "adherence",
        "Format adherence",
        "Replies with a whole call of one of the tools against those without: prose has little to draft.",
        "none in --algorithms, rows with tools, and measurements of this version (--redo)",
        _alone(speed.adherence),
    ),
    Kind(
        "time",
        "Time by part",
        "Until the first token (the prompt), drafting on the host where it is known, verifying and all else.",
        "any measurement",
        _alone(speed.time_by_part),
    ),
    Kind(
        "sources",
        "Who drafted",
        "Proposed (pale) and accepted drafts by source, and the share of accepted ones.",
        "toolspec in --algorithms",
        _alone(steps.sources),
    ),
    Kind(
        "ablation",
        "Ablation",
        "The same requests to TOOLSPEC without one of its sources of drafts in turn.",
        "--ablate",
        _alone(steps.ablation),
    ),
    Kind(
        "concurrency",
        "Requests at once",
        "Latency of a request and throughput of the server by requests in flight.",
        "--concurrency 1,8,32",
        _alone(speed.concurrency),
    ),
)


def sections(runs: Sequence[Run]) -> Iterator[Section]:
    """One for each kind, without charts where nothing was measured for it."""
    parts = first_parts(runs)
    for kind in KINDS:
        charts = []
        for number, part in enumerate(parts[:MAX_PARTS]):
            title = f"{kind.title}, {short(part.workload)}"
            found = drawn(partial(kind.draw, part, parts), f"{kind.anchor}-{number}", title)
            if found is not None:
                shown = _alike(part, parts) if kind.several else [part]
                charts.append(Chart(found, [source(each) for each in shown]))
        yield Section(kind, charts)


def first_parts(runs: Sequence[Run]) -> list[Part]:
    """Of each workload of each run the part with the fewest requests in flight."""
    return [
        min(run.at(workload), key=lambda part: part.concurrency)
        for run in runs
        for workload in dict.fromkeys(part.workload for part in run.parts)
    ]


def source(part: Part) -> Source:
    manifest, flight = part.run.manifest, ""
    if part.concurrency > 1:
        flight = f", {part.concurrency} requests at once"
    versions = ", ".join(f"{package} {version}" for package, version in manifest["versions"].items())
    variants = ", ".join(short(variant) for variant in part.records if WITHOUT not in variant)
    history = f"{part.run.history} history"
    about = (
        f"{short(part.run.name)}: {short(part.workload)}, {part.rows} requests{flight}, {history} · "
        f"{short(part.run.model)} · "
        f"{variants} · {manifest['machine']} · {versions}"
    )
    return Source(about, str(manifest["commands"][-1]))
