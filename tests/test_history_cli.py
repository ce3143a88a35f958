"""``sglang-toolspec history`` on folders that a server has written."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sglang_toolspec.cli import app
from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.history import vectors
from tests.histories import MARK, A, B, Clock, contents, direction, found_tokens, opened


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["history", *map(str, words)])


def told(*words: object) -> str:
    """What is printed by a command that succeeds."""
    result = run(*words)
    assert result.exception is None, result.exception
    return result.stdout


def refused(*words: object) -> str:
    """What is said by a command that a user got wrong."""
    result = run(*words)
    assert isinstance(result.exception, UserError), result.exception
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    history = opened(tmp_path / "h", now=Clock())
    for number in range(3):
        history.add(A, direction(number), [number, 5], ["get_weather"])
    history.add(B, direction(1), [9], ["send_email", "get_weather"])
    history.credit(next(history.entries(B)), 4)
    history.close()
    return tmp_path / "h"


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def held(folder: Path, **options: Any) -> dict[str, list[tuple[Any, ...]]]:
    history = opened(folder, **options)
    found = contents(history)
    history.close()
    return found


def test_inspect_shows_whose_it_is_and_each_tenant(folder: Path) -> None:
    shown = told("inspect", folder)
    for part in ("4 of at most 20000 entries", "model tiny", "vectors of 64 numbers", A, B, "send_email"):
        assert part in shown

    found = json.loads(told("inspect", folder, "--json"))
    assert found["dimension"] == 64
    assert found["entries"] == 4
    first, second = found["tenants"]
    assert (first["tenant"], first["entries"], first["tokens"]) == (A, 3, 6)
    assert (second["used"], second["drafted"]) == (4, 1)
    assert second["tools"] == {"send_email": 1, "get_weather": 1}


def test_inspect_and_export_work_while_a_server_uses_the_folder(folder: Path, tmp_path: Path) -> None:
    history = opened(folder)
    told("inspect", folder)
    told("export", folder, tmp_path / "out.jsonl")
    assert "in use by another process" in refused("purge", folder, "--all")
    history.close()


def test_a_tenant_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    history = opened(tmp_path / "h")
    history.add("\x1b[2J[red]", direction(0), [1], ["\x1b[1A[/]"])
    history.close()

    shown = told("inspect", tmp_path / "h")

    assert "\x1b" not in shown
    assert "[red]" in shown


def test_what_is_exported_and_imported_is_the_same(folder: Path, tmp_path: Path) -> None:
    told("export", folder, tmp_path / "out.jsonl")
    said = told("import", tmp_path / "new" / "h", tmp_path / "out.jsonl")

    assert said == "4 read, 4 added, 0 renewed, 4 entries\n"
    assert held(tmp_path / "new" / "h") == held(folder)
    again = json.loads(told("import", folder, tmp_path / "out.jsonl", "--json"))
    assert again == {"read": 4, "added": 0, "renewed": 4, "entries": 4}
    told("export", tmp_path / "new" / "h", tmp_path / "again.jsonl")
    for one, other in zip(lines_of(tmp_path / "out.jsonl"), lines_of(tmp_path / "again.jsonl"), strict=True):
        vectors = [np.frombuffer(base64.b64decode(line.pop("vector", "")), "<f4") for line in (one, other)]
        assert one == other
        assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)


def test_long_vectors_survive_export_and_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "WHOLE_DIM", 32)  # so that 64 numbers are stored as eight bits
    monkeypatch.setattr(vectors, "SEARCHED_DIM", 48)
    history = opened(tmp_path / "h")
    for number in range(20):
        history.add(A, direction(number), [number], [])
    history.close()
    told("export", tmp_path / "h", tmp_path / "out.jsonl")
    told("import", tmp_path / "new", tmp_path / "out.jsonl")

    history = opened(tmp_path / "new")
    assert [found_tokens(history, A, direction(number), 1) for number in range(20)] == [
        [[number]] for number in range(20)
    ]
    assert history.similar(A, direction(3), 1)[0].similarity > 0.999
    history.close()


def test_merging_adds_what_others_have(folder: Path, tmp_path: Path) -> None:
    for name, tokens in (("x", [50]), ("y", [60])):
        history = opened(tmp_path / name, now=Clock(5000))
        history.add("C", direction(70), tokens, [])
        history.add(A, direction(0), [0, 5], ["get_weather"])
        history.close()

    said = told("merge", folder, tmp_path / "x", tmp_path / "y")

    assert said == "4 read, 2 added, 2 renewed, 6 entries\n"
    found = held(folder)
    assert [tokens for tokens, *_ in found["C"]] == [[60], [50]] or len(found["C"]) == 2
    assert found[A][0][0] == [0, 5]
    assert told("merge", tmp_path / "fresh", folder) == "6 read, 6 added, 0 renewed, 6 entries\n"


def test_purging(folder: Path) -> None:
    assert told("purge", folder, "--tenant", B) == "1 purged, 3 entries\n"
    assert told("purge", folder, "--tenant", "nobody") == "0 purged, 3 entries\n"
    assert told("purge", folder, "--older-than", "30d", "--tenant", B) == "0 purged, 3 entries\n"
    assert list(held(folder)) == [A]
    assert json.loads(told("purge", folder, "--older-than", "30d", "--json")) == {"purged": 3, "entries": 0}
    assert held(folder) == {}


def test_purging_all(folder: Path) -> None:
    assert told("purge", folder, "--all") == "4 purged, 0 entries\n"


@pytest.mark.parametrize("words", [(), ("--all", "--tenant", A), ("--all", "--older-than", "1d")])
def test_purging_needs_one_clear_wish(folder: Path, words: tuple[str, ...]) -> None:
    assert "say what to purge" in refused("purge", folder, *words)
    assert len(held(folder)) == 2


@pytest.mark.parametrize("age", ["", "30", "d", "-3d", "3.5d", "1y", "9999999999d", "30 d"])
def test_an_age_that_is_none(folder: Path, age: str) -> None:
    assert "must be a whole number and a unit" in refused("purge", folder, "--older-than", age)


def test_a_folder_without_a_history(tmp_path: Path) -> None:
    for command in (["inspect"], ["purge"]):
        words = ["--all"] if command == ["purge"] else []
        assert "there is no history in" in refused(*command, tmp_path / "nowhere", *words)
    assert "there is no history in" in refused("export", tmp_path, tmp_path / "out.jsonl")
    assert "there is no history in" in refused("merge", tmp_path / "h", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "h").exists()


def test_a_damaged_folder_is_named_and_left_where_it_is(folder: Path) -> None:
    log = folder / "entries-1.log"
    log.write_bytes(log.read_bytes()[:50] + b"x" + log.read_bytes()[51:])
    assert "cannot be read: its log is damaged at byte 23" in refused("inspect", folder)
    assert "cannot be used: its log is damaged at byte 23" in refused("purge", folder, "--all")
    assert folder.exists()


def test_histories_of_other_models_are_not_mixed(folder: Path, tmp_path: Path) -> None:
    opened(tmp_path / "x", fingerprint=MARK.model_copy(update={"model": "other"})).close()
    assert "it is for the model 'other', not 'tiny'" in refused("merge", folder, tmp_path / "x")
    assert "cannot be merged with itself" in refused("merge", folder, folder)


HEADER = json.dumps({"format": "toolspec history 1", "fingerprint": MARK.model_dump()})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "first line must say so"),
        ("{}\n", "first line must say so"),
        ("[]\n", "first line must say so"),
        (HEADER.replace("cosine", "l2"), "first line must say so"),
        ("{\n", "line 1 is not valid JSON"),
        ("[" * 100_000, "line 1 is not valid JSON"),
        (HEADER + "\n{}\n", "line 2 is not an entry"),
        (HEADER + "\n17\n", "line 2 is not an entry"),
        (HEADER + "\n" + "x" * (5 << 20), "line 2 is longer than"),
    ],
)
def test_a_file_that_is_no_export(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    assert reason in refused("import", tmp_path / "h", tmp_path / "in.jsonl")


@pytest.mark.parametrize(
    "change",
    [
        {"vector": "!!"},
        {"vector": "AAAA"},
        {"vector": 3},
        {"tokens": [-1]},
        {"tokens": "12"},
        {"tools": "x"},
        {"tenant": None},
        {"created": float("nan")},
        {"created": "x"},
        {"created": 10**400},
        {"used": -1},
        {"used": 1.5},
        {"drafted": True},
        {"more": 1},
    ],
    ids=str,
)
def test_an_entry_that_was_tampered_with(folder: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    told("export", folder, tmp_path / "out.jsonl")
    header, first, *_ = (tmp_path / "out.jsonl").read_text().splitlines()
    (tmp_path / "in.jsonl").write_text(f"{header}\n{json.dumps({**json.loads(first), **change})}\n")
    assert "line 2 is not an entry" in refused("import", tmp_path / "new", tmp_path / "in.jsonl")


def test_a_file_that_cannot_be_written_or_read(folder: Path, tmp_path: Path) -> None:
    assert "cannot be written" in refused("export", folder, tmp_path / "no" / "out.jsonl")
    assert "cannot be read" in refused("import", folder, tmp_path / "no.jsonl")
