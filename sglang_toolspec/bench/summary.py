"""Figures from measurements. Failed requests are no measurements and are in none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.bench.output import Record
from sglang_toolspec.bench.plan import Key, Pass
from sglang_toolspec.bench.variants import PLAIN, Variant

RESAMPLES = 2000
CONFIDENCE = 0.95
SHOWN_DIFFERING = 20
_MAX_DRAWN = 1 << 18
"""Rows that are drawn at once, which bounds the memory of an interval."""

Result = dict[str, Any]


def results(
    variants: Sequence[Variant],
    records: Mapping[str, Mapping[Key, Record]],
    passes: Sequence[Pass],
    greedy: bool,
) -> list[Result]:
    """One for each workload, concurrency and variant, by workload as asked, the fastest variant first.

    ``records`` by variant. Replies are compared with plain decoding where they are ``greedy``.
    """
    found: list[Result] = []
    for workload, concurrency in dict.fromkeys((p.workload, p.concurrency) for p in passes):
        streams = [p for p in passes if (p.workload, p.concurrency) == (workload, concurrency)]
        planned = {v: [p.key(row) for p in streams for row in p.rows_of(not v.speculative)] for v in variants}
        measured = {v: _chosen(records[v.name], planned[v]) for v in variants}
        block = [
            {"algorithm": v.algorithm, "variant": v.name, "workload": workload, "concurrency": concurrency}
            | _result(v, measured, len(planned[v]), greedy)
            for v in variants
            if measured[v]
        ]
        found += sorted(block, key=lambda result: result["tokens_per_s"] or 0.0, reverse=True)
    return found


def _chosen(records: Mapping[Key, Record], planned: Iterable[Key]) -> dict[Key, Record]:
    return {key: records[key] for key in planned if key in records}


def _result(
    variant: Variant, measured: Mapping[Variant, Mapping[Key, Record]], planned: int, greedy: bool
) -> Result:
    mine = measured[variant]
    plain = next((of for v, of in measured.items() if v.algorithm == PLAIN), {})
    speeds = {v.name: ratio(mine.values(), of.values()) for v, of in measured.items() if of and v != variant}
    over_plain = (1.0, (1.0, 1.0)) if variant.algorithm == PLAIN else speeds.get(PLAIN)
    return {
        "n": len(mine),
        "complete": len(mine) == planned,
        **_totals(variant, list(mine.values())),
        "speedup": over_plain and over_plain[0],
        "speedup_ci": over_plain and list(over_plain[1]),
        "speed_over": {name: {"ratio": r[0], "ci": list(r[1])} for name, r in speeds.items() if r},
        **_agreement(mine, plain if greedy else {}),
    }


def _totals(variant: Variant, records: Sequence[Record]) -> Result:
    tokens, steps = _sum(records, "tokens"), _sum(records, "steps")
    decode_tokens, decode_s = _sum(records, "decode_tokens"), _sum(records, "decode_s")
    per_token = [r["decode_s"] / r["decode_tokens"] for r in records if r["decode_tokens"] > 0]
    per_step = [r["decode_s"] / _decode_steps(variant, r) for r in records if r["decode_tokens"] > 0]
    hosts = [(r["host_us_per_step"], r["steps"]) for r in records if r.get("host_us_per_step") is not None]
    return {
        "tokens": tokens,
        "steps": steps,
        "accept_length": tokens / steps,
        "tokens_per_s": decode_tokens / decode_s if decode_s else None,
        "throughput": tokens / _busy_s(records),
        "tpot_ms": _spread(per_token),
        "step_ms": _spread(per_step),
        "ttft_ms": _spread([r["ttft_s"] for r in records]),
        "e2e_ms": _spread([r["e2e_s"] for r in records]),
        "accept_histogram": _histogram(r["accept_histogram"] for r in records),
        "proposed": _by_source(records, "proposed"),
        "accepted": _by_source(records, "accepted"),
        "host_us_per_step": sum(us * n for us, n in hosts) / sum(n for _, n in hosts) if hosts else None,
        "truncated_share": sum(r["finish"] == "length" for r in records) / len(records),
        "cold_starts": _starts(records),
    }


def ratio(
    mine: Iterable[Record], base: Iterable[Record], resamples: int = RESAMPLES
) -> tuple[float, tuple[float, float]] | None:
    """Decoding speed of ``mine`` over that of ``base`` on the rows of both, with a confidence interval.

    Repeats of a row are summed; rows are resampled in pairs, so that what a row costs both cancels. ``None``
    without such rows or without any time.
    """
    sums, base_sums = sums_by_row(mine), sums_by_row(base)
    rows = [row for row in sums if row in base_sums]
    if not rows:
        return None
    pairs = np.array([[sums[row], base_sums[row]] for row in rows])  # [rows, mine or base, tokens or seconds]
    if not (pairs.sum(axis=0) > 0).all():
        return None
    quotients = _quotients(_resampled(pairs, resamples))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(quotients, [tail, 100 - tail])
    return float(_quotients(pairs.sum(axis=0))), (float(low), float(high))


def _resampled(pairs: NDArray[np.float64], resamples: int) -> NDArray[np.float64]:
    """Sums of as many rows as there are, drawn with replacement: ``[resamples, 2, 2]``."""
    rng = np.random.default_rng(0)  # the same measurements give the same interval
    sums = np.empty((resamples, *pairs.shape[1:]))
    at_once = max(1, _MAX_DRAWN // len(pairs))
    for start in range(0, resamples, at_once):
        part = sums[start : start + at_once]
        part[:] = pairs[rng.integers(len(pairs), size=(len(part), len(pairs)))].sum(axis=1)
    return sums


def _quotients(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens per second of mine by those of base, from ``[..., 2, 2]``; not a number without time."""
    with np.errstate(divide="ignore", invalid="ignore"):
        speeds = sums[..., 0] / sums[..., 1]
        found = speeds[..., 0] / speeds[..., 1]
    return np.where(np.isfinite(found), found, np.nan)


def sums_by_row(records: Iterable[Record]) -> dict[str, tuple[float, float]]:
    """Tokens and seconds of decoding."""
    sums: dict[str, tuple[float, float]] = {}
    for record in records:
        tokens, seconds = sums.get(record["row"], (0.0, 0.0))
        sums[record["row"]] = (tokens + record["decode_tokens"], seconds + record["decode_s"])
    return sums


def _agreement(mine: Mapping[Key, Record], plain: Mapping[Key, Record]) -> Result:
    """Share of replies with plain decoding's token ids, and rows that differ."""
    shared = [key for key in mine if key in plain]
    differing = [key for key in shared if mine[key]["output_ids"] != plain[key]["output_ids"]]
    return {
        "identical_share": 1 - len(differing) / len(shared) if shared else None,
        "differing": len(differing),
        "differing_rows": [key.row for key in differing[:SHOWN_DIFFERING]],
    }


def _busy_s(records: Iterable[Record]) -> float:
    """Seconds in which a server was busy: of each block, from the first sending to the last token."""
    blocks: dict[tuple[float, int], list[Record]] = {}
    for record in records:
        blocks.setdefault((record["server_start"], record["block"]), []).append(record)
    return sum(
        max(r["began"] + r["e2e_s"] for r in block) - min(r["began"] for r in block)
        for block in blocks.values()
    )


def _starts(records: Iterable[Record]) -> int:
    """Starts of a server within one stream: more than one means that what it had learned was lost."""
    streams: dict[int, set[float]] = {}
    for record in records:
        streams.setdefault(record["repeat"], set()).add(record["server_start"])
    return max(map(len, streams.values()))


def _decode_steps(variant: Variant, record: Record) -> int:
    """Passes of the target in the decode time."""
    return int(record["steps"] if variant.speculative else record["decode_tokens"])


def _histogram(histograms: Iterable[Sequence[int]]) -> list[int]:
    return [sum(counts) for counts in zip_longest(*histograms, fillvalue=0)]


def _by_source(records: Iterable[Record], what: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for record in records:
        if attribution := record.get("attribution"):
            counts.update(attribution[what])
    return dict(counts.most_common())


def _sum(records: Iterable[Record], name: str) -> Any:
    return sum(record[name] for record in records)


def _spread(seconds: Sequence[float]) -> dict[str, float] | None:
    """In milliseconds."""
    if not seconds:
        return None
    median, late = np.percentile(seconds, [50, 95])
    return {"p50": 1000 * float(median), "p95": 1000 * float(late)}


def rounded(value: Any, digits: int = 4) -> Any:
    """Figures with ``digits`` significant digits, for people and for files that are compared."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    return [rounded(entry, digits) for entry in value] if isinstance(value, list) else value
