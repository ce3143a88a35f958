"""The examples run against a server by one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import batch_extract, openai_client, sqlite_agent, weather_program
from tests.engine.client import Client

pytestmark = [pytest.mark.engine, pytest.mark.long]


def test_weather_program(small_toolspec: Client, capsys: pytest.CaptureFixture[str]) -> None:
    weather_program.main(["--url", small_toolspec.url])

    told = capsys.readouterr().out
    assert all(question in told for question in weather_program.QUESTIONS)
    assert told.count(" steps; ") == 2 * len(weather_program.QUESTIONS)


def test_openai_client(small_toolspec: Client, capsys: pytest.CaptureFixture[str]) -> None:
    openai_client.main(["--url", small_toolspec.url])

    told = capsys.readouterr().out
    assert "get_time" in told
    assert "[the call: " in told


def test_sqlite_agent(
    small_toolspec: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_agent, "QUESTIONS", sqlite_agent.QUESTIONS[:1])  # its context is short

    sqlite_agent.main(["--url", small_toolspec.url])

    told = capsys.readouterr().out
    assert sqlite_agent.QUESTIONS[0] in told
    assert "Calls" in told


def test_batch_extract(small_toolspec: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("Ada wants tea.\n\nLinus wants [/bold] lamps.\n")

    batch_extract.main(["--url", small_toolspec.url, "--lines", str(lines)])

    told = capsys.readouterr()
    assert "2 rows in " in told.out
    assert "2/2" in told.err


@pytest.mark.model
def test_the_real_model_answers_with_the_tools(
    real_toolspec: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    weather_program.main(["--url", real_toolspec.url])
    openai_client.main(["--url", real_toolspec.url])

    told = capsys.readouterr().out
    assert 'get_weather({"city": "quito", "unit": "celsius"})' in told.lower()  # so does plain decoding
    assert '{"zone": "America/Lima"}' in told


@pytest.mark.model
def test_the_real_model_queries_a_database_turn_by_turn(
    real_toolspec: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    sqlite_agent.main(["--url", real_toolspec.url])

    told = capsys.readouterr().out
    assert 'count_orders({"customer": "Ada", "status": "open"})' in told
    assert "total_quantity(" in told
    assert "schema" in told


@pytest.mark.model
def test_the_real_model_extracts_rows(real_toolspec: Client, capsys: pytest.CaptureFixture[str]) -> None:
    batch_extract.main(["--url", real_toolspec.url])

    told = capsys.readouterr().out
    assert f"{len(batch_extract.SAMPLE)} rows in " in told
    for name in ("Lovelace", "Planck"):
        assert name in told
