"""The page of a benchmark: what is drawn from what, what it says of itself, and what text cannot do to it."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from sglang_toolspec.bench.output import Output
from sglang_toolspec.bench.report import drawings_speed, drawings_steps, looks, page, sections
from sglang_toolspec.bench.report.source import read
from sglang_toolspec.bench.request import Asking
from sglang_toolspec.bench.run import Streams
from sglang_toolspec.bench.variants import variants
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.cli import app
from sglang_toolspec.errors import UserError
from tests.benchmarks import Bench, lamps
from tests.fake_server import Faults
from tests.test_bench_summary import record

EVIL = "<script>alert(1)</script>$x$&amp;"


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr("sglang_toolspec.bench.run.machine", lambda: "a machine")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "out", faults={"none": Faults(step_s=0.001)})


def only(monkeypatch, *anchors):
    """Draw these kinds of chart alone: a chart takes a tenth of a second."""
    kinds = tuple(kind for kind in sections.KINDS if kind.anchor in anchors)
    monkeypatch.setattr(sections, "KINDS", kinds)


def measured(folder, records, history="cold", flags=(), temperature=0.0):
    """A folder as a run leaves it; ``records`` by variant."""
    settings = {
        "model": "tiny", "history": history, "server_flags": list(flags), "environment": {},
        "asking": {"prompt": "auto", "temperature": temperature},
    }  # fmt: skip
    folder.mkdir()
    manifest = {
        "format": 1, "settings": settings, "versions": {"sglang": "9.8.7"}, "machine": "a machine",
        "code": dict.fromkeys(records, ""), "commands": ["sglang-toolspec bench run --output out"],
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "summary.json").write_text(json.dumps({"failed": 0, "complete": True}))
    with Output(folder) as output:
        for variant, of in records.items():
            for one in of:
                output.add(variant, one)
    return folder


def charts(folder, *others):
    """Anchors of the charts there are, and what the missing ones need."""
    drawn = list(sections.sections([read(f) for f in (folder, *others)]))
    return (
        {section.kind.anchor: section.charts for section in drawn if section.charts},
        {section.kind.anchor: section.kind.needs for section in drawn if not section.charts},
    )


class Reader(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.texts, self.links = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href"):
                self.links.append(value)

    def handle_data(self, data):
        self.texts.append(data)


# What is on it


def test_a_run_leaves_a_page_with_its_figures_and_says_what_is_missing(bench):
    bench.run([lamps(9)])
    text = page.write([bench.folder]).read_text()
    seen = Reader(text)
    words = " ".join(" ".join(seen.texts).split())
    assert "4.50" in words  # accept length of the fake: 9 tokens in 2 steps
    assert "100 % the same replies" in words
    for missing in ("--concurrency 1,8,32", "--ablate", "bench report DIR DIR DIR"):
        assert missing in words
    assert seen.tags.count("svg") == seen.tags.count("figcaption") == seen.tags.count("figure") > 5
    assert len(seen.ids) == len(set(seen.ids))
    assert all(link.startswith("#") for link in seen.links)  # nothing is loaded from anywhere


def test_every_chart_says_on_what_it_was_measured(bench, monkeypatch):
    only(monkeypatch, "speed-up", "time")
    bench.run()
    found, _ = charts(bench.folder)
    for (chart,) in found.values():
        for said in ("lamps, 4 requests", "cold history", "tiny", "none, toolspec", "a machine", "sglang 0."):
            assert said in chart.sources[0].about
        assert [source.command for source in chart.sources] == ["bench"]


@pytest.mark.parametrize("anchor", ["speed-up", "rows", "accept-length", "time", "sources", "warming"])
def test_charts_are_whole_and_have_the_colours_of_the_page(tmp_path, monkeypatch, anchor):
    only(monkeypatch, anchor)
    told = {"proposed": {"schema": 9}, "accepted": {"schema": 6}, "steps": []}
    plain = [record(str(i), 2.0) for i in range(9)]
    ours = [record(str(i), 1.0, steps=3, attribution=told, accept_histogram=[1, 0, 2]) for i in range(9)]
    ((chart,),) = charts(measured(tmp_path / "a", {"none": plain, "toolspec": ours}))[0].values()
    ElementTree.fromstring(chart.svg.replace("xlink:href", "href"))
    colours = set(re.findall(r"#[0-9a-f]{6}", chart.svg))
    assert not colours
    assert "var(--toolspec)" in chart.svg
    assert "DejaVu" not in chart.svg


def test_a_chart_comes_with_its_data(tmp_path, monkeypatch):
    only(monkeypatch, "ablation", "concurrency")
    rows = [record(str(i), 1.0) for i in range(3)]
    more = [record(str(i), 2.0, concurrency=8) for i in range(3)]
    folder = measured(tmp_path / "a", {"none": rows, "toolspec": rows})
    assert charts(folder)[1] == {"ablation": "--ablate", "concurrency": "--concurrency 1,8,32"}
    folder = measured(tmp_path / "b", {"none": rows + more, "toolspec": rows, "toolspec-without-copy": rows})
    assert set(charts(folder)[0]) == {"ablation", "concurrency"}


def test_histories_of_several_runs_are_one_chart(tmp_path, monkeypatch):
    only(monkeypatch, "repeated")
    rows = [record("0", 1.0)]
    cold = measured(tmp_path / "cold", {"none": rows, "toolspec": rows})
    again = measured(tmp_path / "again", {"none": rows, "toolspec": rows}, history="repeated")
    assert charts(cold)[0] == {}
    ((chart,),) = charts(cold, again)[0].values()
    assert "repeated" in chart.svg
    assert ["cold: w" in s.about for s in chart.sources] == ["again: w" not in s.about for s in chart.sources]
    assert ["history" in source.about for source in chart.sources] == [True, True]


def test_an_ablation_is_drawn_by_itself(tmp_path):
    rows = [record("0", 1.0)]
    folder = measured(tmp_path / "a", {"none": rows, "toolspec": rows, "toolspec-without-copy": rows})
    (part,) = read(folder).parts
    assert [result["variant"] for result in part.charted] == ["toolspec"]


def test_replies_are_told_apart_by_whether_they_hold_a_call(tmp_path, monkeypatch):
    only(monkeypatch, "adherence")
    rows = [record(str(i), 1.0) for i in range(4)]
    judged = [{**row, "adheres": row["row"] != "3"} for row in rows]
    assert charts(measured(tmp_path / "old", {"none": rows, "toolspec": rows}))[0] == {}
    ((chart,),) = charts(measured(tmp_path / "new", {"none": rows, "toolspec": judged}))[0].values()
    assert "3 of 4 replies" in chart.svg


def test_rows_that_gain_least_are_shown_with_their_replies(tmp_path):
    plain = [record(str(i), 2.0) for i in range(8)]
    ours = [record(str(i), 4.0 if i == 6 else 0.5, text=f"reply {i}") for i in range(8)]
    (part,) = read(measured(tmp_path / "a", {"none": plain, "toolspec": ours})).parts
    least = page._least(part)
    assert (least[0].row, least[0].speedup, least[0].reply) == ("6", 0.5, "reply 6")
    assert len(least) == page.SHOWN_ROWS


def test_a_draft_model_is_named_with_how_it_was_trained(bench, tmp_path, monkeypatch):
    only(monkeypatch)
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "training.json").write_text('{"replies": 3, "epochs": [{}, {}]}')
    bench.run([lamps(2)], ["none", "eagle"], draft_models={"eagle": str(tmp_path / "head")})
    bench.run([lamps(2)])  # what a later command does not name is in the folder, and in the report
    text = " ".join(" ".join(Reader(page.write([bench.folder]).read_text()).texts).split())
    assert f"out: eagle drafts with {tmp_path / 'head'}, trained on 3 replies in 2 epochs" in text
    assert "not EAGLE's best" in text


# What the charts count


def test_steps_are_those_after_the_prompt():
    told = {"steps": [["prefill"], ["schema", "schema", "target"], ["target"]]}
    assert drawings_steps.tokens_by_step(record("0", 1.0, attribution=told), streamed=False) == [3, 1]


def test_without_attribution_steps_are_known_where_they_were_streamed():
    streamed = record("0", 1.0, arrivals=[[1, 0.1], [4, 0.2], [5, 0.3]])
    assert drawings_steps.tokens_by_step(streamed, streamed=True) == [3, 1]
    assert drawings_steps.tokens_by_step(streamed, streamed=False) == []


def test_the_rolling_accept_length_is_of_the_last_requests():
    records = [record(str(i), 1.0, tokens=10, steps=10 if i < 4 else 2) for i in range(8)]
    values, window = drawings_steps.rolling(records)
    assert (window, values[0], values[-1], len(values)) == (3, 1.0, 5.0, 6)


def test_a_rows_speed_up_needs_both_and_some_time():
    mine = [record("0", 1.0), record("1", 1.0), record("2", 0.0, tokens=1)]
    plain = [record("0", 3.0), record("2", 0.0, tokens=1)]
    assert drawings_speed.row_speedups(mine, plain) == {"0": 3.0}


def test_variants_of_an_algorithm_share_its_colour_in_other_shades():
    found = looks.looks([("ngram-8", "ngram"), ("toolspec", "toolspec"), ("ngram-16", "ngram")])
    assert found["ngram-8"].colour == found["ngram-16"].colour != found["toolspec"].colour
    assert found["ngram-8"].shade > found["ngram-16"].shade
    many = looks.looks([(f"ngram-{i}", "ngram") for i in range(20)])
    assert len(many) == 20


# Failures


def test_failed_requests_are_named_on_top_and_drawn_nowhere(bench, monkeypatch):
    only(monkeypatch, "speed-up")
    bench.faults["toolspec"] = Faults(status=lambda body: 500 if "Lamp 3." in str(body) else 200)
    bench.run()
    text = " ".join(Reader(page.write([bench.folder]).read_text()).texts)
    assert "1 requests failed in the last run and are in no figure" in text
    (part,) = read(bench.folder).parts
    assert [r["row"] for r in part.records["toolspec"]] == ["0", "1", "2"]


def test_a_run_that_was_killed_is_not_the_last_word(bench, monkeypatch):
    only(monkeypatch)
    bench.run()
    (bench.folder / "summary.json").unlink()
    assert "the run has not ended yet" in page.write([bench.folder]).read_text()


def test_nothing_but_plain_decoding_makes_a_page(bench):
    bench.run(algorithms=["none"])
    found, _ = charts(bench.folder)
    assert set(found) == {"time"}
    assert page.write([bench.folder]).is_file()


# What text cannot do


def test_names_and_replies_from_files_are_text(bench, monkeypatch):
    only(monkeypatch, "speed-up")
    rows = Workload(EVIL, lamps(2).rows)
    bench.run([rows])
    file = bench.folder / "raw" / "toolspec.jsonl"
    changed = [{**json.loads(line), "text": f"</td></svg>{EVIL}"} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in changed))
    text = page.write([bench.folder]).read_text()
    seen = Reader(text)
    assert "script" not in seen.tags
    assert any("</td></svg><script>" in data for data in seen.texts)
    assert any("alert(1)</script>$x$" in data for data in seen.texts)


def test_a_page_stays_small(tmp_path, monkeypatch):
    only(monkeypatch, "speed-up")
    monkeypatch.setattr(sections, "MAX_PARTS", 2)
    monkeypatch.setattr(page, "MAX_PARTS", 2)
    rows = [record("0", 1.0, workload="w" * 300 + str(i), text="x" * 100_000) for i in range(5)]
    text = page.write([measured(tmp_path / "a", {"none": rows, "toolspec": rows})]).read_text()
    assert text.count("<figure>") == 2
    assert "3 more workloads are in the table alone" in text
    assert len(text) < 200_000


# The command


def test_the_command_writes_it_again_and_names_the_file(bench, tmp_path, monkeypatch):
    only(monkeypatch)
    bench.run()
    given = ["bench", "report", str(bench.folder), "--output", str(tmp_path / "r.html")]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("spoiled", ["summary", "nothing", "used", "unknown", "many"])
def test_a_folder_that_cannot_be_reported_is_one_sentence(bench, tmp_path, spoiled):
    bench.run()
    folders = [bench.folder]
    says = {"summary": "summary.json is damaged", "nothing": "holds no benchmark", "used": "another run",
            "unknown": "'medusa' is no variant", "many": "at most 16 folders"}[spoiled]  # fmt: skip
    if spoiled == "summary":
        (bench.folder / "summary.json").write_text("{")
    elif spoiled == "unknown":
        manifest = json.loads((bench.folder / "manifest.json").read_text())
        (bench.folder / "manifest.json").write_text(json.dumps({**manifest, "code": {"medusa": ""}}))
    elif spoiled == "many":
        folders *= 17
    elif spoiled == "nothing":
        folders = [tmp_path]
    used = Output(bench.folder) if spoiled == "used" else nullcontext()
    with used, pytest.raises(UserError, match=says):
        page.write(folders)


def test_sampled_replies_and_several_in_flight_have_figures_too(bench):
    bench.run([lamps(5)], asking=Asking(temperature=0.5), streams=Streams((1, 2), timeout_s=5))
    (one, two) = read(bench.folder).parts
    assert (one.concurrency, two.concurrency) == (1, 2)
    assert one.results[0]["identical_share"] is None


def test_ablation_variants_lack_one_source_each():
    found = variants(["toolspec"], [], ["cost"], ["full"], {}, ablate=True)
    assert [v.name for v in found][:2] == ["toolspec", "toolspec-without-schema"]
    assert len(found) == 7
    assert "schema" not in found[1].flags[-1].split(",")
    assert found[1].flags[-2] == "--toolspec-sources"
