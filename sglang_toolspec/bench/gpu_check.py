"""``bench gpu-check``: one GPU, in a quarter of an hour. Are the replies the same, and what is the speed?

Each stage is a benchmark of its own in a folder of its own, so the same command goes on where the last one
stopped. A server that does not start costs its variant, not the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from sglang_toolspec.bench.request import Asking
from sglang_toolspec.bench.run import Serving, Streams, planned, run
from sglang_toolspec.bench.runner import Start, Watch
from sglang_toolspec.bench.summary import Result
from sglang_toolspec.bench.variants import WITH_DRAFT_MODEL, Variant, ngram, plain, toolspec, with_draft_model
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.errors import UserError

MINUTES = 15.0
LAST_S = 120.0
"""Seconds before the end after which nothing is begun: what a server's start may take."""
CONCURRENCIES = (1, 8, 32)
IDENTITY_ROWS = 8
WIDTHS = (32, 16, 64, 8)
"""A GPU captures one width: which is the fastest, one measures."""
OF_WIDTH = {width: toolspec(width=str(width)) for width in WIDTHS}
_ONE_PAGE = ("--page-size", "1")


class OutOfTime(UserError):
    """What is missing is left to the next run."""


@dataclass(frozen=True)
class Stage:
    """``flags`` are those of all its servers. Replies are compared with those of plain decoding, which
    comes first."""

    name: str
    says: str
    variants: Sequence[Variant]
    flags: Sequence[str] = ()
    concurrencies: Sequence[int] = (1,)
    rows: int | None = None
    judged: bool = True
    """Whether replies must be the same. Where several are in flight they may part, since batches round
    otherwise."""


@dataclass
class Verdict:
    """Mutable. ``errors``: why a variant has no figures; ``unfinished``: the time was over before."""

    results: list[tuple[Stage, Result]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    failed: int = 0
    unfinished: bool = False

    @property
    def differing(self) -> list[tuple[Stage, Result]]:
        return [(stage, r) for stage, r in self.results if stage.judged and r["identical_share"] != 1]

    @property
    def fastest(self) -> dict[int, str]:
        """The variant with most tokens per second, all requests together, by how many are in flight."""
        found: dict[int, Result] = {}
        for stage, result in self.results:
            best = found.get(result["concurrency"])
            if not stage.judged and (best is None or result["throughput"] > best["throughput"]):
                found[result["concurrency"]] = result
        return {concurrency: result["variant"] for concurrency, result in found.items()}

    @property
    def best_width(self) -> int | None:
        """Of TOOLSPEC's trees, the geometric mean over the numbers of requests in flight; ``None`` until
        all widths are measured with all of them."""
        found: dict[int, dict[int, float]] = {}
        for stage, result in self.results:
            for width, variant in OF_WIDTH.items():
                if not stage.judged and result["variant"] == variant.name and result["complete"]:
                    found.setdefault(width, {})[result["concurrency"]] = result["throughput"]
        if set(found) != set(WIDTHS) or len({frozenset(of) for of in found.values()}) > 1:
            return None
        return max(found, key=lambda width: prod(found[width].values()))

    @property
    def ok(self) -> bool:
        complete = self.results and not self.differing
        return bool(complete) and not (self.errors or self.failed or self.unfinished)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "unfinished": self.unfinished,
            "failed": self.failed,
            "errors": self.errors,
            "fastest": self.fastest,
            "best_width": self.best_width,
            "results": [{"stage": stage.name, **result} for stage, result in self.results],
        }


def stages(draft_models: Mapping[str, str]) -> list[Stage]:
    """What is checked, the most important first."""
    ours, base = toolspec(), plain()
    no_graphs = _changed(ours, "no-graphs", "--disable-cuda-graph")
    overlap = _changed(ours, "overlap", "--toolspec-overlap")
    if unknown := next((name for name in draft_models if name not in WITH_DRAFT_MODEL), None):
        raise UserError(f"--draft-model {unknown}=…: known are {', '.join(WITH_DRAFT_MODEL)}")
    with_models = [with_draft_model(algorithm, draft_models) for algorithm in draft_models]
    return [
        Stage(
            "triton",
            "same replies: triton attention, page size 1; without CUDA graphs; with overlap scheduling",
            [base, ours, no_graphs, overlap],
            ("--attention-backend", "triton", *_ONE_PAGE),
            rows=IDENTITY_ROWS,
        ),
        Stage(
            "flashinfer",
            "same replies: flashinfer attention, page size 1",
            [base, ours],
            ("--attention-backend", "flashinfer", *_ONE_PAGE),
            rows=IDENTITY_ROWS,
        ),
        Stage(
            "speed",
            f"speed with {', '.join(map(str, CONCURRENCIES))} requests in flight",
            [base, OF_WIDTH[WIDTHS[0]], ngram(12), *with_models, *(OF_WIDTH[width] for width in WIDTHS[1:])],
            concurrencies=CONCURRENCIES,
            judged=False,
        ),
    ]


def _changed(variant: Variant, name: str, *flags: str) -> Variant:
    return replace(variant, name=f"{variant.name}-{name}", flags=(*variant.flags, *flags))


class Deadline:
    """A ``Watch`` that ends the run with ``OutOfTime`` once nothing more may be begun."""

    def __init__(self, watch: Watch, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._watch = watch
        self._clock = clock
        self._until = clock() + seconds

    def begin(self, total: int) -> None:
        self._watch.begin(total)

    def doing(self, what: str) -> None:
        self._check()
        self._watch.doing(what)

    def done(self) -> None:
        self._watch.done()
        self._check()

    def _check(self) -> None:
        if self._clock() >= self._until:
            raise OutOfTime("the time is over; the same command goes on")


@dataclass(frozen=True)
class Check:
    """What all stages share. ``start`` gives the server of a variant."""

    model: str
    folder: Path
    workload: Workload
    asking: Asking = field(default_factory=Asking)
    dtype: str = ""
    command: str = "sglang-toolspec bench gpu-check"
    start: Start | None = None

    def run(self, stages: Sequence[Stage], watch: Watch) -> Verdict:
        """All that is missing, variant by variant, until ``watch`` raises ``OutOfTime``."""
        verdict = Verdict()
        try:
            for stage in stages:
                base, *others = stage.variants
                if self._measure(stage, base, watch, verdict):
                    for variant in others:
                        self._measure(stage, variant, watch, verdict)
        except OutOfTime:
            verdict.unfinished = True
        return verdict

    def _measure(self, stage: Stage, variant: Variant, watch: Watch, verdict: Verdict) -> bool:
        """One variant, next to plain decoding, which is measured already. Whether it has figures."""
        rows = replace(self.workload, rows=self.workload.rows[: stage.rows])
        base = stage.variants[0]
        chosen = [base] if variant == base else [base, variant]
        streams = Streams(stage.concurrencies, together=1)
        plan = planned(Serving(self.model, self.dtype, stage.flags), chosen, [rows], self.asking, streams)
        outcome = run(plan, self.folder / stage.name, self.command, watch, redo=True, start=self.start)
        if outcome.interrupted:
            raise KeyboardInterrupt
        found = [result for result in outcome.summary["results"] if result["variant"] == variant.name]
        verdict.results += [(stage, result) for result in found]
        verdict.failed += outcome.failed
        if isinstance(outcome.error, OutOfTime):
            raise outcome.error
        if outcome.error is not None:
            verdict.errors.append(f"{stage.name}, {variant.name}: {outcome.error}")
        return bool(found)

    def folders(self, stages: Sequence[Stage]) -> Iterator[Path]:
        """Of those stages that have begun."""
        return (folder for stage in stages if (folder := self.folder / stage.name).is_dir())
