"""Runs of the benchmark against fake servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sglang_toolspec.bench.request import Asking
from sglang_toolspec.bench.rows import Row, user
from sglang_toolspec.bench.run import Outcome, Serving, Streams, planned, run
from sglang_toolspec.bench.variants import Variant, variants
from sglang_toolspec.bench.workloads import Workload
from tests.fake_server import FakeServer, Faults

GREEDY = Asking()
QUICK = Streams(timeout_s=5)
DRAFTS = {"none": 0, "ngram": 1, "toolspec": 3, "eagle": 3}
LAMP = {"type": "function", "function": {"name": "lamp", "parameters": {"type": "object", "properties": {}}}}


class Quiet:
    """A ``Watch``; ``left`` requests are missing. Raises ``KeyboardInterrupt`` before one of them."""

    def __init__(self, interrupt_at: int = -1):
        self.left = 0
        self._interrupt_at = interrupt_at

    def begin(self, total: int) -> None:
        self.left = total

    def doing(self, what: str) -> None:
        pass

    def done(self) -> None:
        self.left -= 1
        if self.left == self._interrupt_at:
            raise KeyboardInterrupt


@dataclass
class Bench:
    """One output folder. ``servers`` by variant, in the order of their starts."""

    folder: Path
    faults: dict[str, Faults] = field(default_factory=dict)
    servers: dict[str, list[FakeServer]] = field(default_factory=dict)

    def start(self, variant: Variant) -> FakeServer:
        faults = self.faults.get(variant.algorithm, Faults())
        server = FakeServer(DRAFTS[variant.algorithm], variant.is_toolspec, faults)
        self.servers.setdefault(variant.name, []).append(server)
        return server

    def run(
        self,
        workloads: Sequence[Workload] = (),
        algorithms: Sequence[str] = ("none", "toolspec"),
        asking: Asking = GREEDY,
        streams: Streams = QUICK,
        watch: Any = None,
        draft_models: Mapping[str, str] = MappingProxyType({}),
        **options: Any,
    ) -> Outcome:
        chosen = variants(algorithms, [12], ["cost"], ["full"], draft_models)
        serving = Serving("tiny", **{k: options.pop(k) for k in ("flags", "dtype") if k in options})
        plan = planned(serving, chosen, list(workloads) or [lamps(4)], asking, streams)
        return run(plan, self.folder, "bench", watch or Quiet(), start=self.start, **options)

    def rows_asked(self, variant: str) -> list[str]:
        """What was asked of the last server of a variant, warm-up left out."""
        return [body["messages"][-1]["content"] for body in self.servers[variant][-1].measured()]


def lamps(count: int, name: str = "lamps") -> Workload:
    """Requests with a tool, by chat; ids are ``0``, ``1``, …"""
    return Workload(name, tuple(Row(str(i), user(f"Lamp {i}."), [LAMP]) for i in range(count)))
