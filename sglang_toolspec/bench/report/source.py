"""What was measured, read back from the folders of ``bench run``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from sglang_toolspec.bench.draft_models import sentence
from sglang_toolspec.bench.output import MANIFEST, SUMMARY, Output, Record
from sglang_toolspec.bench.plan import Key, Pass
from sglang_toolspec.bench.summary import Result, results, rounded
from sglang_toolspec.bench.variants import ALGORITHMS, PLAIN, WITHOUT, Variant
from sglang_toolspec.errors import UserError

MAX_CHARTED = 8
"""Variants in one chart."""


@dataclass(frozen=True, eq=False)
class Part:
    """One workload at one concurrency. ``records`` by variant, as asked; ``results`` the fastest first."""

    run: Run
    workload: str
    concurrency: int
    records: Mapping[str, Sequence[Record]]
    results: Sequence[Result]

    @property
    def rows(self) -> int:
        return max(result["n"] for result in self.results)

    @cached_property
    def charted(self) -> list[Result]:
        """Of the first speculative variants, in the order of the run; those of an ablation apart."""
        order = list(self.records)
        found = [r for r in self.results if r["algorithm"] != PLAIN and WITHOUT not in r["variant"]]
        return sorted(found, key=lambda result: order.index(result["variant"]))[:MAX_CHARTED]

    @property
    def plain(self) -> Sequence[Record]:
        return self.records.get(PLAIN, ())


@dataclass(frozen=True, eq=False)
class Run:
    """One folder. ``unfinished``: why its figures are not the last word; empty where they are."""

    name: str
    manifest: Mapping[str, Any]
    variants: Sequence[Variant]
    unfinished: str
    parts: Sequence[Part]

    @property
    def model(self) -> str:
        return str(self.manifest["settings"]["model"])

    @property
    def draft_models(self) -> list[str]:
        """A sentence on each."""
        told = self.manifest.get("draft_models", {})
        return [sentence(variant, of) for variant, of in told.items()]

    @property
    def history(self) -> str:
        return str(self.manifest["settings"]["history"])

    @property
    def streams_every_step(self) -> bool:
        flags = list(self.manifest["settings"]["server_flags"])
        return ("--stream-interval", "1") in pairwise(flags)

    def at(self, workload: str) -> list[Part]:
        """By concurrency."""
        return [part for part in self.parts if part.workload == workload]


def read(folder: Path) -> Run:
    """All that a folder holds. Raises ``UserError`` where that is no benchmark."""
    if not (folder / MANIFEST).is_file():
        raise UserError(f"{folder} holds no benchmark; give a folder that bench run has written")
    with Output(folder) as output:
        manifest = output.manifest() or {}
        names = sorted(manifest["code"], key=lambda name: ALGORITHMS.index(_algorithm(name)))
        records = {name: output.records(name) for name in names}
    variants = [Variant(name, _algorithm(name), ()) for name in names if records[name]]
    parts: list[Part] = []
    run = Run(folder.resolve().name, manifest, variants, _unfinished(folder), parts)
    passes = _passes(records)
    greedy = manifest["settings"]["asking"]["temperature"] == 0
    found: dict[tuple[str, int], list[Result]] = {}
    for result in rounded(results(variants, records, passes, greedy)):
        found.setdefault((result["workload"], result["concurrency"]), []).append(result)
    for (workload, concurrency), of in found.items():
        chosen = {v.name: _chosen(records[v.name], workload, concurrency) for v in variants}
        kept = {name: rows for name, rows in chosen.items() if rows}
        parts.append(Part(run, workload, concurrency, kept, of))
    return run


def _algorithm(variant: str) -> str:
    name = variant.partition("-")[0]
    if name not in ALGORITHMS:
        raise UserError(f"'{variant}' is no variant that this version knows; report with the one that ran it")
    return name


def _passes(records: Mapping[str, Mapping[Key, Record]]) -> list[Pass]:
    """Over all that any variant has answered."""
    rows: dict[tuple[str, int, int], dict[str, None]] = {}
    for of in records.values():
        for key in of:
            rows.setdefault((key.workload, key.concurrency, key.repeat), {})[key.row] = None
    return [Pass(*at, salt="", rows=tuple(of)) for at, of in sorted(rows.items(), key=lambda e: e[0][1:])]


def _chosen(records: Mapping[Key, Record], workload: str, concurrency: int) -> list[Record]:
    return [r for key, r in records.items() if (key.workload, key.concurrency) == (workload, concurrency)]


def _unfinished(folder: Path) -> str:
    """By the summary of the last run."""
    try:
        summary = json.loads((folder / SUMMARY).read_text())
        if failed := int(summary["failed"]):
            return f"{failed} requests failed in the last run and are in no figure"
        return "" if summary["complete"] else "not everything that was asked for is measured yet"
    except FileNotFoundError:
        return "the run has not ended yet"
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{folder / SUMMARY} is damaged ({error!r}); run the benchmark again") from error
