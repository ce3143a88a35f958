"""A whole benchmark: from what is asked for to the figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sglang_toolspec.bench.draft_models import model_digest
from sglang_toolspec.bench.output import Output, Settings
from sglang_toolspec.bench.plan import Pass, passes, requests_of
from sglang_toolspec.bench.request import Asking, Request
from sglang_toolspec.bench.runner import Job, Runner, Start, Watch
from sglang_toolspec.bench.summary import results, rounded
from sglang_toolspec.bench.variants import Variant
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.errors import UserError
from sglang_toolspec.machine import machine
from sglang_toolspec.runtime.config import settings_in
from sglang_toolspec.server_process import ServerProcess

EVERY_TOKEN_AT_THE_END = 1_000_000
"""Tokens between two messages of a stream, so that there are two: the first token, and all the others."""
_WARM_UPS = 2


@dataclass(frozen=True)
class Serving:
    """What all servers share. ``model``: folder or hub name. An empty ``dtype`` is SGLang's choice."""

    model: str
    dtype: str = ""
    flags: Sequence[str] = ()
    stream_interval: int = EVERY_TOKEN_AT_THE_END

    def server_flags(self) -> tuple[str, ...]:
        """Sampling has SGLang's own defaults, whatever the model's ``generation_config.json`` says: a
        repetition penalty there would make speculation inexact on a GPU."""
        dtype = ("--dtype", self.dtype) if self.dtype else ()
        streaming = ("--stream-interval", str(self.stream_interval))
        return (*dtype, *streaming, "--sampling-defaults", "openai", "--log-level", "warning", *self.flags)


@dataclass(frozen=True)
class Streams:
    """How the rows are asked: see ``plan.passes`` and ``runner.Job``."""

    concurrencies: Sequence[int] = (1,)
    repeats: int = 1
    history: str = "cold"
    together: int = 2
    plain_every: int = 1
    timeout_s: float = 600.0


@dataclass(frozen=True)
class Plan:
    """``settings``: what it must have in common with what is in the output folder already."""

    model: str
    settings: Settings
    variants: Sequence[Variant]
    requests: Mapping[str, Mapping[str, Request]]
    passes: Sequence[Pass]
    streams: Streams


@dataclass(frozen=True)
class Outcome:
    """``error``: why the run ended early; ``failed``: requests without an answer."""

    summary: dict[str, Any]
    failed: int
    error: UserError | None
    interrupted: bool


def planned(
    serving: Serving,
    variants: Sequence[Variant],
    workloads: Sequence[Workload],
    asking: Asking,
    streams: Streams,
) -> Plan:
    """Raises ``UserError`` where a row does not fit ``asking``."""
    requests = {workload.name: requests_of(workload, asking) for workload in workloads}
    settings = Settings(
        model=Path(serving.model).name,
        model_digest=model_digest(serving.model),
        asking=asking,
        history=streams.history,
        server_flags=serving.server_flags(),
        environment=settings_in(os.environ),
    )
    in_order = passes(requests, streams.concurrencies, streams.repeats, streams.history, streams.plain_every)
    return Plan(serving.model, settings, variants, requests, in_order, streams)


def run(
    plan: Plan, folder: Path, command: str, watch: Watch, redo: bool = False, start: Start | None = None
) -> Outcome:
    """Measure what is missing in ``folder``, and write its ``summary.json``.

    ``start`` gives the server of a variant. Raises ``UserError`` where the folder belongs to other
    measurements; what ends a run that has begun is in the ``Outcome``.
    """
    with Output(folder) as output:
        manifest = output.claim(plan.settings, plan.variants, machine(), command, redo)
        warm_up = list(next(iter(plan.requests.values())).values())[:_WARM_UPS]
        streams = plan.streams
        job = Job(plan.variants, plan.requests, plan.passes, warm_up, streams.together, streams.timeout_s)
        runner = Runner(job, output, start or _processes(plan, output), watch)
        error, interrupted = None, False
        try:
            runner.run()
        except UserError as ended:
            error = ended
        except KeyboardInterrupt:
            interrupted = True
        manifest |= {"failed": runner.failed, "output": str(folder)}
        summary = {**_figures(plan, output), **manifest}
        output.write_summary(summary)
        return Outcome(summary, runner.failed, error, interrupted)


def _figures(plan: Plan, output: Output) -> dict[str, Any]:
    records = {variant.name: output.records(variant.name) for variant in plan.variants}
    found = results(plan.variants, records, plan.passes, plan.settings.asking.temperature == 0)
    expected = len({(p.workload, p.concurrency) for p in plan.passes}) * len(plan.variants)
    complete = len(found) == expected and all(result["complete"] for result in found)
    began = [record["began"] for of in records.values() for record in of.values()]
    ends = (min(began), max(began)) if began else ()
    return {"results": rounded(found), "complete": complete, "measured": [_utc(time) for time in ends]}


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _processes(plan: Plan, output: Output) -> Start:
    def start(variant: Variant) -> ServerProcess:
        flags = [*plan.settings.server_flags, *variant.flags]
        return ServerProcess(plan.model, flags, output.log(variant.name))

    return start
