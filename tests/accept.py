"""``make accept``: the long checks. Resumable; results go to ``docs/acceptance.json``.

Every answer is appended to a JSON-lines file under ``.accept/`` as soon as it is there, so an
interrupted run goes on where it stopped. ``python -m tests.accept --help`` lists the steps.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import sglang_toolspec  # noqa: F401 - the CPU engine, before SGLang
from sglang_toolspec.machine import machine
from sglang_toolspec.model import cached
from sglang_toolspec.runtime.tokens import TokenCodec
from sglang_toolspec.serve import cpu_dtype
from tests.answers import (
    MAX_NEW_TOKENS,
    ROOT,
    VARIANTS,
    Store,
    ask_body,
    ask_chat,
    ask_generate,
    console,
    fill,
    prompt_ids,
    rows,
    serving,
    tokenizer,
)
from tests.engine.client import first_difference
from tests.recorded import SOURCES, Reply, checksum, replayed

RESULT = ROOT / "docs" / "acceptance.json"
IDENTITY_ROWS = 30
FIGURE_ROWS = 60


def figures(count: int) -> dict[str, Any]:
    """Plain, NGRAM and TOOLSPEC on the first rows of apibank_l1 with ``raw_system``."""
    store, dtype = Store(f"figures-{cpu_dtype()}"), cpu_dtype()
    fill(store, "figures", count, dtype, ask_generate, VARIANTS)
    return summarise_figures(store, dtype, count)


def summarise_figures(store: Store, dtype: str, count: int) -> dict[str, Any]:
    table = {}
    plain_answers = store.answers("none")
    for name in VARIANTS:
        answers = list(store.answers(name).values())[:count]
        if not answers:
            continue
        tokens, seconds = sum(a["tokens"] for a in answers), sum(a["seconds"] for a in answers)
        table[name] = {
            "rows": len(answers),
            "tokens": tokens,
            "verify_steps": sum(a["steps"] for a in answers),
            "accept_length": round(tokens / sum(a["steps"] for a in answers), 3),
            "tokens_per_s": round(tokens / seconds, 2),
            "same_as_plain": sum(
                a["output_ids"] == plain_answers[row]["output_ids"]
                for row, a in store.answers(name).items()
                if row in plain_answers
            ),
            "cold_starts": sum(a["cold"] for a in answers),
            "median_step_ms": round(median(1000 * a["seconds"] / a["steps"] for a in answers), 1),
        }
    plain = table.get("none", {}).get("tokens_per_s")
    for entry in table.values():
        entry["speedup"] = round(entry["tokens_per_s"] / plain, 3) if plain else None
    complete = all(table.get(n, {}).get("rows") == count for n in VARIANTS)
    return {"dtype": dtype, "rows": count, "complete": complete, "algorithms": table}


def identity(count: int) -> dict[str, Any]:
    """Float32, greedy: token ids with TOOLSPEC are those without, by both APIs."""
    pair = {name: VARIANTS[name] for name in ("none", "toolspec")}
    generate = Store("figures-float32")
    fill(generate, "identity, /generate", count, "float32", ask_generate, pair)
    chat = Store("chat-float32")
    fill(chat, "identity, OpenAI API", count, "float32", ask_chat, pair)
    differing = []
    for api, store in (("generate", generate), ("chat", chat)):
        for row in rows(count):
            plain, ours = (store.answers(name)[row["id"]] for name in pair)
            if plain["output_ids"] != ours["output_ids"]:
                prompt = plain.get("input_ids") or prompt_ids(row)
                differing.append((api, row["id"], prompt, plain["output_ids"], ours["output_ids"]))
    ties, faults = [], []
    if differing:
        with serving(str(cached()), pair["none"], "float32") as client:
            for api, row_id, prompt, plain_ids, our_ids in differing:
                found = first_difference(client, prompt, plain_ids, our_ids)
                entry = {"api": api, "row": row_id, **asdict(found)}
                (ties if found.is_tie else faults).append(entry)
    ok = not faults
    return {"ok": ok, "dtype": "float32", "rows_per_api": count, "ties": ties, "mismatches": faults}


def recorded(_: int) -> dict[str, Any]:
    """Greedy replies recorded from the server, replayed with the schema drafter alone."""
    store = Store("recorded-float32")
    requests = list(recording_requests())
    missing = [r for r in requests if r["key"] not in store.answers("toolspec")]
    if missing:
        with serving(str(cached()), VARIANTS["toolspec"], "float32") as client, ThreadPoolExecutor(8) as pool:
            for request, answer in zip(
                missing, pool.map(lambda r: ask_body(client, r["body"]), missing), strict=True
            ):
                store.add("toolspec", request["key"], answer)
                console.print(f"recorded {request['key']}")
    answers = store.answers("toolspec")
    replies = [
        Reply(
            r["kind"],
            r["body"]["tools"],
            r["body"]["tool_choice"] == "required",
            answers[r["key"]]["output_ids"],
        )
        for r in requests
    ]
    raw_system = Store("figures-float32").answers("none")
    replies += [
        Reply("apibank raw_system", row["tools"], False, raw_system[row["id"]]["output_ids"])
        for row in rows(FIGURE_ROWS)
        if row["id"] in raw_system
    ]
    return summarise_recorded(replies)


def recording_requests() -> Iterator[dict[str, Any]]:
    """OpenAI chat requests with ``key``, ``kind`` and ``body``."""
    for source, (auto, required) in SOURCES.items():
        lines = (Path(os.environ["TOOLSPEC_DATA"]) / f"{source}.jsonl").read_text().splitlines()
        for choice, count in (("auto", auto), ("required", required)):
            for row in map(json.loads, lines[:count]):
                body = {
                    "model": "m", "messages": row["messages"], "tools": row["tools"],
                    "tool_choice": choice, "temperature": 0, "max_tokens": MAX_NEW_TOKENS,
                }  # fmt: skip
                yield {"key": f"{source}/{choice}/{row['id']}", "kind": f"{source} {choice}", "body": body}


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
    return {"checksum": checksum(replies), "width": 32, "replies": table}


def prefill(repeats: int) -> dict[str, Any]:
    """Attention of an extend, ours against stock ``torch_native``: median time ratio (below 1 is faster)."""
    import torch
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    from sglang_toolspec.runtime.engine.cpu.attention import extend_attention

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
            return extend_attention(q, kv[0][table[0]], kv[1][table[0]], dim**-0.5, True, None)

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

STEPS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "identity": (identity, IDENTITY_ROWS),
    "figures": (figures, FIGURE_ROWS),
    "recorded": (recorded, 0),
    "prefill": (prefill, 30),
    "wheel": (wheel, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The long checks; resumable.")
    parser.add_argument("steps", nargs="*", default=list(STEPS), help=f"some of {', '.join(STEPS)}")
    parser.add_argument("--rows", type=int, help="fewer rows than the full check")
    chosen = parser.parse_args()
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in chosen.steps:
        run, count = STEPS[name]
        began = time.monotonic()
        outcome = run(chosen.rows or count)
        results[name] = {
            **outcome,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "minutes": round((time.monotonic() - began) / 60, 1),
            "machine": machine(),
            "model": Path(str(cached())).name,
            "versions": {p: version(p) for p in ("sglang-toolspec", "sglang", "torch", "xgrammar")},
        }
        RESULT.write_text(json.dumps(results, indent=2) + "\n")
        console.print(json.dumps(outcome))
    failed = [name for name in chosen.steps if results[name].get("ok") is False]
    sys.exit(f"make accept: {', '.join(failed)} failed, see {RESULT}" if failed else 0)


if __name__ == "__main__":
    main()
