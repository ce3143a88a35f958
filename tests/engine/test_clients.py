"""Real clients of other projects, in an environment of their own (``make clients``), against the servers.

The scripts are in ``tests/clients``; each prints what came of its requests as one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sglang_toolspec.frontend.offer import make_offer
from tests.engine.client import Client

pytestmark = [pytest.mark.engine, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "clients"
ENVIRONMENT = ROOT / ".venv-clients"
PYTHON = ENVIRONMENT / "bin" / "python"
TIMEOUT_S = 900


@pytest.fixture(scope="module", autouse=True)
def _environment() -> None:
    if not (ENVIRONMENT / "installed").is_file():
        pytest.skip("the clients are not installed; run: make clients")


def run_client(script: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run with the clients' Python; servers of this machine are asked without a proxy."""
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    env["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [str(PYTHON), str(script), *args],
        capture_output=True, text=True, env=env, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def told(script: str, *args: str) -> dict[str, Any]:
    run = run_client(SCRIPTS / f"{script}.py", *args)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.strip().splitlines()[-1])


def assert_fits(name: str, arguments: Any) -> None:
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert name == "flip"
    assert arguments["side"] in ("left", "right")
    assert arguments["loud"] in (True, False)
    assert len(arguments) == 2


FINISH = {
    "openai_chat": "tool_calls",
    "anthropic_messages": "tool_use",
    "langchain_tools": "tool_calls",
    "agents_loop": None,
}
"""By script, the finish reason of a reply that calls, as far as the client tells it."""
ASKING_FOR_NONE = ("openai_chat", "anthropic_messages")
"""Every third request of these may not call."""


@pytest.mark.parametrize("script", FINISH)
def test_a_client_gets_the_replies_of_plain_decoding_streamed_and_not(
    small_plain: Client, small_toolspec: Client, script: str
) -> None:
    expected, got = (told(script, client.url) for client in (small_plain, small_toolspec))

    assert got == expected
    assert got["streamed"] == got["whole"]
    for number, reply in enumerate(got["whole"]):
        calls = script not in ASKING_FOR_NONE or number % 3 < 2
        assert bool(reply["calls"]) == calls
        assert (reply.get("finish") == FINISH[script]) == calls
        for call in reply["calls"]:
            assert_fits(*call)
        if "results" in reply:
            assert len(reply["results"]) == len(reply["calls"])
            assert all(result.startswith("flipped to the ") for result in reply["results"])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit, the same in every run."""
    folder = tmp_path / "repository"
    stamp = "2026-01-02T03:04:05Z"
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp,
    }  # fmt: skip
    commands: list[list[str]] = [
        ["init", "-q", "-b", "main", str(folder)],
        ["-C", str(folder), "-c", "user.name=Ada", "-c", "user.email=ada@example.org",
         "commit", "-q", "--allow-empty", "-m", "The first commit"],
    ]  # fmt: skip
    for command in commands:
        subprocess.run(["git", *command], env=env, check=True)
    return folder


def strict(tools: Any) -> list[dict[str, Any]]:
    """OpenAI tools whose arguments are masked by their schemas."""
    return [{**tool, "function": {**tool["function"], "strict": True}} for tool in tools]


@pytest.mark.model
def test_tools_of_mcp_servers_are_called_and_their_results_go_back(
    real_plain: Client, real_toolspec: Client, repository: Path
) -> None:
    expected, got = (
        told("mcp_loop", client.url, str(repository))["errands"] for client in (real_plain, real_toolspec)
    )

    for plain, ours in zip(expected, got, strict=True):
        assert ours["calls"] == plain["calls"]
        assert ours["sent"] == strict(make_offer(ours["offered"]).openai)
    now, converted, log, status = got
    assert [(name, json.loads(raw)) for name, raw in now["calls"]] == [
        ("get_current_time", {"timezone": "America/Lima"})
    ]
    assert '"timezone": "America/Lima"' in now["results"][0]["text"]
    assert converted["calls"][0][0] == "convert_time"
    for errand, says in ((log, "The first commit"), (status, "On branch main")):
        (result,) = errand["results"]
        assert not result["error"]
        assert says in result["text"]
    # Git's results are the same for both servers, so the prompts of the answers are too.
    assert [errand["answer"] for errand in got[2:]] == [errand["answer"] for errand in expected[2:]]
    assert all(errand["answer"] for errand in got)


@pytest.mark.model
def test_the_mcp_agent_answers_with_a_real_server(real_toolspec: Client) -> None:
    run = run_client(ROOT / "examples" / "mcp_agent.py", "--url", real_toolspec.url)

    assert run.returncode == 0, run.stderr[-3000:]
    assert 'get_current_time({"timezone": "America/Lima"})' in run.stdout
    assert '"datetime": "20' in run.stdout
    assert " steps; " in run.stdout
