"""Steps of ``make accept`` over whole streams of requests: hours, in the order in which the rows come.

Accept lengths of a stream that was interrupted are of servers that started to learn again (``cold_starts``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sglang_toolspec.bench.request import Asking
from sglang_toolspec.bench.run import Streams
from sglang_toolspec.bench.variants import Variant, ngram, plain, toolspec
from sglang_toolspec.bench.workloads import Workload, load
from sglang_toolspec.replay_cli import codec_of, simulated
from sglang_toolspec.replay_variants import Variant as Replaying
from sglang_toolspec.replay_variants import peers, variants
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.recording import read_runs
from sglang_toolspec.runtime.width import StepCosts
from sglang_toolspec.serve import cpu_dtype
from tests.answers import EIGHT_IN_FLIGHT, IN_TURN, STATE, data, measured, step_costs
from tests.forced import forced

CHAT = Path(__file__).with_name("fixtures") / "chat.jsonl"
LITTLE_REUSE = ("bfcl_simple", "bfcl_parallel", "toolalpaca_eval")
GREEDY = Asking()
FEW_PLAIN = Streams(plain_every=4)
"""Plain decoding has the most steps by far, and a token costs it the same in all rows."""
MOST_OFF = 0.05
"""Of the accept length that a replay predicts."""
SHOWN = (
    "variant", "workload", "n", "complete", "tokens", "steps", "accept_length", "tokens_per_s", "step_ms",
    "host_us_per_step", "cold_starts", "speedup", "speedup_ci", "speed_over", "identical_share",
)  # fmt: skip


def stream(count: int) -> dict[str, Any]:
    """API-Bank in order: TOOLSPEC by cost, in turn with plain decoding at every fourth row.

    What TOOLSPEC records on the way is replayed: with its own step costs, which must predict its accept
    length, at fixed widths, and with the drafts of others.
    """
    records = STATE / "stream" / "recorded.jsonl"
    ours = toolspec()
    ours = replace(ours, flags=(*ours.flags, "--toolspec-record", str(records)))
    found = compared("stream", [ours, plain()], [data("apibank_l1", count)], streams=FEW_PLAIN)
    served = next(r for r in found["results"] if r["variant"] == ours.name)
    replays = {"by cost": replayed(records, 32, step_costs("stream", ours))}
    replays |= {f"width {width}": replayed(records, width) for width in (8, 12, 16, 32, 64)}
    predicted = replays["by cost"]["all"]["accept_length"]
    off = predicted / served["accept_length"] - 1
    return {"ok": abs(off) <= MOST_OFF, **found, "replay_off": round(off, 4), "replays": replays}


def ngram_stream(count: int) -> dict[str, Any]:
    """TOOLSPEC in turn with SGLang's NGRAM, its draft tokens as many as pay best by replay and step costs."""
    return compared("stream-ngram", [toolspec(), ngram(12)], [data("apibank_l1", count)])


def widths_of_stream(count: int) -> dict[str, Any]:
    """API-Bank in order at fixed widths, eight requests in flight: accept lengths, not speed."""
    fixed = [toolspec(width=str(width)) for width in (16, 32, 64)]
    return compared("stream-widths", fixed, [data("apibank_l1", count)], streams=EIGHT_IN_FLIGHT)


def little(count: int) -> dict[str, Any]:
    """Rows with little in common, the model's chat template with tools, no mask."""
    found = [plain(), toolspec(), ngram(8), toolspec(width="16")]
    rows = [data(name, count) for name in LITTLE_REUSE]
    return compared("little", found, rows, Asking(prompt="tools"), FEW_PLAIN)


def little_required(count: int) -> dict[str, Any]:
    """The same rows with a forced call of strict tools."""
    rows = [Workload(name, tuple(map(forced, data(name, count).rows))) for name in LITTLE_REUSE]
    return compared(
        "little-required", [plain(), toolspec(), ngram(8)], rows, Asking(prompt="tools"), FEW_PLAIN
    )


def repeated(count: int) -> dict[str, Any]:
    """API-Bank a second time."""
    found = [plain(), toolspec(), ngram(8), toolspec(width="64")]
    twice = replace(FEW_PLAIN, history="repeated")
    return compared("repeated", found, [data("apibank_l1", count)], streams=twice)


def chat(count: int) -> dict[str, Any]:
    """Prompts without tools."""
    found = [plain(), toolspec(), ngram(8)]
    return compared("chat", found, [load(f"chat:{CHAT}", count)], Asking(max_new_tokens=100))


def paper(count: int) -> dict[str, Any]:
    """The recipes, on API-Bank in order."""
    found = [toolspec("paper"), toolspec()]
    return compared("paper", found, [data("apibank_l1", count)])


def compared(
    name: str,
    chosen: Sequence[Variant],
    workloads: Sequence[Workload],
    asking: Asking = GREEDY,
    streams: Streams = IN_TURN,
) -> dict[str, Any]:
    dtype = cpu_dtype()
    summary = measured(name, dtype, chosen, workloads, asking, streams)
    return {
        "dtype": dtype,
        "complete": summary["complete"],
        "results": [{key: result[key] for key in SHOWN if key in result} for result in summary["results"]],
    }


def replayed(records: Path, width: int, costs: StepCosts | None = None) -> dict[str, Any]:
    """Steps and accept lengths by drafts; with ``costs`` of ours alone."""
    runs = read_runs(records)
    chosen: list[Replaying] = list(variants(Config(), ablate=False))
    chosen += peers(print) if costs is None else ()
    found = simulated(runs, codec_of(runs, records, ""), chosen, width, costs)
    return {
        result.name: {
            "steps": result.simulation.sums.steps,
            "accept_length": round(result.simulation.sums.accept_length, 3),
        }
        for result in found
    }
