"""Figures from measurements: ratios, their intervals, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.bench.output import key_of
from sglang_toolspec.bench.plan import Pass
from sglang_toolspec.bench.summary import ratio, results, rounded
from sglang_toolspec.bench.variants import ngram, plain, toolspec


def record(row, seconds, tokens=11, steps=None, **more):
    return {
        "workload": "w", "concurrency": 1, "repeat": 0, "row": row, "request": "",
        "tokens": tokens, "steps": steps or tokens, "decode_tokens": tokens - 1, "decode_s": seconds,
        "ttft_s": 0.5, "e2e_s": 0.5 + seconds, "began": 100.0, "prompt_tokens": 3, "finish": "stop",
        "output_ids": [1, 2], "accept_histogram": [], "server_start": 1.0, "block": int(row),
        "host_us_per_step": None, "attribution": None, **more,
    }  # fmt: skip


def figures(records, greedy=True, rows=None):
    kept = {name: {key_of(r): r for r in found} for name, found in records.items()}
    known = {"none": plain(), "toolspec": toolspec(), "ngram-8": ngram(8)}
    rows = rows or tuple(dict.fromkeys(r["row"] for found in records.values() for r in found))
    found = results([known[name] for name in records], kept, [Pass("w", 1, 0, "s", rows)], greedy)
    return {result["variant"]: result for result in found}


def test_speed_is_decoding_alone_and_accept_length_counts_the_first_token():
    found = figures({"none": [record("0", 2.0)], "toolspec": [record("0", 0.5, steps=2)]})
    assert (found["none"]["tokens_per_s"], found["toolspec"]["tokens_per_s"]) == (5.0, 20.0)
    assert found["toolspec"]["speedup"] == 4.0
    assert found["toolspec"]["accept_length"] == 5.5
    assert found["toolspec"]["step_ms"]["p50"] == 250.0
    assert found["none"]["step_ms"]["p50"] == found["none"]["tpot_ms"]["p50"] == 200.0
    assert found["none"]["throughput"] == 11 / 2.5


def test_a_ratio_is_of_rows_that_both_have():
    """Else a variant that fails on the slow rows would look fast."""
    plain_records = [record("0", 1.0), record("1", 9.0)]
    found = figures({"none": plain_records, "toolspec": [record("0", 0.5)]})
    assert found["toolspec"]["speedup"] == 2.0
    assert (found["toolspec"]["n"], found["toolspec"]["complete"]) == (1, False)
    assert found["none"]["complete"]


def test_repeats_of_a_row_are_one_row():
    mine = [record("0", 1.0), record("0", 3.0, repeat=1)]
    base = [record("0", 4.0), record("0", 4.0, repeat=1)]
    assert ratio(mine, base) == (2.0, (2.0, 2.0))


WITHOUT_TIME = [record("0", 0.0, tokens=1)]


@pytest.mark.parametrize(
    ("mine", "base"),
    [([], []), ([record("0", 1.0)], [record("1", 1.0)]), (WITHOUT_TIME, WITHOUT_TIME)],
)
def test_there_is_no_ratio_without_shared_rows_or_without_time(mine, base):
    assert ratio(mine, base) is None


def test_without_plain_decoding_there_is_no_speed_up_and_no_comparison():
    found = figures({"toolspec": [record("0", 1.0)], "ngram-8": [record("0", 3.0)]})["toolspec"]
    assert (found["speedup"], found["speedup_ci"], found["identical_share"]) == (None, None, None)
    assert found["speed_over"]["ngram-8"]["ratio"] == pytest.approx(3.0)


def test_the_fastest_comes_first():
    seconds = {"none": 3.0, "toolspec": 1.0, "ngram-8": 2.0}
    found = figures({name: [record("0", s)] for name, s in seconds.items()})
    assert list(found) == ["toolspec", "ngram-8", "none"]


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)), min_size=1, max_size=8))
def test_the_ratio_lies_in_its_interval_and_the_inverse_is_the_other_way_round(times):
    mine = [record(str(i), a) for i, (a, _) in enumerate(times)]
    base = [record(str(i), b) for i, (_, b) in enumerate(times)]
    there, back = ratio(mine, base, resamples=50), ratio(base, mine, resamples=50)
    assert there[0] * back[0] == pytest.approx(1)
    quotients = [b / a for a, b in times]
    assert min(quotients) * 0.999 <= there[1][0] <= there[1][1] <= max(quotients) * 1.001
    if len(times) == 1:
        assert there[1] == pytest.approx((there[0], there[0]))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        cost = rng.uniform(1, 5, size=40)
        mine = [record(str(i), c * rng.lognormal(0, 0.2)) for i, c in enumerate(cost)]
        base = [record(str(i), 3 * c * rng.lognormal(0, 0.2)) for i, c in enumerate(cost)]
        _, (low, high) = ratio(mine, base, resamples=200)
        covered += low <= 3 <= high
    assert 85 <= covered <= 100


def test_intervals_are_the_same_for_the_same_measurements():
    mine = [record(str(i), 1 + i) for i in range(5)]
    base = [record(str(i), 9 - i) for i in range(5)]
    assert ratio(mine, base) == ratio(mine, base)


def test_sources_hosts_histograms_and_cold_starts_are_summed():
    told = {"proposed": {"schema": 5, "copy": 9}, "accepted": {"schema": 4}}
    records = [
        record("0", 1.0, steps=1, attribution=told, accept_histogram=[1, 2], host_us_per_step=100.0),
        record("1", 1.0, steps=3, attribution=told, accept_histogram=[0, 0, 5], host_us_per_step=300.0,
               server_start=2.0, finish="length"),
    ]  # fmt: skip
    found = figures({"toolspec": records})["toolspec"]
    assert (found["proposed"], found["accepted"]) == ({"copy": 18, "schema": 10}, {"schema": 8})
    assert found["accept_histogram"] == [1, 2, 5]
    assert found["host_us_per_step"] == 250.0
    assert (found["cold_starts"], found["truncated_share"]) == (2, 0.5)


def test_requests_in_flight_together_share_their_time():
    both = [record("0", 1.0, block=7), record("1", 1.0, block=7, began=100.5)]
    assert figures({"none": both})["none"]["throughput"] == 22 / 2.0


def test_figures_are_rounded_everywhere():
    given = {"a": [1.23456, None, 7], "b": {"c": 12345.6}}
    assert rounded(given) == {"a": [1.235, None, 7], "b": {"c": 12350.0}}
