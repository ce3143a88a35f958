"""``sglang-toolspec replay`` on a small recorded file, written by hand here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sglang_toolspec.cli import app
from sglang_toolspec.errors import UserError
from sglang_toolspec.replay_variants import PAPER, plain, variants
from sglang_toolspec.runtime.config import SOURCES, Config
from sglang_toolspec.runtime.tokens import TokenCodec
from tests.small_model import VOCAB_SIZE, small_tokenizer
from tests.toolsets import GET_WEATHER, write_call

CALLS = [write_call("hermes", "get_weather", {"city": city, "days": 3}) for city in ("Lima", "Oslo", "Lima")]
STEP_MS = {"1": 100.0, "32": 130.0}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return small_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def header(tokenizer: Any, model: Path) -> dict[str, Any]:
    stops = [tokenizer.eos_token_id]
    fingerprint = TokenCodec(tokenizer, VOCAB_SIZE, stops).fingerprint
    return {
        "toolspec_record": 1, "model": str(model), "tokenizer": fingerprint, "vocab_size": VOCAB_SIZE,
        "stop_ids": stops, "parser": "qwen25", "width": 32,
    }  # fmt: skip


@pytest.fixture(scope="module")
def replies(tokenizer: Any) -> list[dict[str, Any]]:
    function = GET_WEATHER["function"]
    wire = json.dumps({"tools": [function], "tool_choice": "auto"})
    return [
        {
            "prompt_ids": tokenizer.encode(f"How will the weather be in {city}?"),
            "output_ids": [*tokenizer.encode(call), tokenizer.eos_token_id],
            "stopped": True,
            "tools": wire,
            "tenant": "a",
        }
        for city, call in zip(("Lima", "Oslo", "Lima"), CALLS, strict=True)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    def call(lines: list[Any], *options: Any) -> Any:
        file = tmp_path / "recorded.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return CliRunner().invoke(app, ["replay", str(file), *map(str, options)])

    return call


@pytest.fixture
def found(run: Any, header: Any, replies: Any) -> Callable[..., dict[str, Any]]:
    """The JSON result by drafts."""

    def call(*options: Any, lines: Any = None) -> dict[str, Any]:
        result = run([header, *replies] if lines is None else lines, "--json", *options)
        assert result.exit_code == 0, result.exception or result.output
        value = json.loads(result.stdout)
        return {**value, **{entry["drafts"]: entry for entry in value["results"]}}

    return call


def lengths(replies: list[dict[str, Any]]) -> list[int]:
    return [len(reply["output_ids"]) for reply in replies]


# What is told.


def test_all_sources_and_plain_decoding_are_compared(found: Any, replies: Any) -> None:
    value = found()

    assert (value["requests"], value["width"], value["faults"]) == (3, 32, {})
    assert [entry["drafts"] for entry in value["results"]] == ["all", "plain"]
    assert value["plain"]["tokens"] == value["all"]["tokens"] == sum(lengths(replies))
    assert value["plain"]["verify_steps"] == sum(lengths(replies)) - 3
    assert value["plain"]["accepted"] == {}
    assert value["all"]["accept_length"] > 4
    assert value["all"]["accepted"].keys() >= {"schema", "copy"}
    assert value["all"]["tokens_per_s"] is None


def test_ablation_leaves_out_one_source_each(found: Any) -> None:
    value = found("--ablate")

    names = [entry["drafts"] for entry in value["results"]]
    assert names == ["all", *(f"without {source}" for source in SOURCES), "plain"]
    for source in SOURCES:
        assert source not in value[f"without {source}"]["proposed"]
    steps = {name: value[name]["verify_steps"] for name in names}
    assert steps["all"] < steps["without copy"] < steps["without schema"] < steps["plain"]


def test_sources_can_be_chosen(found: Any) -> None:
    value = found("--sources", "schema,suffix", "--ablate")

    names = [entry["drafts"] for entry in value["results"]]
    assert names == ["all", "without schema", "without suffix", "plain"]
    assert value["without suffix"]["accepted"].keys() == {"schema"}


def test_one_source_is_not_left_out_of_itself(found: Any) -> None:
    for sources, names in (("copy", ["all", "plain"]), ("", ["plain"])):
        results = found("--sources", sources, "--ablate")["results"]
        assert [entry["drafts"] for entry in results] == names


def test_the_papers_recipe_has_sources_of_its_own() -> None:
    names = [v.name for v in (*variants(Config(recipe="paper"), ablate=True), plain())]

    assert names == ["paper", "without schema", "without history", "without recycling", "plain"]


def test_a_narrow_tree_takes_more_steps(found: Any) -> None:
    narrow = found("--width", 3)

    assert narrow["all"]["nodes_per_step"] <= 3
    assert narrow["width"] == 3
    assert found()["all"]["verify_steps"] < narrow["all"]["verify_steps"]
    assert found("--width", 1)["all"]["verify_steps"] == narrow["plain"]["verify_steps"]


@pytest.mark.parametrize("whole", [False, True])
def test_known_costs_give_seconds_and_widths(found: Any, tmp_path: Path, whole: bool) -> None:
    info = {"internal_states": [{"toolspec": {"step_ms": STEP_MS}}]} if whole else STEP_MS
    (tmp_path / "cost.json").write_text(json.dumps(info))

    value = found("--cost", tmp_path / "cost.json")

    plain, drafted = value["plain"], value["all"]
    assert plain["tokens_per_s"] == pytest.approx(plain["tokens"] / plain["verify_steps"] / 0.1, rel=1e-3)
    assert plain["speedup"] == 1
    assert drafted["speedup"] == pytest.approx(drafted["tokens_per_s"] / plain["tokens_per_s"], rel=1e-2)
    assert drafted["speedup"] > 3


def test_trees_are_narrower_where_their_nodes_cost_more(found: Any, tmp_path: Path) -> None:
    (tmp_path / "cheap.json").write_text(json.dumps({"1": 100.0, "64": 101.0}))
    (tmp_path / "dear.json").write_text(json.dumps({"1": 100.0, "64": 3200.0}))
    cheap, dear = (found("--cost", tmp_path / f"{name}.json")["all"] for name in ("cheap", "dear"))

    assert dear["nodes_per_step"] < cheap["nodes_per_step"]
    assert dear["verify_steps"] >= cheap["verify_steps"]


def test_rows_are_chosen_as_a_slice_is(found: Any, replies: Any) -> None:
    assert found("--rows", "1:2")["plain"]["tokens"] == lengths(replies)[1]
    assert found("--rows", ":2")["requests"] == 2
    assert found("--rows", "2:")["requests"] == 1


def test_each_start_of_the_server_begins_with_an_empty_memory(found: Any, header: Any, replies: Any) -> None:
    one, both = [header, replies[0]], [header, replies[0], replies[2]]
    alone = found(lines=one)["all"]["verify_steps"]

    assert found(lines=one + one)["all"]["verify_steps"] == 2 * alone
    assert found(lines=both)["all"]["verify_steps"] < 2 * alone


def test_the_table_says_the_same_and_who_did_it(run: Any, header: Any, replies: Any, tmp_path: Path) -> None:
    (tmp_path / "cost.json").write_text(json.dumps(STEP_MS))

    result = run([header, *replies], "--ablate", "--cost", tmp_path / "cost.json")

    assert result.exit_code == 0
    assert result.stdout.startswith("3 requests of")
    lines = [line.split() for line in result.stdout.splitlines()]
    steps, sources = (line for line in lines if line[:1] == ["plain"])
    tokens = sum(lengths(replies))
    assert steps[:3] == ["plain", str(tokens), str(tokens - 3)]
    assert (steps[-1], sources) == ("1.00x", ["plain"])
    assert sum(line[:2] == ["without", "copy"] for line in lines) == 2


def test_steps_are_told_by_the_state_in_which_they_began(
    run: Any, found: Any, header: Any, replies: Any
) -> None:
    entry = found()["all"]
    by_state = entry["by_state"]

    assert by_state.keys() >= {"q_o", "q_v"}
    assert sum(state["steps"] for state in by_state.values()) == entry["verify_steps"]
    assert sum(state["tokens"] for state in by_state.values()) == entry["tokens"] - 3  # of the prefill
    table = run([header, *replies]).stdout.partition("Steps by state")[2]
    assert f"in a value {by_state['q_v']['tokens']} {by_state['q_v']['steps']} " in " ".join(table.split())


def test_faults_are_told_as_a_server_would_count_them(run: Any, header: Any, replies: Any) -> None:
    broken = {**replies[0], "tools": "{"}

    result = run([header, broken, *replies])

    assert result.exit_code == 0
    assert "drafting faults: custom_params: UserError (1)" in result.stdout


# What is refused.


def refusal(result: Any) -> str:
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--rows", "1"], "no slice"),
        (["--rows", "-1:"], "no slice"),
        (["--rows", "5:"], "no requests in --rows 5:"),
        (["--sources", "schema,ngram"], "unknown source 'ngram'"),
        (["--recipe", "magic"], "no recipe"),
        (["--cost", "/nowhere.json"], "cannot be read"),
        (["--tokenizer", "/nowhere.json"], "unknown model"),
    ],
)
def test_a_wrong_option_is_one_sentence(run: Any, header: Any, replies: Any, options: Any, says: str) -> None:
    assert says in refusal(run([header, *replies], *options))


@pytest.mark.parametrize(
    "costs",
    [{}, [], None, 3, {"1": "x"}, {"x": 1}, {"1": -2}, {"0": 1}, {"1": 1e999}, {"internal_states": []},
     {"internal_states": [{}]}, {"internal_states": [{"toolspec": {"step_ms": {}}}]}],
)  # fmt: skip
def test_costs_that_are_none_are_one_sentence(
    run: Any, header: Any, replies: Any, tmp_path: Path, costs: Any
) -> None:
    (tmp_path / "cost.json").write_text(json.dumps(costs))

    assert "no step_ms" in refusal(run([header, *replies], "--cost", tmp_path / "cost.json"))


def test_a_wrong_line_is_named(run: Any, header: Any, replies: Any) -> None:
    worse = {**replies[0], "output_ids": [VOCAB_SIZE]}

    assert refusal(run([header, replies[0], worse])).startswith("line 3 of ")


def changed(header: dict[str, Any]) -> Iterator[tuple[list[dict[str, Any]], str]]:
    yield [{**header, "model": "OWNER/NAME"}], "is no folder here; give its --tokenizer"
    yield [{**header, "tokenizer": "0" * 64}], "another tokenizer"
    yield [{**header, "vocab_size": VOCAB_SIZE + 1}], "another tokenizer"
    yield [header, {**header, "tokenizer": "0" * 64}], "several tokenizers"


def test_ids_are_read_with_their_own_tokenizer_only(run: Any, header: Any, replies: Any) -> None:
    for headers, says in changed(header):
        lines = [line for head in headers for line in (head, replies[0])]
        assert says in refusal(run(lines))


def test_another_folder_may_hold_the_tokenizer(found: Any, header: Any, replies: Any, model: Path) -> None:
    lines = [{**header, "model": "OWNER/NAME"}, *replies]

    assert found("--tokenizer", model, lines=lines)["all"] == found()["all"]


# Others' drafters.


def test_others_are_compared_on_the_same_replies(found: Any, replies: Any, monkeypatch: Any) -> None:
    def unavailable(width: int) -> Any:
        raise ImportError("not here")

    monkeypatch.setattr("sglang_toolspec.runtime.engine.ngram_peer.ngram", unavailable)

    value = found("--peers")

    names = [entry["drafts"] for entry in value["results"]]
    assert names == ["all", "prompt lookup", "token recycling", "suffix decoding", PAPER, "plain"]
    assert {value[name]["tokens"] for name in names} == {sum(lengths(replies))}
    assert value["all"]["verify_steps"] < value["suffix decoding"]["verify_steps"]
    assert value["suffix decoding"]["accepted"].keys() == {"suffix decoding"}
    assert [value[name]["width"] for name in ("all", PAPER)] == [32, 64]
    assert found("--peers", "--width", 16)[PAPER]["width"] == 16
