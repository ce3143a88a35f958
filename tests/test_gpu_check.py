"""The GPU check on fake servers: what is asked of which, what a fault costs, how it goes on."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from sglang_toolspec import gpu_width, serve
from sglang_toolspec.bench.gpu_check import Check, Deadline, OutOfTime, Stage, Verdict, stages
from sglang_toolspec.bench.variants import plain, toolspec
from sglang_toolspec.cli import app
from sglang_toolspec.errors import UserError
from tests.benchmarks import Bench, Quiet, lamps
from tests.fake_server import Faults, reply_ids


@pytest.fixture(autouse=True)
def _machine(monkeypatch, tmp_path):
    monkeypatch.setattr("sglang_toolspec.bench.run.machine", lambda: "a GPU")
    monkeypatch.setenv("TOOLSPEC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "gpu")


def checked(bench, chosen, watch=None):
    return Check("tiny", bench.folder, lamps(3), start=bench.start).run(chosen, watch or Quiet())


TWO = [Stage("one", "says", [plain(), toolspec()]), Stage("two", "says", [plain(), toolspec()])]


class Clock:
    """Goes on by a second each time it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


def test_what_is_switched_stands_in_the_flags_of_each_server():
    triton, flashinfer, speed = stages({})
    assert [v.name for v in triton.variants] == ["none", "toolspec", "toolspec-no-graphs", "toolspec-overlap"]
    assert triton.variants[2].flags[-1] == "--disable-cuda-graph"
    assert triton.variants[3].flags[-1] == "--toolspec-overlap"
    assert [s.flags[:2] for s in (triton, flashinfer)] == [
        ("--attention-backend", "triton"), ("--attention-backend", "flashinfer"),
    ]  # fmt: skip
    assert triton.flags[2:] == ("--page-size", "1")
    assert [v.name for v in speed.variants] == [
        "none", "toolspec-32", "ngram-12", "toolspec-16", "toolspec-64", "toolspec-8",
    ]  # fmt: skip
    assert (speed.concurrencies, speed.judged) == ((1, 8, 32), False)


def test_a_draft_model_joins_the_speed_stage_and_an_unknown_one_is_refused(tmp_path):
    *_, speed = stages({"eagle3": str(tmp_path)})
    assert speed.variants[3].name.startswith("eagle3")
    with pytest.raises(UserError, match=r"--draft-model medusa=.*known are eagle, eagle3"):
        stages({"medusa": "x"})


def test_all_stages_are_measured_and_the_same_replies_are_well(bench):
    verdict = checked(bench, TWO)
    assert verdict.ok
    assert [(s.name, r["variant"]) for s, r in verdict.results] == [
        ("one", "none"), ("one", "toolspec"), ("two", "none"), ("two", "toolspec"),
    ]  # fmt: skip
    assert len(bench.servers["none"]) == 2
    assert json.dumps(verdict.to_json())


def test_other_replies_are_told_where_they_are_judged(bench):
    bench.faults["toolspec"] = Faults(ids=lambda body: [*reply_ids(body)[:-1], 7])
    verdict = checked(bench, TWO)
    assert [(s.name, r["variant"], r["differing"]) for s, r in verdict.differing] == [
        ("one", "toolspec", 3), ("two", "toolspec", 3),
    ]  # fmt: skip
    assert not verdict.ok
    batched = Stage("batched", "says", [plain(), toolspec()], judged=False)
    assert checked(bench, [batched]).ok


def test_the_fastest_is_named_for_each_number_of_requests_in_flight():
    def result(variant, concurrency, throughput):
        return {"variant": variant, "concurrency": concurrency, "throughput": throughput}

    speed, same = Stage("speed", "", [], judged=False), Stage("triton", "", [])
    found = [
        (speed, result("none", 1, 5.0)),
        (speed, result("toolspec-16", 1, 9.0)),
        (same, result("x", 1, 99.0)),
    ]
    found += [(speed, result("toolspec", 8, 7.0)), (speed, result("none", 8, 8.0))]

    assert Verdict(found).fastest == {1: "toolspec-16", 8: "none"}


def of_widths(speeds, complete=True):
    """Results of the speed stage: tokens per second by width, with 1 and with 8 requests in flight."""
    stage = Stage("speed", "", [], judged=False)
    return Verdict(
        [
            (stage, {"variant": f"toolspec-{width}", "concurrency": concurrency, "complete": complete,
                     "throughput": speed})
            for width, of_width in speeds.items()
            for concurrency, speed in zip((1, 8), of_width, strict=True)
        ]
    )  # fmt: skip


def test_the_best_width_is_good_alone_and_in_batches():
    speeds = {32: (90, 100), 16: (80, 300), 64: (99, 50), 8: (50, 310)}

    assert of_widths(speeds).best_width == 16
    assert of_widths(speeds, complete=False).best_width is None
    assert of_widths({32: (90, 100), 16: (80, 300)}).best_width is None


def test_a_server_that_does_not_start_costs_its_variant_alone(bench):
    started = bench.start

    def start(variant):
        if variant.name == "toolspec-no-graphs":
            raise UserError("the server did not start")
        return started(variant)

    bench.start = start
    first, *_ = stages({})
    verdict = checked(bench, [first])
    assert [r["variant"] for _, r in verdict.results] == ["none", "toolspec", "toolspec-overlap"]
    assert verdict.errors == ["triton, toolspec-no-graphs: the server did not start"]
    assert not verdict.ok


def test_without_plain_decoding_a_stage_is_left_alone(bench):
    bench.faults["none"] = Faults(status=lambda body: 500)
    verdict = checked(bench, TWO)
    assert (verdict.results, len(verdict.errors), "toolspec" in bench.servers) == ([], 2, False)
    assert not verdict.ok


def test_failed_requests_are_in_no_figure_and_asked_again(bench):
    bench.faults["toolspec"] = Faults(status=lambda body: 500 if "Lamp 2." in str(body) else 200)
    verdict = checked(bench, TWO[:1])
    assert (verdict.failed, verdict.results[1][1]["n"], verdict.ok) == (1, 2, False)
    bench.faults.clear()
    assert checked(bench, TWO[:1]).ok
    assert bench.rows_asked("toolspec") == ["Lamp 2."]


def test_the_time_ends_it_and_the_same_command_goes_on(bench):
    verdict = checked(bench, TWO, Deadline(Quiet(), 12, Clock()))
    assert verdict.unfinished
    assert not verdict.ok
    asked = sum(len(server.measured()) for of in bench.servers.values() for server in of)
    again = checked(bench, TWO)
    assert again.ok
    assert sum(len(server.measured()) for of in bench.servers.values() for server in of) <= 12 + 1
    assert 0 < asked < 12


def test_nothing_is_begun_after_the_end():
    deadline = Deadline(Quiet(), 0, Clock())
    with pytest.raises(OutOfTime):
        deadline.doing("starting")


# The command.


def invoke(bench, *options):
    (bench.folder.parent / "model").mkdir(exist_ok=True)
    model = str(bench.folder.parent / "model")
    return CliRunner().invoke(
        app, ["bench", "gpu-check", "--model", model, "--output", str(bench.folder), *options]
    )


def test_without_a_gpu_one_sentence_says_so(bench, monkeypatch):
    monkeypatch.setattr("sglang_toolspec.serve.has_accelerator", lambda: False)
    done = invoke(bench)
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("no GPU: PyTorch sees none here")
    assert not bench.folder.exists()


def test_the_last_line_is_the_verdict_and_the_report_is_there(bench, monkeypatch, tmp_path):
    monkeypatch.setattr("sglang_toolspec.serve.has_accelerator", lambda: True)
    monkeypatch.setattr("sglang_toolspec.bench.run._processes", lambda plan, output: bench.start)
    monkeypatch.setattr("sglang_toolspec.bench.gpu_check.CONCURRENCIES", (1, 2))
    monkeypatch.setattr("sglang_toolspec.bench.report.sections.KINDS", ())
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"Lamp {i}."}) + "\n" for i in range(2)))
    done = invoke(bench, "--workload", str(rows))
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["ok"]
    assert {r["stage"] for r in told["results"]} == {"triton", "flashinfer", "speed"}
    assert {r["concurrency"] for r in told["results"] if r["stage"] == "speed"} == {1, 2}
    assert (bench.folder / "report.html").is_file()
    width = told["best_width"]
    assert width in (8, 16, 32, 64)
    model = str(bench.folder.parent / "model")
    assert gpu_width.known("", model) == width  # PyTorch sees no GPU here
    assert serve.command_line(model, [], "gpu")[-2:] == ["--speculative-num-draft-tokens", str(width)]


@pytest.mark.parametrize(
    "flags", [["--speculative-algorithm=NGRAM"], ["--speculative-num-draft-tokens", "9"]]
)
def test_a_measured_width_is_for_toolspec_and_no_flag(tmp_path, flags):
    gpu_width.keep("", str(tmp_path), 16)
    assert "16" in serve.command_line(str(tmp_path), [], "gpu")
    assert "16" not in serve.command_line(str(tmp_path), flags, "gpu")
    assert "16" not in serve.command_line(str(tmp_path), [], "cpu")


def test_the_paper_has_its_own_width(tmp_path, monkeypatch):
    gpu_width.keep("", str(tmp_path), 16)
    monkeypatch.setenv("TOOLSPEC_RECIPE", "paper")
    assert "16" not in serve.command_line(str(tmp_path), [], "gpu")


def test_widths_of_other_models_and_gpus_are_kept():
    file = gpu_width.keep("A", "m", 16)
    gpu_width.keep("A", "n", 8)
    gpu_width.keep("B", "m", 64)
    assert [gpu_width.known(*of) for of in ("Am", "An", "Bm", "Bn")] == [16, 8, 64, None]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"A": 3}', '{"A": {"m": 0}}', '{"A": {"m": "16"}}', "3"])
def test_a_damaged_file_says_nothing_and_is_written_anew(text):
    file = gpu_width.keep("A", "m", 16)
    file.write_text(text)
    assert gpu_width.known("A", "m") is None
    gpu_width.keep("A", "m", 8)
    assert gpu_width.known("A", "m") == 8


def test_what_is_not_well_ends_with_exit_code_1(bench, monkeypatch):
    monkeypatch.setattr("sglang_toolspec.serve.has_accelerator", lambda: True)
    monkeypatch.setattr("sglang_toolspec.bench.run._processes", lambda plan, output: bench.start)
    monkeypatch.setattr("sglang_toolspec.bench.gpu_check.stages", lambda models: TWO[:1])
    bench.faults["none"] = Faults(status=lambda body: 500)
    done = invoke(bench)
    assert done.exit_code == 1
    assert json.loads(done.stdout.strip().splitlines()[-1])["ok"] is False
    assert "fails from the start" in " ".join(done.stderr.split())
