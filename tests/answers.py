"""Answers of real servers for ``make accept``: asked by the benchmark, kept under ``.accept/``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sglang_toolspec.bench.output import Output, Record
from sglang_toolspec.bench.plan import Key
from sglang_toolspec.bench.report import page
from sglang_toolspec.bench.request import CHAT, Asking, Request, request_for
from sglang_toolspec.bench.rows import Row
from sglang_toolspec.bench.run import Serving, Streams, planned, run
from sglang_toolspec.bench.show import Bar
from sglang_toolspec.bench.variants import Variant
from sglang_toolspec.bench.workloads import Workload, load
from sglang_toolspec.model import cached
from sglang_toolspec.runtime.width import StepCosts
from sglang_toolspec.server_process import ServerProcess
from tests.engine.client import Client

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".accept"
IN_TURN = Streams()
EIGHT_IN_FLIGHT = Streams((8,))


def measured(
    name: str,
    dtype: str,
    variants: Sequence[Variant],
    workloads: Sequence[Workload],
    asking: Asking,
    streams: Streams = IN_TURN,
) -> dict[str, Any]:
    """The summary of a benchmark that is finished, with its report beside; what other code has measured is
    measured again."""
    plan = planned(Serving(str(cached()), dtype), variants, workloads, asking, streams)
    with Bar() as bar:
        outcome = run(plan, STATE / name, "python -m tests.accept", bar, redo=True)
    if outcome.interrupted or outcome.error or outcome.failed:
        why = outcome.error or ("interrupted" if outcome.interrupted else f"{outcome.failed} requests failed")
        sys.exit(f"make accept: {name} is not finished: {why}")
    page.write([STATE / name])
    return outcome.summary


def answers(name: str, variant: Variant) -> dict[Key, Record]:
    """What ``measured`` keeps under ``name``."""
    return Output(STATE / name).records(variant.name)


def step_costs(name: str, variant: Variant) -> StepCosts:
    """Seconds by rows, as the server of a TOOLSPEC variant under ``name`` knew them when it ended."""
    lines = (STATE / name / "servers.jsonl").read_text().splitlines()
    told = [entry["toolspec"] for entry in map(json.loads, lines) if entry["variant"] == variant.name]
    return StepCosts.of((int(rows), ms / 1000) for rows, ms in told[-1]["step_ms"].items())


def data(name: str, count: int) -> Workload:
    """The first rows of a file of the data."""
    folder = os.environ.get("TOOLSPEC_DATA")
    if not folder:
        sys.exit("make accept: set TOOLSPEC_DATA to the folder that holds apibank_l1.jsonl")
    return load(f"chat:{Path(folder) / name}.jsonl", count)


def as_text(row: Row) -> Row:
    """The row with ``raw_system`` as the chat template writes it, for ``/generate``."""
    messages = request_for(row, Asking(prompt="raw_system")).body["messages"]
    ids = tokenizer().apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return Row(row.id, prompt=list(ids), tools=row.tools)


def prompt_ids(client: Client, request: Request) -> list[int]:
    """Of a ``/generate`` request its own, of a chat request as the server makes them."""
    if request.path != CHAT:
        return list(request.body["input_ids"])
    body = {key: value for key, value in request.body.items() if not key.startswith("stream")}
    headers = {"x-sglext-return-input-ids": "1"}
    reply = client.post(request.path, {**body, "max_tokens": 1}, headers=headers)
    return list(reply.json()["sglext"]["input_ids"])


@contextmanager
def serving(variant: Variant, dtype: str) -> Iterator[Client]:
    log = Path(tempfile.mkdtemp(prefix="sglang-toolspec-accept-")) / "server.log"
    flags = [*variant.flags, "--dtype", dtype, "--log-level", "warning"]
    with ServerProcess(str(cached()), flags, log) as server:
        yield Client(server)


@cache
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(cached()))
