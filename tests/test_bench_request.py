"""What of a row reaches a server, which variants there are, and in which order rows are asked."""

from __future__ import annotations

import pytest

from sglang_toolspec.bench.draft_models import about, sentence
from sglang_toolspec.bench.plan import passes, requests_of
from sglang_toolspec.bench.request import CHAT, GENERATE, Asking, request_for
from sglang_toolspec.bench.rows import Row, user
from sglang_toolspec.bench.variants import fingerprint, ngram, plain, toolspec, variants
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.errors import UserError
from tests.benchmarks import LAMP, lamps

SYSTEM = {"role": "system", "content": "Be kind."}
RAW = Row("raw", [SYSTEM, *user("Lamp?")], [LAMP], raw_system="Tools: lamp")
TOOLS = Row("tools", user("Lamp?"), [LAMP], "required")


def test_a_raw_system_text_replaces_the_system_message_and_toolspec_alone_is_told_the_tools():
    request = request_for(RAW, Asking())
    contents = [m["content"] for m in request.body["messages"]]
    assert contents == ["Tools: lamp", "Lamp?"]
    assert "tools" not in request.body
    assert '"lamp"' in request.sent("r", "s", hinted=True)["custom_params"]["toolspec"]
    assert "custom_params" not in request.sent("r", "s", hinted=False)


def test_tools_go_by_the_openai_api_and_the_choice_is_the_rows_own_unless_given():
    request = request_for(TOOLS, Asking())
    assert (request.path, request.body["tools"], request.body["tool_choice"]) == (CHAT, [LAMP], "required")
    assert request.hint is None
    assert request_for(TOOLS, Asking(tool_choice="auto")).body["tool_choice"] == "auto"
    raw = request_for(RAW, Asking(prompt="tools")).body
    assert [m["content"] for m in raw["messages"]] == ["Be kind.", "Lamp?"]


def test_a_chat_without_tools_has_no_tool_choice():
    body = request_for(Row("chat", user("Hello.")), Asking(prompt="raw_system", tool_choice="required")).body
    assert "tool_choice" not in body
    assert "tools" not in body


def test_a_limit_of_one_request_leaves_the_others_alone():
    chat, text = request_for(TOOLS, Asking()), request_for(Row("t", prompt="x"), Asking())
    assert text.path == GENERATE
    assert chat.sent("r", "s", False, 1)["max_tokens"] == 1
    assert text.sent("r", "s", False, 1)["sampling_params"]["max_new_tokens"] == 1
    assert chat.sent("r", "s", False)["max_tokens"] == 200
    assert text.sent("r", "s", False)["sampling_params"]["max_new_tokens"] == 200


def test_tools_that_toolspec_does_not_take_are_served_without_hint():
    assert request_for(Row("t", prompt="x", tools=[LAMP, LAMP]), Asking()).hint is None


@pytest.mark.parametrize(
    ("row", "asking", "says"),
    [
        (TOOLS, Asking(prompt="raw_system"), "row tools has no raw_system text"),
        (RAW, Asking(tool_choice="required"), "row raw lists its tools in its own text"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row, asking, says):
    with pytest.raises(UserError, match=says):
        requests_of(Workload("w", (row,)), asking)


def test_equal_requests_have_equal_digests():
    asking = Asking()
    assert request_for(TOOLS, asking).digest == request_for(TOOLS, asking).digest
    assert request_for(TOOLS, asking).digest != request_for(TOOLS, Asking(temperature=1.0)).digest


def test_passes_go_repeat_by_repeat_with_a_salt_each():
    requests = {w.name: requests_of(w, Asking()) for w in (lamps(2), lamps(3, "more"))}
    found = passes(requests, [1, 8], 2, "cold")
    assert [(p.repeat, p.workload, p.concurrency) for p in found[:5]] == [
        (0, "lamps", 1), (0, "lamps", 8), (0, "more", 1), (0, "more", 8), (1, "lamps", 1),
    ]  # fmt: skip
    assert len({p.salt for p in found}) == len(found) == 8


def test_a_warm_history_needs_two_requests():
    with pytest.raises(UserError, match="needs two different requests, and the workload lamps has one"):
        passes({"lamps": requests_of(lamps(1), Asking())}, [1], 1, "warm")


def test_variants_are_named_by_what_differs():
    found = variants(["none", "ngram", "toolspec"], [8, 16], ["cost", "32"], ["full", "paper"], {})
    assert [variant.name for variant in found] == [
        "none", "ngram-8", "ngram-16", "toolspec", "toolspec-32", "toolspec-paper", "toolspec-paper-32",
    ]  # fmt: skip
    fixed = ("--toolspec-fixed-width", "--speculative-num-draft-tokens", "16")
    assert toolspec("full", "16").flags[-3:] == fixed


def test_a_draft_model_is_passed_on(tmp_path):
    (eagle,) = variants(["eagle3"], [], [], [], {"eagle3": str(tmp_path)})
    assert eagle.flags[:2] == ("--speculative-algorithm", "EAGLE3")
    assert eagle.flags[2:] == ("--speculative-draft-model-path", str(tmp_path))


def test_an_eagle_head_with_a_reduced_vocabulary_brings_its_token_map(tmp_path):
    (tmp_path / "hot_token_id.pt").touch()
    given = dict.fromkeys(("eagle", "eagle3"), str(tmp_path))
    eagle, eagle3 = variants(["eagle", "eagle3"], [], [], [], given)
    assert eagle.flags[-2:] == ("--speculative-token-map", str(tmp_path / "hot_token_id.pt"))
    assert "--speculative-token-map" not in eagle3.flags


def test_measurements_of_a_head_are_outdated_when_it_is_trained_on(tmp_path):
    (variant,) = variants(["eagle"], [], [], [], {"eagle": str(tmp_path)})
    before = fingerprint(variant)
    (tmp_path / "training.json").write_text('{"replies": 3, "epochs": [{}, {}]}')
    assert fingerprint(variant) != before


def test_a_report_says_how_a_head_was_trained_and_that_it_is_small(tmp_path):
    (tmp_path / "training.json").write_text('{"replies": 3, "epochs": [{}, {}]}')
    said = sentence("eagle", about(str(tmp_path)))
    assert str(tmp_path) in said
    assert "trained on 3 replies in 2 epochs" in said
    assert "not EAGLE's best" in said


def test_a_damaged_account_of_a_training_is_one_sentence(tmp_path):
    (tmp_path / "training.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        about(str(tmp_path))


@pytest.mark.parametrize(
    ("algorithms", "more", "says"),
    [
        (["none", "medusa"], {}, "unknown algorithm 'medusa'; known are none, ngram, toolspec"),
        (["eagle"], {}, r"eagle needs a draft model; give --draft-model eagle="),
        (
            ["eagle"],
            {"draft_models": {"eagle": "./nowhere"}},
            r"no draft model for eagle: .* at \./nowhere; give --draft-model eagle=",
        ),
        (["none", "none"], {}, "'none' is asked for twice"),
        ([], {}, "nothing to measure"),
        (["toolspec"], {"toolspec_widths": ["wide"]}, "'wide', which is neither a number nor 'cost'"),
        (["toolspec"], {"toolspec_widths": ["0"]}, "'0', which is neither"),
        (["toolspec"], {"recipes": ["own"]}, "unknown recipe 'own'; known are full, paper"),
    ],
)
def test_what_cannot_be_measured_is_refused(algorithms, more, says):
    given = {"ngram_widths": [8], "toolspec_widths": ["cost"], "recipes": ["full"], "draft_models": {}}
    with pytest.raises(UserError, match=says):
        variants(algorithms, **{**given, **more})


def test_the_code_of_a_variant_is_known_by_what_decides_its_replies():
    assert fingerprint(plain()) == fingerprint(plain())
    assert len({fingerprint(v) for v in (plain(), ngram(8), ngram(16), toolspec())}) == 4
