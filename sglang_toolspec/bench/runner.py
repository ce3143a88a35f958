"""Asks the servers of the variants, a few of them at once and in turn, and keeps what they answer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

from sglang_toolspec.bench.adherence import adheres
from sglang_toolspec.bench.measure import Asker, Measurement, RequestFailed, ServerGone
from sglang_toolspec.bench.output import Output, Record
from sglang_toolspec.bench.plan import Pass
from sglang_toolspec.bench.request import Request
from sglang_toolspec.bench.variants import Variant
from sglang_toolspec.errors import UserError

FAILURES_IN_A_ROW = 5
"""After so many a variant's server is given up."""
BLOCK_PER_SLOT = 2
"""Requests per slot that one server gets before the next is asked, where several are in flight."""
WARM_UP_TOKENS = 32

T = TypeVar("T")
_Answer = tuple[str, str, Measurement | RequestFailed]
"""Row, request id, and what came of it."""


class Server(Protocol):
    """What the runner needs of ``ServerProcess``."""

    url: str


Start = Callable[[Variant], AbstractContextManager[Server]]
"""Gives the running server of a variant as a context."""


class Watch(Protocol):
    """Is told how far a run is."""

    def begin(self, total: int) -> None: ...
    def doing(self, what: str) -> None: ...
    def done(self) -> None: ...


@dataclass(frozen=True)
class Job:
    """``requests`` by workload and row. ``warm_up`` are asked of every server first and never measured.
    ``together``: servers that run at once; each gets the same request before any gets the next one.
    """

    variants: Sequence[Variant]
    requests: Mapping[str, Mapping[str, Request]]
    passes: Sequence[Pass]
    warm_up: Sequence[Request] = ()
    together: int = 2
    timeout_s: float = 600.0


@dataclass
class _Seat:
    """A server in use. ``blocks`` counts what it was asked at once, ``failures`` those in a row."""

    variant: Variant
    asker: Asker
    started: float
    blocks: int = 0
    failures: int = 0


class Runner:
    """Measures all of a ``Job`` that an ``Output`` does not hold yet. ``failed`` counts failed requests."""

    def __init__(self, job: Job, output: Output, start: Start, watch: Watch):
        self._job = job
        self._output = output
        self._start = start
        self._watch = watch
        self._run = uuid.uuid4().hex[:8]
        """Part of each salt: what a server kept on disk from an earlier run is no history of this one."""
        self.failed = 0

    def run(self) -> None:
        """Raises ``UserError`` where a server does not start or is gone; what was measured stays."""
        todo = {variant: self._missing(variant) for variant in self._job.variants}
        self._watch.begin(sum(len(p.warm) + len(rows) for of in todo.values() for p, rows in of.items()))
        for group in _chunks(self._job.variants, self._job.together):
            if active := [variant for variant in group if todo[variant]]:
                with ExitStack() as stack:
                    self._watch.doing(f"starting {', '.join(v.name for v in active)}")
                    self._run_together([self._seat(v, stack) for v in active], todo)

    def _missing(self, variant: Variant) -> dict[Pass, set[str]]:
        """Rows by pass; complete passes are left out."""
        records, missing = self._output.records(variant.name), {}
        for p in self._job.passes:
            asked = p.rows_of(plain=not variant.speculative)
            rows = set(asked)
            for row in asked:
                if (record := records.get(p.key(row))) is None:
                    continue
                rows.remove(row)
                if record["request"] != self._job.requests[p.workload][row].digest:
                    raise UserError(
                        f"row {row} of {p.workload} was another request when {self._output.folder} was "
                        "measured; give another --output"
                    )
            if rows:
                missing[p] = rows
        return missing

    def _seat(self, variant: Variant, stack: ExitStack) -> _Seat:
        server = stack.enter_context(self._start(variant))
        asker = Asker(server.url, variant.speculative, variant.is_toolspec, self._job.timeout_s)
        stack.callback(asker.close)
        return _Seat(variant, asker, time.time())

    def _run_together(self, seats: Sequence[_Seat], todo: Mapping[Variant, Mapping[Pass, set[str]]]) -> None:
        for seat in seats:
            for request in self._job.warm_up:
                with self._giving_up(seat, "it fails from the start"):
                    seat.asker.ask(request, _rid(), "warm-up", WARM_UP_TOKENS)
        for p in self._job.passes:
            if active := [seat for seat in seats if p in todo[seat.variant]]:
                self._run_pass(p, active, {seat.variant: todo[seat.variant][p] for seat in active})
        for seat in seats:
            # What TOOLSPEC counted since its start: measured step costs, faults.
            entry = {"variant": seat.variant.name, "server_start": seat.started}
            if told := self._drafting(seat):
                self._output.note("servers", {**entry, "toolspec": told})

    def _run_pass(self, p: Pass, seats: Sequence[_Seat], missing: Mapping[Variant, set[str]]) -> None:
        for seat in seats:
            with self._giving_up(seat, "its cache cannot be emptied"):
                seat.asker.flush()
        size = 1 if p.concurrency == 1 else BLOCK_PER_SLOT * p.concurrency
        for rows in _chunks(p.warm, size):
            for seat in seats:
                self._watch.doing(f"{seat.variant.name}: history of {p.workload}")
                # Where nothing is learned, the prompt alone leaves the same prefix cache.
                self._note_failures(seat, p, self._ask(seat, p, rows, None if seat.variant.learns else 1))
        for rows in _chunks(p.rows, size):
            for seat in seats:
                if chosen := [row for row in rows if row in missing[seat.variant]]:
                    self._watch.doing(f"{seat.variant.name}: {p.workload}")
                    self._measure(seat, p, chosen)

    def _measure(self, seat: _Seat, p: Pass, rows: Sequence[str]) -> None:
        """Ask, and keep what succeeds."""
        before = self._drafting(seat)
        answers = self._ask(seat, p, rows)
        gone = any(isinstance(measured, ServerGone) for _, _, measured in answers)
        host_us = None if gone else _host_us(before, self._drafting(seat))
        for row, rid, measured in answers:
            if isinstance(measured, RequestFailed):
                continue
            request = self._job.requests[p.workload][row]
            record: Record = {
                **asdict(p.key(row)),
                "request": request.digest,
                **asdict(measured),
                "server_start": seat.started,
                "block": seat.blocks,
                "host_us_per_step": host_us,
                "attribution": None if gone else self._attribution(seat, rid),
                "adheres": adheres(request, measured),
            }
            self._output.add(seat.variant.name, record)
        seat.blocks += 1
        self._note_failures(seat, p, answers)

    def _ask(
        self, seat: _Seat, p: Pass, rows: Sequence[str], max_new_tokens: int | None = None
    ) -> list[_Answer]:
        """``p.concurrency`` at a time, answers in the order of ``rows``."""
        salt = f"{p.salt}/{self._run}"

        def ask(row: str) -> _Answer:
            rid = _rid()
            try:
                request = self._job.requests[p.workload][row]
                measured: Measurement | RequestFailed = seat.asker.ask(request, rid, salt, max_new_tokens)
            except RequestFailed as error:
                measured = error
            self._watch.done()
            return row, rid, measured

        if p.concurrency == 1:
            return [ask(row) for row in rows]
        pool = ThreadPoolExecutor(p.concurrency)
        try:
            return list(pool.map(ask, rows))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # an interrupted run waits for nothing

    def _note_failures(self, seat: _Seat, p: Pass, answers: Sequence[_Answer]) -> None:
        """Raises ``UserError`` where the server is gone, or fails all the time."""
        for row, _, measured in answers:
            if not isinstance(measured, RequestFailed):
                seat.failures = 0
                continue
            self.failed += 1
            seat.failures += 1
            entry = {"variant": seat.variant.name, **asdict(p.key(row)), "error": str(measured)}
            self._output.note("failures", entry)
            if isinstance(measured, ServerGone) or seat.failures >= FAILURES_IN_A_ROW:
                with self._giving_up(seat, f"row {row} of {p.workload}, failure {seat.failures} in a row"):
                    raise measured

    def _drafting(self, seat: _Seat) -> dict[str, Any]:
        with self._giving_up(seat, "it does not report"):
            return seat.asker.drafting()

    def _attribution(self, seat: _Seat, rid: str) -> dict[str, Any] | None:
        try:
            return seat.asker.attribution(rid)
        except RequestFailed:  # the measurement stands without it
            return None

    @contextmanager
    def _giving_up(self, seat: _Seat, why: str) -> Iterator[None]:
        """In it a failed request ends the run with one sentence."""
        try:
            yield
        except RequestFailed as error:
            raise UserError(
                f"the server of {seat.variant.name} is given up: {why}: {error} (log: "
                f"{self._output.log(seat.variant.name)}); what is measured is kept, the same command goes on"
            ) from error


def _rid() -> str:
    return f"bench-{uuid.uuid4().hex}"


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _host_us(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Host microseconds of drafting per verify step between two reports of TOOLSPEC."""
    if not before or not after or after["verify_steps"] <= before["verify_steps"]:
        return None
    total = [told["verify_steps"] * told["drafting_us_per_step"] for told in (before, after)]
    return float((total[1] - total[0]) / (after["verify_steps"] - before["verify_steps"]))
