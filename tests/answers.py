"""Answers of servers to rows of the data: asked row by row, kept in files, resumable."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from sglang_toolspec.model import cached
from sglang_toolspec.server_process import ServerProcess
from tests.engine.client import Client
from tests.engine.prompts import apibank_messages

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".accept"
MAX_NEW_TOKENS = 200
AT_ONCE = 2
"""Servers that run together and answer each row in turn, so that drift of the machine meets all
of them and the stream of rows is whole; more do not fit into 24 GB."""

VARIANTS = {
    "none": ["--speculative-algorithm", "none"],
    "toolspec": ["--speculative-algorithm", "TOOLSPEC"],
    **{
        f"ngram-{n}": ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(n)]
        for n in (16, 12, 8)
    },
}

console = Console(stderr=True)


@cache
def fingerprint(variant: str) -> str:
    """Of the code that decides a variant's replies and their speed, of SGLang, and of the model.

    SGLang's own algorithms see only our CPU engine and hooks, so a change to a drafter leaves
    their answers valid.
    """
    engine = ROOT / "runtime" / "engine"
    tops = [ROOT / "grammars", ROOT / "runtime"] if variant == "toolspec" else [engine / "cpu"]
    paths = {path for top in tops for path in top.rglob("*.py")} | {engine / "hooks.py"}
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    digest.update(f"{version('sglang')} {cached()}".encode())
    return digest.hexdigest()[:12]


class Store:
    """Finished answers of one step, by variant and row; appended to a file line by line.

    Each file belongs to one ``fingerprint``: other code starts afresh.
    """

    def __init__(self, name: str):
        STATE.mkdir(exist_ok=True)
        self._name = name
        self._done: dict[str, dict[str, dict[str, Any]]] = {}

    def answers(self, variant: str) -> dict[str, dict[str, Any]]:
        """Of the rows answered so far, by row id."""
        if variant not in self._done:
            path = self._path(variant)
            lines = path.read_text().splitlines() if path.exists() else []
            self._done[variant] = {entry["row"]: entry for entry in map(json.loads, lines)}
        return self._done[variant]

    def add(self, variant: str, row: str, answer: dict[str, Any]) -> None:
        self.answers(variant)[row] = answer
        with self._path(variant).open("a") as out:
            out.write(json.dumps({"row": row, **answer}) + "\n")

    def _path(self, variant: str) -> Path:
        return STATE / f"{self._name}-{variant}-{fingerprint(variant)}.jsonl"


def rows(count: int) -> list[dict[str, Any]]:
    folder = os.environ.get("TOOLSPEC_DATA")
    if not folder:
        sys.exit("make accept: set TOOLSPEC_DATA to the folder that holds apibank_l1.jsonl")
    with (Path(folder) / "apibank_l1.jsonl").open() as lines:
        return [json.loads(line) for _, line in zip(range(count), lines, strict=False)]


@contextmanager
def serving(model: str, flags: list[str], dtype: str) -> Iterator[Client]:
    log = Path(tempfile.mkdtemp(prefix="sglang-toolspec-accept-")) / "server.log"
    with ServerProcess(model, [*flags, "--dtype", dtype, "--log-level", "warning"], log) as server:
        yield Client(server)


def fill(
    store: Store,
    kind: str,
    count: int,
    dtype: str,
    ask: Callable[..., dict[str, Any]],
    variants: dict[str, list[str]],
) -> None:
    """Ask every variant for the rows that are missing, a few servers at once, row by row in turn."""
    names = list(variants)
    for together in (names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)):
        missing = {n: [r["id"] for r in rows(count) if r["id"] not in store.answers(n)] for n in together}
        with ExitStack() as stack:
            clients = {
                name: stack.enter_context(serving(str(cached()), variants[name], dtype))
                for name in together
                if missing[name]
            }
            for row in rows(count):
                for name, client in clients.items():
                    if row["id"] in missing[name]:
                        answer = ask(client, row, name)
                        answer["cold"] = row["id"] == missing[name][0]
                        store.add(name, row["id"], answer)
                        console.print(f"{kind}: {name} {row['id']}")


def ask_generate(client: Client, row: dict[str, Any], variant: str) -> dict[str, Any]:
    """One row through ``/generate``, decoding time without the prompt's."""
    ids = prompt_ids(row)
    tools = row["tools"] if variant == "toolspec" else None
    client.generate(ids, tools, max_new_tokens=1)
    reply = client.generate(ids, tools, max_new_tokens=MAX_NEW_TOKENS)
    meta = reply["meta_info"]
    return {
        "output_ids": reply["output_ids"],
        "tokens": meta["completion_tokens"],
        "steps": meta.get("spec_verify_ct") or meta["completion_tokens"],
        "seconds": meta["e2e_latency"],
    }


def ask_chat(client: Client, row: dict[str, Any], variant: str) -> dict[str, Any]:
    """One row through the OpenAI API with its tools."""
    body = {
        "model": "m",
        "messages": row["messages"],
        "tools": row["tools"],
        "temperature": 0,
        "max_tokens": MAX_NEW_TOKENS,
    }
    return ask_body(client, body)


def ask_body(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(
        "/v1/chat/completions",
        body,
        headers={"x-sglext-return-output-ids": "1", "x-sglext-return-input-ids": "1"},
    ).json()
    return {"output_ids": reply["sglext"]["output_ids"][0], "input_ids": reply["sglext"]["input_ids"]}


def prompt_ids(row: dict[str, Any]) -> list[int]:
    return tokenizer().apply_chat_template(
        apibank_messages(row), add_generation_prompt=True, return_dict=False
    )


@cache
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(cached()))
