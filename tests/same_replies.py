"""Steps of ``make accept`` that ask plain decoding and TOOLSPEC the same: in float32 they say the same."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from sglang_toolspec.bench.request import Asking, request_for
from sglang_toolspec.bench.variants import plain, toolspec
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.serve import PARSER_OF_MODEL_TYPE
from tests.answers import EIGHT_IN_FLIGHT, answers, as_text, data, measured, prompt_ids, serving, tokenizer
from tests.engine.client import first_difference
from tests.forced import fault, forced

PAIR = (plain(), toolspec())

Asked = dict[str, tuple[list[Workload], Asking]]
"""Workloads, and how they are asked, by the name under which the answers are kept."""


def identity(count: int) -> dict[str, Any]:
    """Float32, greedy: token ids with TOOLSPEC are those without, by both APIs."""
    rows = data("apibank_l1", count)
    texts = Workload("apibank_l1", tuple(map(as_text, rows.rows)))
    asked: Asked = {
        "identity-generate": ([texts], Asking()),
        "identity-chat": ([rows], Asking(prompt="tools")),
    }
    for name, (workloads, asking) in asked.items():
        measured(name, "float32", PAIR, workloads, asking)
    ties, faults = differences(asked)
    return {"ok": not faults, "dtype": "float32", "rows_per_api": count, "ties": ties, "mismatches": faults}


def differences(asked: Asked) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Where replies in float32 part: at ties of the logits, and elsewhere."""
    differing = []
    for name, (workloads, asking) in asked.items():
        requests = {(w.name, row.id): request_for(row, asking) for w in workloads for row in w.rows}
        expected, got = (answers(name, variant) for variant in PAIR)
        for key in expected:
            request = requests.get((key.workload, key.row))
            if request and expected[key]["output_ids"] != got[key]["output_ids"]:
                where = {"name": name, "workload": key.workload, "row": key.row}
                differing.append((where, request, expected[key]["output_ids"], got[key]["output_ids"]))
    ties: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    if differing:
        with serving(PAIR[0], "float32") as client:
            for where, request, plain_ids, our_ids in differing:
                found = first_difference(client, prompt_ids(client, request), plain_ids, our_ids)
                (ties if found.is_tie else faults).append({**where, **asdict(found)})
    return ties, faults


def required(count: int) -> dict[str, Any]:
    """Strict tools, a forced call, float32, greedy: replies parse and validate, the same with TOOLSPEC.

    A reply that its limit cuts off, as of a model that goes on calling, is listed besides.
    """
    shares = {"bfcl_simple": count, "bfcl_parallel": math.ceil(count * 0.3)}
    workloads = [Workload(name, tuple(map(forced, data(name, rows).rows))) for name, rows in shares.items()]
    asked: Asked = {"required": (workloads, Asking(prompt="tools", max_new_tokens=400))}
    measured("required", "float32", PAIR, *asked["required"], EIGHT_IN_FLIGHT)
    ties, mismatches = differences(asked)
    invalid, cut_off = [], []
    for variant in PAIR:
        kept = answers("required", variant)
        replies = {(key.workload, key.row): record for key, record in kept.items()}
        for workload in workloads:
            for row in workload.rows:
                reply = replies[workload.name, row.id]
                where = {"algorithm": variant.name, "workload": workload.name, "row": row.id}
                if why := fault(row, reply["output_ids"], tokenizer(), PARSER_OF_MODEL_TYPE["qwen2"]):
                    invalid.append({**where, "fault": why})
                if reply["finish"] == "length":
                    cut_off.append(where)
    return {
        "ok": not (invalid or mismatches),
        "dtype": "float32",
        "rows": shares,
        "invalid": invalid,
        "cut_off": cut_off,
        "ties": ties,
        "mismatches": mismatches,
    }
