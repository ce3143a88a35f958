"""The examples run against a server by one command."""

from __future__ import annotations

import pytest

from examples import openai_client, weather_program
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


@pytest.mark.model
def test_the_real_model_answers_with_the_tools(
    real_toolspec: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    weather_program.main(["--url", real_toolspec.url])
    openai_client.main(["--url", real_toolspec.url])

    told = capsys.readouterr().out
    assert 'get_weather({"city": "Quito", "unit": "celsius"})' in told
    assert '{"zone": "America/Lima"}' in told
