"""``make accept``: the long checks. Resumable; results go to ``docs/acceptance.json``.

The servers are asked by the benchmark (``sglang_toolspec.bench``), which keeps every answer under
``.accept/`` as soon as it is there, so an interrupted run goes on where it stopped.
``python -m tests.accept --help`` lists the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import sglang_toolspec  # noqa: F401 - the CPU engine, before SGLang
from sglang_toolspec.bench.request import Asking
from sglang_toolspec.bench.show import console
from sglang_toolspec.bench.variants import ngram, toolspec, variants
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.machine import machine
from sglang_toolspec.model import cached
from sglang_toolspec.runtime.tokens import TokenCodec
from sglang_toolspec.serve import cpu_dtype
from tests import streams
from tests.answers import EIGHT_IN_FLIGHT, ROOT, answers, data, measured, tokenizer
from tests.recorded import SOURCES, Reply, checksum, replayed
from tests.same_replies import PAIR, identity, required

RESULT = ROOT / "docs" / "acceptance.json"
IDENTITY_ROWS = 30
WIDTH_ROWS = 60
HEAD = ROOT / ".accept" / "eagle-head"
UNSEEN_FROM = 200
LEAST_ACCEPT_LENGTH = 1.6
REQUIRED_ROWS = 200
RECORDED_REPLIES = 200
MOST_MISSED = 0.03
"""Of skeleton tokens: those that cost a verify step of their own."""


def widths(count: int) -> dict[str, Any]:
    """NGRAM by draft tokens, beside plain decoding and TOOLSPEC, on the first rows of apibank_l1."""
    dtype, compared = cpu_dtype(), [*PAIR, *map(ngram, (16, 12, 8))]
    summary = measured("widths", dtype, compared, [data("apibank_l1", count)], Asking())
    return {"dtype": dtype, "rows": count, "complete": summary["complete"], "results": summary["results"]}


def recorded(_: int) -> dict[str, Any]:
    """Greedy replies recorded from the server, replayed with the schema drafter alone."""
    workloads = {}
    for source, counts in SOURCES.items():
        for choice, count in zip(("auto", "required"), counts, strict=True):
            rows = tuple(replace(row, tool_choice=choice) for row in data(source, count).rows)
            workloads[f"{source} {choice}"] = Workload(f"{source}-{choice}", rows)
    ours = toolspec()
    measured("recorded", "float32", [ours], list(workloads.values()), Asking(prompt="tools"), EIGHT_IN_FLIGHT)
    by_row = {(key.workload, key.row): r["output_ids"] for key, r in answers("recorded", ours).items()}
    replies = [
        Reply(kind, row.tools, row.tool_choice == "required", by_row[workload.name, row.id])
        for kind, workload in workloads.items()
        for row in workload.rows
    ]
    raw_system = {key.row: r["output_ids"] for key, r in answers("identity-generate", PAIR[0]).items()}
    replies += [
        Reply("apibank raw_system", row.tools, False, raw_system[row.id])
        for row in data("apibank_l1", IDENTITY_ROWS).rows
        if row.id in raw_system
    ]
    return summarise_recorded(replies)


def summarise_recorded(replies: list[Reply]) -> dict[str, Any]:
    codec = TokenCodec(tokenizer(), len(tokenizer()), {tokenizer().eos_token_id})
    table = {}
    for kind in ["all", *sorted({r.kind for r in replies})]:
        chosen = [r for r in replies if kind in ("all", r.kind)]
        total, skeleton = replayed(chosen, codec, width=32)
        table[kind] = {
            "replies": len(chosen),
            "calls": skeleton.calls,
            "accept_length": round(total.accept_length, 3),
            "steps_per_call": round(skeleton.steps / max(1, skeleton.calls), 2),
            "bound_per_call": round(skeleton.bound / max(1, skeleton.calls), 2),
            "skeleton_tokens": skeleton.skeleton,
            "missed_share": round(skeleton.missed / max(1, skeleton.skeleton), 4),
            "missed_without_tool_choice": round(
                (skeleton.missed - skeleton.choices_missed) / max(1, skeleton.skeleton), 4
            ),
        }
    whole = len(replies) >= RECORDED_REPLIES and table["all"]["missed_share"] <= MOST_MISSED
    return {"ok": whole, "checksum": checksum(replies), "width": 32, "replies": table}


def eagle(count: int) -> dict[str, Any]:
    """A head trained on replies to earlier rows, on ``count`` rows of apibank_l1 that it never saw."""
    if not HEAD.is_dir():
        return {"skipped": f"no head in {HEAD.relative_to(ROOT)}: see examples/train_eagle_head.py"}
    (drafting,) = variants(["eagle"], [], [], [], {"eagle": str(HEAD)})
    rows = data("apibank_l1", UNSEEN_FROM + count).rows[UNSEEN_FROM:]
    compared = [PAIR[0], ngram(16), drafting, toolspec("paper"), toolspec()]
    unseen = Workload("apibank_l1-unseen", rows)
    summary = measured("eagle", cpu_dtype(), compared, [unseen], Asking())
    accept_length = next(r["accept_length"] for r in summary["results"] if r["variant"] == drafting.name)
    told = summary["draft_models"][drafting.name]
    return {
        "ok": accept_length >= LEAST_ACCEPT_LENGTH,
        "rows": len(rows),
        "draft_models": {drafting.name: {**told, "model": str(HEAD.relative_to(ROOT))}},
        "results": summary["results"],
    }


def prefill(repeats: int) -> dict[str, Any]:
    """Attention of an extend, ours against stock ``torch_native``: median time ratio (below 1 is faster)."""
    import torch
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    from sglang_toolspec.runtime.engine.cpu.attention import attention, extend_sight

    heads, kv_heads, dim, ratios = 14, 2, 64, {}
    for prefix, rows_ in ((0, 256), (0, 1024), (768, 256)):
        total = prefix + rows_
        query = torch.randn(rows_, heads, dim)
        cache = torch.randn(2, total, kv_heads, dim)
        slots = torch.arange(total)[None]
        lengths = [torch.tensor([n]) for n in (total, prefix, rows_)]

        def stock(q: Any = query, kv: Any = cache, table: Any = slots, n: Any = lengths) -> Any:
            run = TorchNativeAttnBackend._run_sdpa_forward_extend
            out = torch.empty_like(q)
            return run(None, q, out, kv[0], kv[1], table, torch.tensor([0]), *n,
                       scaling=dim**-0.5, enable_gqa=True, causal=True)  # fmt: skip

        def ours(q: Any = query, kv: Any = cache, table: Any = slots) -> Any:
            sight = extend_sight(len(q), len(table[0]), True, None)
            return attention(q, *kv.index_select(1, table[0]), sight, dim**-0.5)

        assert torch.allclose(stock(), ours(), atol=1e-4)
        times: dict[str, list[float]] = {"stock": [], "ours": []}
        for _ in range(repeats):
            for name, call in (("stock", stock), ("ours", ours)):
                began = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - began)
        ratios[f"prefix {prefix}, new {rows_}"] = round(median(times["ours"]) / median(times["stock"]), 3)
    return {"time_ratio_ours_to_stock": ratios, "repeats": repeats}


def wheel(_: int) -> dict[str, Any]:
    """The built wheel in a new environment, away from the source tree: check, then one request."""
    with tempfile.TemporaryDirectory(prefix="toolspec-wheel-") as scratch:
        folder = Path(scratch)
        subprocess.run([sys.executable, "-m", "build", "-q", "-o", str(folder), str(ROOT)], check=True)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        built = str(next(folder.glob("*.whl")))
        subprocess.run([str(python), "-m", "pip", "install", "-q", built], check=True, cwd=folder)
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command = [str(python), "-m", "sglang_toolspec.cli", "check", "--json"]
        checked = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
        report = json.loads(checked.stdout.strip().splitlines()[-1])
        served = subprocess.run(
            [str(python), "-c", _SERVE_ONE, str(cached())],
            capture_output=True, text=True, cwd=folder, env=env, check=False,
        )  # fmt: skip
        return {
            "ok": report["ok"] and served.returncode == 0,
            "check_ok": report["ok"],
            "served": served.returncode == 0,
            "reply": served.stdout.strip().splitlines()[-1:] or served.stderr.strip().splitlines()[-1:],
        }


_SERVE_ONE = """
import sys, httpx
from pathlib import Path
from sglang_toolspec.server_process import ServerProcess
with ServerProcess(sys.argv[1], [], Path("server.log")) as server:
    tools = [{"type": "function", "function": {"name": "get_time", "parameters": {
        "type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}}]
    body = {"model": "m", "tools": tools, "tool_choice": "required", "temperature": 0, "max_tokens": 60,
            "return_meta_info": True, "messages": [{"role": "user", "content": "What time is it in Lima?"}]}
    reply = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=300).json()["choices"][0]
    call = reply["message"]["tool_calls"][0]["function"]
    print(call["name"], call["arguments"], reply["meta_info"]["spec_accept_length"])
"""


def long_tests(_: int) -> dict[str, Any]:
    """The tests that ``make test`` leaves out for the time they take."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "long", str(ROOT / "tests")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {"ok": done.returncode == 0, "result": done.stdout.strip().splitlines()[-1:]}


STEPS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "identity": (identity, IDENTITY_ROWS),
    "widths": (widths, WIDTH_ROWS),
    "required": (required, REQUIRED_ROWS),
    "recorded": (recorded, 0),
    "prefill": (prefill, 30),
    "eagle": (eagle, 40),
    "long": (long_tests, 0),
    "wheel": (wheel, 0),
}
STREAM_STEPS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "stream": (streams.stream, 399),
    "stream-ngram": (streams.ngram_stream, 399),
    "stream-widths": (streams.widths_of_stream, 399),
    "little": (streams.little, 50),
    "little-required": (streams.little_required, 50),
    "repeated": (streams.repeated, 120),
    "chat": (streams.chat, 30),
    "paper": (streams.paper, 60),
}
"""Up to four hours each, so only those that are named run."""


def commit() -> str:
    """Of the code that was measured; ``-dirty`` where it is not all committed."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="The long checks; resumable.")
    known = STEPS | STREAM_STEPS
    told = f"by default {', '.join(STEPS)}; besides {', '.join(STREAM_STEPS)}, which take hours each"
    parser.add_argument("steps", nargs="*", default=list(STEPS), metavar="STEP", help=told)
    parser.add_argument("--rows", type=int, help="fewer rows than the full check")
    chosen = parser.parse_args()
    if unknown := next((name for name in chosen.steps if name not in known), None):
        parser.error(f"unknown step '{unknown}'; known are {', '.join(known)}")
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in chosen.steps:
        run, count = known[name]
        began = time.monotonic()
        outcome = run(chosen.rows or count)
        results[name] = {
            **outcome,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "minutes": round((time.monotonic() - began) / 60, 1),
            "machine": machine(),
            "commit": commit(),
            "model": Path(str(cached())).name,
            "versions": {p: version(p) for p in ("sglang-toolspec", "sglang", "torch", "xgrammar")},
        }
        RESULT.write_text(json.dumps(results, indent=2) + "\n")
        console.print(json.dumps(outcome))
    failed = [name for name in chosen.steps if results[name].get("ok") is False]
    sys.exit(f"make accept: {', '.join(failed)} failed, see {RESULT}" if failed else 0)


if __name__ == "__main__":
    main()
