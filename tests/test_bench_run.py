"""Whole runs against fake servers, with planted faults: what is measured, kept, asked again, refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from sglang_toolspec.bench.output import Output
from sglang_toolspec.bench.request import Asking
from sglang_toolspec.bench.rows import Row
from sglang_toolspec.bench.run import Streams
from sglang_toolspec.bench.runner import FAILURES_IN_A_ROW
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.errors import UserError
from tests.benchmarks import LAMP, Bench, Quiet, lamps
from tests.fake_server import TOKENS, Faults, reply_ids


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr("sglang_toolspec.bench.run.machine", lambda: "a machine")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "out")


def by_variant(outcome):
    return {result["variant"]: result for result in outcome.summary["results"]}


def raw(bench, variant):
    return [json.loads(line) for line in (bench.folder / "raw" / f"{variant}.jsonl").read_text().splitlines()]


def failures(bench):
    return [json.loads(line) for line in (bench.folder / "failures.jsonl").read_text().splitlines()]


# What is measured


def test_a_run_measures_every_row_and_says_on_what(bench):
    outcome = bench.run()
    summary = outcome.summary
    assert (outcome.failed, outcome.error, outcome.interrupted) == (0, None, False)
    assert summary["complete"]
    first, last = map(datetime.fromisoformat, summary["measured"])
    assert first <= last <= datetime.now(UTC)
    assert summary["machine"] == "a machine"
    assert set(summary["versions"]) == {"sglang-toolspec", "sglang", "torch", "xgrammar"}
    plain, ours = (by_variant(outcome)[name] for name in ("none", "toolspec"))
    assert (plain["n"], ours["n"]) == (4, 4)
    assert (plain["accept_length"], ours["accept_length"]) == (1.0, TOKENS / 2)
    assert ours["identical_share"] == 1.0
    assert plain["speedup"] == 1.0
    assert ours["accepted"] == {"schema": 24}
    assert ours["host_us_per_step"] == 250.0
    assert ours["accept_histogram"] == [0, 0, 0, 8]
    assert json.loads((bench.folder / "summary.json").read_text()) == summary


def test_the_faster_server_comes_first_and_a_slow_one_is_slow(bench):
    bench.faults = {"none": Faults(step_s=0.005), "toolspec": Faults(step_s=0.05)}
    outcome = bench.run()
    assert [r["variant"] for r in outcome.summary["results"]] == ["none", "toolspec"]
    ours = by_variant(outcome)["toolspec"]
    low, high = ours["speedup_ci"]
    assert low <= ours["speedup"] <= high < 1  # 8 steps of 5 ms against 2 of 50 ms


def test_decode_time_starts_at_the_first_token(bench):
    bench.faults = {"none": Faults(step_s=0.05)}
    bench.run([lamps(1)], algorithms=["none"])
    record = raw(bench, "none")[0]
    assert record["decode_tokens"] == TOKENS - 1
    assert record["decode_s"] > 7.5 * 0.05
    assert record["ttft_s"] < 7.5 * 0.05
    assert record["e2e_s"] == pytest.approx(record["ttft_s"] + record["decode_s"])


def test_servers_are_asked_row_by_row_in_turn(bench):
    bench.run()
    began = {name: [record["began"] for record in raw(bench, name)] for name in ("none", "toolspec")}
    in_turn = sorted(began["none"] + began["toolspec"])
    assert in_turn[::2] == began["none"]
    assert in_turn[1::2] == began["toolspec"]


def test_warm_up_is_asked_and_never_measured(bench):
    bench.run()
    (server,) = bench.servers["toolspec"]
    assert [body["cache_salt"] for body in server.asked[:2]] == ["warm-up", "warm-up"]
    assert len(server.measured()) == 4
    assert len(raw(bench, "toolspec")) == 4


def test_texts_go_to_generate_with_the_tools_for_toolspec_alone(bench):
    texts = Workload("texts", (Row("0", prompt="Lamp?", tools=[LAMP]), Row("1", prompt=[5, 6])))
    outcome = bench.run([texts])
    assert by_variant(outcome)["toolspec"]["identical_share"] == 1.0
    plain, ours = (bench.servers[name][0].measured() for name in ("none", "toolspec"))
    assert "custom_params" not in plain[0]["sampling_params"]
    assert "lamp" in ours[0]["sampling_params"]["custom_params"]["toolspec"]
    assert ours[1]["input_ids"] == [5, 6]


def test_several_requests_in_flight_are_all_measured(bench):
    bench.faults = {"none": Faults(step_s=0.01)}
    outcome = bench.run([lamps(9)], ["none"], streams=Streams((4,), timeout_s=5))
    (result,) = outcome.summary["results"]
    assert (result["concurrency"], result["n"], result["complete"]) == (4, 9, True)
    assert 1 < bench.servers["none"][0].most_at_once <= 4
    assert result["throughput"] > result["tokens_per_s"]


def test_repeats_are_measured_and_resampled_as_one_row(bench):
    outcome = bench.run([lamps(2)], streams=Streams(repeats=3, timeout_s=5))
    assert by_variant(outcome)["none"]["n"] == 6
    salts = [body["cache_salt"] for body in bench.servers["none"][0].measured()]
    assert len(set(salts)) == 3  # each repeat starts cold
    assert bench.servers["none"][0].flushes == 3


def test_plain_decoding_may_be_asked_of_some_rows_alone(bench):
    outcome = bench.run([lamps(7)], streams=Streams(plain_every=3))
    plain, ours = (by_variant(outcome)[name] for name in ("none", "toolspec"))
    assert [record["row"] for record in raw(bench, "none")] == ["0", "3", "6"]
    assert (plain["n"], ours["n"]) == (3, 7)
    assert all(of["complete"] for of in (plain, ours, outcome.summary))
    assert ours["speedup"] is not None  # on the three
    assert ours["identical_share"] == 1.0


def test_a_warm_history_never_holds_the_own_reply(bench):
    rows = Workload("w", (*lamps(4).rows, Row("twin", lamps(1).rows[0].messages, [LAMP])))
    bench.run([rows], algorithms=["toolspec"], streams=Streams(history="warm", timeout_s=5))
    even, odd = ["Lamp 0.", "Lamp 2."], ["Lamp 1.", "Lamp 3."]
    assert bench.rows_asked("toolspec") == [*odd, *even, *even, *odd]
    salts = [body["cache_salt"] for body in bench.servers["toolspec"][0].measured()]
    assert [len({*salts[:4]}), len({*salts[4:]}), len({*salts})] == [1, 1, 2]
    assert [record["row"] for record in raw(bench, "toolspec")] == ["0", "2", "1", "3"]


def test_repeated_calls_were_all_seen_before(bench):
    bench.run([lamps(3)], streams=Streams(history="repeated", timeout_s=5))
    assert bench.rows_asked("toolspec") == ["Lamp 0.", "Lamp 1.", "Lamp 2."] * 2
    warm = bench.servers["none"][0].measured()[0]
    assert warm["max_tokens"] == 1  # plain decoding learns nothing; only its prefix cache is made equal
    assert len(raw(bench, "toolspec")) == 3


# Faults


def test_other_replies_than_plain_decoding_are_told(bench):
    bench.faults["toolspec"] = Faults(ids=lambda body: reply_ids(body)[:-1] + [7] * ("Lamp 2." in str(body)))
    bench.faults["none"] = Faults(ids=lambda body: reply_ids(body)[:-1])
    ours = by_variant(bench.run())["toolspec"]
    assert (ours["identical_share"], ours["differing"], ours["differing_rows"]) == (0.75, 1, ["2"])


def test_sampled_replies_are_not_compared(bench):
    ours = by_variant(bench.run(asking=Asking(temperature=0.7)))["toolspec"]
    assert ours["identical_share"] is None
    assert ours["speedup"]


def test_failed_requests_enter_no_figure_and_are_asked_again(bench):
    broken = Faults(status=lambda body: 500 if "Lamp 3." in str(body) else 200)
    bench.faults["toolspec"] = broken
    outcome = bench.run([lamps(5)])
    ours = by_variant(outcome)["toolspec"]
    assert (outcome.failed, ours["n"], ours["complete"], outcome.summary["complete"]) == (1, 4, False, False)
    assert [r["row"] for r in raw(bench, "toolspec")] == ["0", "1", "2", "4"]
    assert failures(bench) == [
        {"variant": "toolspec", "workload": "lamps", "concurrency": 1, "repeat": 0, "row": "3",
         "error": 'HTTP 500: {"error": {"message": "planted"}}'}
    ]  # fmt: skip
    bench.faults.clear()
    again = bench.run([lamps(5)])
    assert (again.failed, again.summary["complete"]) == (0, True)
    assert bench.rows_asked("toolspec") == ["Lamp 3."]
    assert by_variant(again)["toolspec"]["cold_starts"] == 2


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        (Faults(ends_early=True), "did not finish"),
        (Faults(silent_about_steps=True), "no verify steps"),
        (Faults(step_s=0.2), "no answer within 0.1 s"),
        (Faults(ids=lambda body: []), "0 token ids for 0 tokens"),
    ],
)
@pytest.mark.parametrize("texts", [False, True], ids=["chat", "generate"])
def test_a_reply_that_is_no_measurement_is_a_failure(bench, faults, says, texts):
    bench.faults["toolspec"] = faults
    rows = Workload("w", (Row("0", prompt="x"),)) if texts else lamps(1)
    streams = Streams(timeout_s=0.1 if faults.step_s else 5)
    outcome = bench.run([rows], algorithms=["toolspec"], streams=streams)
    assert says in str(outcome.error)
    assert outcome.summary["results"] == []
    assert "fails from the start" in str(outcome.error)


def test_a_request_that_stalls_is_a_failure_and_those_after_it_are_measured(bench):
    bench.faults["toolspec"] = Faults(pause_s=lambda body: 0.8 * ("Lamp 2." in str(body)))
    outcome = bench.run([lamps(4)], streams=Streams(timeout_s=0.4))
    ours = by_variant(outcome)["toolspec"]
    assert (outcome.failed, outcome.error, ours["n"]) == (1, None, 3)
    assert failures(bench)[0]["error"] == "no answer within 0.4 s"
    assert [r["row"] for r in raw(bench, "toolspec")] == ["0", "1", "3"]
    assert ours["tokens"] == 3 * TOKENS


def test_a_server_that_does_not_start_leaves_what_others_have_measured(bench):
    started = bench.start

    def start(variant):
        if variant.is_toolspec:
            raise UserError("the server did not start (log: x): no such model")
        return started(variant)

    bench.start = start
    outcome = bench.run(streams=Streams(together=1, timeout_s=5))
    assert str(outcome.error) == "the server did not start (log: x): no such model"
    assert [(r["variant"], r["n"]) for r in outcome.summary["results"]] == [("none", 4)]
    assert outcome.summary["complete"] is False


def test_what_a_reply_says_and_whether_it_calls_a_tool_is_kept(bench):
    bench.run([lamps(1)], algorithms=["none"])
    (record,) = raw(bench, "none")
    assert (record["text"], record["adheres"]) == ("text", False)


def test_a_crash_ends_the_run_with_the_row_and_keeps_what_is_done(bench):
    bench.faults["toolspec"] = Faults(crash_after=4)  # two of them are the warm-up
    outcome = bench.run()
    assert "the server of toolspec is given up: row 2 of lamps" in str(outcome.error)
    assert "the same command goes on" in str(outcome.error)
    assert [r["row"] for r in raw(bench, "toolspec")] == ["0", "1"]
    assert by_variant(outcome)["toolspec"]["complete"] is False
    bench.faults.clear()
    assert bench.run().summary["complete"]
    assert bench.rows_asked("toolspec") == ["Lamp 2.", "Lamp 3."]
    assert bench.rows_asked("none") == ["Lamp 3."]


def test_a_crash_among_several_requests_keeps_those_that_were_answered(bench):
    bench.faults["toolspec"] = Faults(crash_after=5)
    outcome = bench.run([lamps(8)], algorithms=["toolspec"], streams=Streams((2,), timeout_s=5))
    assert "is given up" in str(outcome.error)
    assert 2 <= len(raw(bench, "toolspec")) <= 3


def test_a_server_that_always_fails_is_given_up(bench):
    bench.faults["none"] = Faults(status=lambda body: 200 if body["cache_salt"] == "warm-up" else 503)
    outcome = bench.run([lamps(20)], algorithms=["none"])
    assert outcome.failed == FAILURES_IN_A_ROW
    assert "HTTP 503" in str(outcome.error)


def test_an_interrupt_keeps_what_is_done_and_the_same_command_goes_on(bench):
    outcome = bench.run(watch=Quiet(interrupt_at=3))
    assert outcome.interrupted
    done = len(raw(bench, "none")) + len(raw(bench, "toolspec"))
    assert done >= 4
    watch = Quiet()
    again = bench.run(watch=watch)
    assert watch.left == 0
    assert again.summary["complete"]
    assert len(raw(bench, "none")) == len(raw(bench, "toolspec")) == 4


def test_a_finished_run_starts_no_server(bench):
    first = bench.run()
    again = bench.run()
    assert again.summary["results"] == first.summary["results"]
    assert len(bench.servers["none"]) == 1


def test_more_rows_and_variants_may_be_added(bench):
    bench.run([lamps(2)], algorithms=["none"])
    outcome = bench.run([lamps(3)], algorithms=["none", "ngram"])
    assert [by_variant(outcome)[name]["n"] for name in ("none", "ngram-12")] == [3, 3]
    assert bench.rows_asked("none") == ["Lamp 2."]


# The output folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"asking": Asking(max_new_tokens=7)}, r"settings\.asking\.max_new_tokens = 200, and this run has 7"),
        ({"streams": Streams(history="repeated")}, r"settings\.history = 'cold'"),
        ({"dtype": "bfloat16"}, r"settings\.server_flags = "),
    ],
)
def test_other_settings_do_not_mix(bench, change, says):
    bench.run()
    with pytest.raises(UserError, match=rf"holds measurements with {says}.*; give another --output"):
        bench.run(**change)


def test_another_machine_or_version_or_environment_does_not_mix(bench, monkeypatch):
    bench.run()
    with monkeypatch.context() as patch:
        patch.setattr("sglang_toolspec.bench.run.machine", lambda: "another machine")
        with pytest.raises(UserError, match="machine = 'a machine', and this run has 'another machine'"):
            bench.run()
    with monkeypatch.context() as patch:
        patch.setattr("sglang_toolspec.bench.output.version", lambda package: "9")
        with pytest.raises(UserError, match=r"versions\.sglang"):
            bench.run()
    monkeypatch.setenv("TOOLSPEC_SOURCES", "schema")
    with pytest.raises(UserError, match=r"settings\.environment"):
        bench.run()


def test_other_code_of_a_variant_is_refused_or_measured_again(bench, monkeypatch):
    bench.run()
    known = json.loads((bench.folder / "manifest.json").read_text())["code"]

    def changed(variant):
        return "new" if variant.is_toolspec else known[variant.name]

    monkeypatch.setattr("sglang_toolspec.bench.output.fingerprint", changed)
    with pytest.raises(UserError, match=r"toolspec\.jsonl was measured with other code .* pass --redo"):
        bench.run()
    bench.run(redo=True)
    assert len(bench.servers["none"]) == 1
    assert len(bench.servers["toolspec"]) == 2
    assert len(list((bench.folder / "raw" / "outdated").iterdir())) == 1


def test_a_row_that_is_another_request_now_does_not_mix(bench):
    bench.run([Workload("w", (Row("0", lamps(1).rows[0].messages),))])
    outcome = bench.run([Workload("w", (Row("0", lamps(2).rows[1].messages),))])
    assert "row 0 of w was another request" in str(outcome.error)


def test_a_line_that_a_kill_cut_off_is_measured_again(bench):
    bench.run(algorithms=["none"])
    file = bench.folder / "raw" / "none.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    outcome = bench.run(algorithms=["none"])
    assert by_variant(outcome)["none"]["n"] == 4
    assert bench.rows_asked("none") == ["Lamp 3."]
    assert len(raw(bench, "none")) == 4


def test_a_damaged_file_is_named(bench):
    bench.run(algorithms=["none"])
    file = bench.folder / "raw" / "none.jsonl"
    file.write_text('{"row": 1}\n')
    with pytest.raises(UserError, match=r"none\.jsonl is damaged"):
        Output(bench.folder).records("none")
    (bench.folder / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        bench.run()


def test_two_runs_do_not_write_into_one_folder(bench):
    with Output(bench.folder), pytest.raises(UserError, match="another run writes into"):
        bench.run()


def test_an_output_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        Bench(tmp_path / "out").run()
