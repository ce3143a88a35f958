"""What drafting costs the host, per request and verify step, by part.

``python -m tests.bench_host_time FILE`` replays the greedy replies that a server recorded in FILE
(``--toolspec-record``), without a model, at widths 16, 32 and 64, and with 16 requests in turn step by
step, as in a batch. It prints microseconds of processor time: median, 99th percentile and most. ``start``
is once a request, all others once a request and step; ``draft`` holds the sources and ``merge``, and
``schema`` holds ``automaton``.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.replay_cli import codec_of
from sglang_toolspec.runtime import session
from sglang_toolspec.runtime.assembly import Assembler
from sglang_toolspec.runtime.config import SOURCES, Config
from sglang_toolspec.runtime.drafters.history import HistoryDrafter
from sglang_toolspec.runtime.drafters.recycling import RecyclingDrafter
from sglang_toolspec.runtime.drafters.schema import SchemaDrafter
from sglang_toolspec.runtime.drafters.suffix import SuffixDrafter
from sglang_toolspec.runtime.recording import read_runs
from sglang_toolspec.runtime.replay import Simulation
from sglang_toolspec.runtime.session import Faults, Session
from tests.bench_automaton import summary

LOADS = ((16, 1), (32, 1), (64, 1), (32, 16))
"""Widths, and requests at once."""
_ENDED = object()
PARTS: dict[str, tuple[Any, str]] = {
    "start": (Assembler, "__call__"),
    "draft": (Session, "draft"),
    "schema": (SchemaDrafter, "propose"),
    "automaton": (ToolAutomaton, "continuations"),
    "history": (HistoryDrafter, "propose"),
    "suffix": (SuffixDrafter, "propose"),
    "recycling": (RecyclingDrafter, "propose"),
    "merge": (session, "merge"),
    "commit": (Session, "commit"),
}


@contextmanager
def watched() -> Iterator[dict[str, list[float]]]:
    """Microseconds of every call of every part."""
    found: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as patches:
        for part, (owner, name) in PARTS.items():
            work = timed(found[part], getattr(owner, name))
            patches.enter_context(patch.object(owner, name, work))
        yield found


def timed(into: list[float], work: Callable) -> Callable:
    @wraps(work)
    def timing(*args, **kwargs):
        began = time.thread_time_ns()
        try:
            return work(*args, **kwargs)
        finally:
            into.append((time.thread_time_ns() - began) / 1000)

    return timing


def report(file: Path) -> dict[str, Any]:
    runs = read_runs(file)
    codec, parser = codec_of(runs, file, ""), runs[0].header.parser
    replies = [reply for run in runs for reply in run.replies]
    found: dict[str, Any] = {}
    for width, at_once in LOADS:  # each with an empty memory
        assemble = Assembler(codec, parser, Faults(fail), Config(sources=frozenset(SOURCES)))
        simulation = Simulation(width)
        with watched() as parts:
            in_batch(at_once, (simulation.steps(assemble, reply) for reply in replies))
        sums = simulation.sums
        found[f"width {width}, {at_once} at once"] = {
            "requests": len(replies), "steps": sums.steps, "accept_length": round(sums.accept_length, 3),
            **{part: summary(times) for part, times in parts.items() if times},
        }  # fmt: skip
    return found


def in_batch(at_once: int, requests: Iterator[Iterator[None]]) -> None:
    """A step of each of so many in turn; who is done makes room for the next."""
    running = list(islice(requests, at_once))
    while running:
        unfinished = [request for request in running if next(request, _ENDED) is not _ENDED]
        running = unfinished + list(islice(requests, at_once - len(unfinished)))


def fail(reason: str, error: BaseException) -> None:
    raise error


if __name__ == "__main__":
    print(json.dumps(report(Path(sys.argv[1])), indent=1))
