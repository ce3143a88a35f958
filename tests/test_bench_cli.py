"""The command: what it prints where, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sglang_toolspec.bench import run as bench_run
from sglang_toolspec.cli import app
from sglang_toolspec.errors import UserError
from tests.benchmarks import Bench
from tests.fake_server import Faults


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The servers that the command starts are fakes. Charts take their time and are tested elsewhere."""
    bench = Bench(tmp_path / "out")
    monkeypatch.setattr(bench_run, "machine", lambda: "a machine")
    monkeypatch.setattr(bench_run, "_processes", lambda plan, output: bench.start)
    monkeypatch.setattr("sglang_toolspec.bench.report.sections.KINDS", ())
    return bench


def invoke(bench, *options):
    bench.folder.parent.joinpath("model").mkdir(exist_ok=True)
    model = str(bench.folder.parent / "model")
    given = ["bench", "run", "--model", model, "--dtype", "float32", "--output", str(bench.folder), *options]
    return CliRunner().invoke(app, given)


def test_without_data_it_runs_the_sample_and_the_last_line_is_the_result(bench):
    done = invoke(bench, "--num-prompts", "3")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert [r["algorithm"] for r in result["results"]].count("toolspec") == 1
    assert {r["workload"] for r in result["results"]} == {"sample"}
    assert {"algorithm", "variant", "workload", "n", "tokens_per_s", "accept_length", "speedup", "speedup_ci",
            "identical_share"} <= set(result["results"][0])  # fmt: skip
    assert result["machine"] == "a machine"
    assert result["versions"]["sglang"]
    assert len(done.stdout.strip().splitlines()) == 1
    assert "sample: decoding after the first token" in done.stderr
    assert (bench.folder / "report.html").read_text().startswith("<!doctype html>")
    assert "report.html" in done.stderr.replace("\n", "")


def test_failed_requests_end_with_a_message_after_the_result(bench):
    broken = Faults(status=lambda body: 200 if body["cache_salt"] == "warm-up" else 500)
    bench.faults["none"] = broken
    done = invoke(bench, "--algorithms", "none", "--num-prompts", "2")
    assert done.exit_code == 1
    assert json.loads(done.stdout.strip().splitlines()[-1])["failed"] == 2
    assert isinstance(done.exception, UserError)
    assert "2 requests failed and are in no figure" in str(done.exception)


def test_an_interrupt_prints_what_there_is(bench, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("sglang_toolspec.bench.runner.Runner.run", interrupted)
    done = invoke(bench, "--num-prompts", "1")
    assert done.exit_code == 130
    assert json.loads(done.stdout.strip().splitlines()[-1])["complete"] is False


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--algorithms", "medusa"], "unknown algorithm 'medusa'"),
        (["--algorithms", "eagle3"], "eagle3 needs a draft model"),
        (["--draft-model", "eagle3"], "--draft-model takes ALGORITHM=MODEL"),
        (["--concurrency", "1,many"], "--concurrency takes whole numbers above 0"),
        (["--ngram-widths", "0"], "--ngram-widths takes whole numbers above 0"),
        (["--workload", "nowhere.jsonl"], "cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence_before_any_server_starts(bench, options, says):
    done = invoke(bench, *options)
    assert says in str(done.exception)
    assert isinstance(done.exception, UserError)
    assert not bench.servers


def test_a_workload_without_rows_is_one_sentence(bench, tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    done = invoke(bench, "--workload", str(tmp_path / "empty.jsonl"))
    assert "has no rows; give a file with at least one request" in str(done.exception)
    assert not bench.servers


def test_a_run_without_any_figure_has_no_report(bench):
    bench.faults["none"] = Faults(status=lambda body: 500)
    done = invoke(bench, "--algorithms", "none", "--num-prompts", "1")
    assert "fails from the start" in str(done.exception)
    assert json.loads(done.stdout.strip().splitlines()[-1])["results"] == []
    assert not (bench.folder / "report.html").exists()


def test_the_command_line_starts_without_loading_what_the_benchmark_needs():
    code = (
        "import sys, sglang_toolspec.cli\n"
        "heavy = {'numpy', 'torch', 'sglang', 'httpx', 'transformers', 'matplotlib', 'jinja2'}\n"
        "heavy &= set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
