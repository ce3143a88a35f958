"""``sglang-toolspec demo``: the same tool-calling requests with plain decoding and with TOOLSPEC."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sglang_toolspec import serve
from sglang_toolspec.errors import UserError
from sglang_toolspec.machine import machine
from sglang_toolspec.model import DEFAULT_MODEL, fetch
from sglang_toolspec.server_process import ServerProcess

ALGORITHMS = ("none", "toolspec")
MAX_TOKENS = 96
REQUEST_TIMEOUT_S = 300.0

console = Console(stderr=True)


@dataclass
class Run:
    """What one algorithm did with all requests."""

    algorithm: str
    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    verify_steps: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, reply: dict[str, Any]) -> None:
        message, meta = reply["choices"][0]["message"], reply["choices"][0]["meta_info"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
        self.texts.append(json.dumps([message.get("content"), calls]))
        self.tokens += meta["completion_tokens"]
        self.verify_steps += meta.get("spec_verify_ct") or meta["completion_tokens"]
        self.seconds += meta["e2e_latency"]

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def accept_length(self) -> float:
        return self.tokens / self.verify_steps if self.verify_steps else 0.0


def run_demo(model: str, requests_file: Path, limit: int = 1_000_000) -> bool:
    """Run, print the table and one JSON line; false when a reply failed."""
    tools, requests = _load(requests_file)
    requests = requests[:limit]
    folder = serve.resolve_model(model) if model else str(fetch(DEFAULT_MODEL))
    where = machine()
    dtype = "server default" if serve.has_accelerator() else serve.cpu_dtype()
    what = f"{len(requests)} requests, {len(tools)} tools"
    console.print(f"Model {Path(folder).name}, {dtype}; {what}; {where}")
    runs = [_run(algorithm, folder, tools, requests) for algorithm in ALGORITHMS]
    plain, ours = runs
    same = plain.texts == ours.texts and not any(run.failures for run in runs)
    console.print(_table(runs, plain, same))
    for run in runs:
        for failure in run.failures:
            console.print(f"[red]{run.algorithm}: {failure}[/red]")
    if not same and not any(run.failures for run in runs):
        differing = [i for i, (a, b) in enumerate(zip(plain.texts, ours.texts, strict=True)) if a != b]
        console.print(f"[yellow]Replies {differing} differ (see docs/serving.md, 'Same text').[/yellow]")
    print(json.dumps(_summary(runs, plain, same, Path(folder).name, dtype, where)))
    return not any(run.failures for run in runs)


def _load(path: Path) -> tuple[list[Any], list[Any]]:
    try:
        workload = json.loads(path.read_text())
        return workload["tools"], workload["requests"]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; pass --requests FILE") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} must be a JSON object with 'tools' and 'requests' ({error})") from error


def _run(algorithm: str, folder: str, tools: list[Any], requests: list[Any]) -> Run:
    run = Run(algorithm)
    log = Path(tempfile.gettempdir()) / f"sglang-toolspec-demo-{algorithm}.log"
    flags = ["--speculative-algorithm", algorithm, "--log-level", "warning"]
    server = ServerProcess(folder, flags, log)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(f"{algorithm}: starting the server", total=len(requests))
            server.start()
            progress.update(task, description=f"{algorithm}: replying")
            for request in requests:
                _ask_into(run, server.url, tools, request)
                progress.advance(task)
    finally:
        server.stop()
    return run


def _ask_into(run: Run, url: str, tools: list[Any], request: dict[str, Any]) -> None:
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": request["prompt"]}],
        "tools": tools,
        "tool_choice": request.get("tool_choice", "auto"),
        "temperature": 0,
        "return_meta_info": True,
    }
    try:
        # The first call brings the prompt into the prefix cache, so that the second
        # measures decoding.
        _ask(url, {**body, "max_tokens": 1})
        run.add(_ask(url, {**body, "max_tokens": MAX_TOKENS}))
    except (httpx.HTTPError, KeyError, ValueError) as error:
        run.failures.append(f"{request['prompt']!r}: {error}")
        run.texts.append("")


def _ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = httpx.post(url + "/v1/chat/completions", json=body, timeout=REQUEST_TIMEOUT_S)
    reply.raise_for_status()
    return reply.json()


def _table(runs: list[Run], plain: Run, same: bool) -> Table:
    table = Table(title="Tool calls, greedy decoding (prompt processing excluded)")
    columns: tuple[tuple[str, Callable[[Run], str]], ...] = (
        ("algorithm", lambda run: run.algorithm),
        ("tokens", lambda run: str(run.tokens)),
        ("verify steps", lambda run: str(run.verify_steps)),
        ("accept length", lambda run: f"{run.accept_length:.2f}"),
        ("tokens/s", lambda run: f"{run.tokens_per_s:.1f}"),
        ("speed-up", lambda run: f"{_speedup(run, plain):.2f}x"),
        ("same text", lambda run: "-" if run is plain else ("yes" if same else "no")),
    )
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "algorithm" else "right")
    for run in runs:
        table.add_row(*(show(run) for _, show in columns))
    return table


def _speedup(run: Run, plain: Run) -> float:
    return run.tokens_per_s / plain.tokens_per_s if plain.tokens_per_s else 0.0


def _summary(runs: list[Run], plain: Run, same: bool, model: str, dtype: str, where: str) -> dict[str, Any]:
    results = [
        {
            "algorithm": run.algorithm,
            "tokens": run.tokens,
            "verify_steps": run.verify_steps,
            "accept_length": round(run.accept_length, 3),
            "tokens_per_s": round(run.tokens_per_s, 2),
            "speedup": round(_speedup(run, plain), 3),
        }
        for run in runs
    ]
    return {"results": results, "same_text": same, "model": model, "dtype": dtype, "machine": where}
